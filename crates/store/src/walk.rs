//! Everything a filter finds, page by page, so that no read is long however much there is.

use kukuri_event::{Filter, UnixSeconds};

use crate::{Hit, Order, Query, QueryError, Store};

/// A walk through all events that match a filter, newest first, ties by id. Each page is as of its own
/// moment: what changes meanwhile behind the walk is not seen.
#[derive(Debug)]
pub struct Walk {
    filter: Filter,
    now: UnixSeconds,
    page_hits: usize,
    rows_max: usize,
    /// How many more the filter's own `limit` allows.
    left: usize,
    /// Where the last page ended. It may be in the middle of a second: there is no saying how many events
    /// one has.
    after: Option<Order>,
    is_done: bool,
}

impl Walk {
    /// How many hits a page has unless it is told otherwise: a read of some milliseconds.
    pub const PAGE_HITS: usize = 4096;

    /// `rows_max` bounds what each page may cost, as in [`Query`].
    pub fn new(filter: Filter, now: UnixSeconds, rows_max: usize) -> Self {
        let left = filter.limit.unwrap_or(usize::MAX);
        // A page costs a row more than it has hits, and some that are no hits.
        let page_hits = Self::PAGE_HITS.min(rows_max / 2).max(1);
        Self { filter, now, page_hits, rows_max, left, after: None, is_done: false }
    }

    #[must_use]
    pub fn in_pages_of(self, hits: usize) -> Self {
        Self { page_hits: hits.max(1), ..self }
    }

    /// The next page; `None` when there are no more.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Hit>>, QueryError> {
        let limit = self.page_hits.min(self.left);
        if self.is_done || limit == 0 {
            return Ok(None);
        }
        let query = Query {
            filters: vec![Filter { limit: Some(limit), ..self.filter.clone() }],
            after: self.after,
            now: self.now,
            limit_max: limit,
            rows_max: self.rows_max,
            bodies_max: 0,
        };
        let hits = store.query(query).await?.hits;
        self.is_done = hits.len() < limit;
        self.left -= hits.len();
        self.after = hits.last().map(Hit::order);
        Ok(Some(hits).filter(|hits| !hits.is_empty()))
    }
}
