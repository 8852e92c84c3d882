//! Everything a filter finds, page by page, so that no read is long however much there is.

use kukuri_event::{Filter, UnixSeconds};

use crate::{Hit, Query, QueryError, Store};

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
    is_done: bool,
}

impl Walk {
    /// How many hits a page has unless it is told otherwise: a read of some milliseconds.
    pub const PAGE_HITS: usize = 4096;

    /// `rows_max` bounds what each page may cost, as in [`Query`].
    pub fn new(filter: Filter, now: UnixSeconds, rows_max: usize) -> Self {
        let left = filter.limit.unwrap_or(usize::MAX);
        Self { filter, now, page_hits: Self::PAGE_HITS, rows_max, left, is_done: false }
    }

    #[must_use]
    pub fn in_pages_of(self, hits: usize) -> Self {
        Self { page_hits: hits.max(1), ..self }
    }

    /// The next page; `None` when there are no more.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Hit>>, QueryError> {
        let mut wanted = self.page_hits;
        while !self.is_done && self.left > 0 {
            let last = wanted >= self.left;
            let limit = wanted.min(self.left);
            let mut hits = self.query(store, limit).await?;
            self.is_done = last || hits.len() < limit;
            if self.is_done {
                return Ok(Some(hits).filter(|hits| !hits.is_empty()));
            }
            // A page ends between two seconds: the next one begins with all of the last second, of which
            // this one may have a part.
            let edge = hits.last().map(|hit| hit.created_at);
            hits.retain(|hit| Some(hit.created_at) != edge);
            if hits.is_empty() {
                // All of the page is of one second.
                wanted = wanted.saturating_mul(2);
                continue;
            }
            self.filter.until = edge;
            self.left -= hits.len();
            return Ok(Some(hits));
        }
        Ok(None)
    }

    async fn query(&self, store: &dyn Store, limit: usize) -> Result<Vec<Hit>, QueryError> {
        let query = Query {
            filters: vec![Filter { limit: Some(limit), ..self.filter.clone() }],
            now: self.now,
            limit_max: limit,
            rows_max: self.rows_max,
            bodies_max: 0,
        };
        Ok(store.query(query).await?.hits)
    }
}
