use std::cmp::Reverse;

use kukuri_core::Seq;
use kukuri_event::{EventId, Filter, UnixSeconds};

/// A question to the stored events.
#[derive(Clone, Debug)]
pub struct Query {
    /// Any of them may match; each has its own `limit`.
    pub filters: Vec<Filter>,
    /// Only what comes after this place, in the order of answers: whoever has had what is before it goes on
    /// there. The limits count from it.
    pub after: Option<Order>,
    /// Events that expire by now are not there.
    pub now: UnixSeconds,
    /// Bounds each filter that has no smaller `limit` of its own.
    pub limit_max: usize,
    /// How many index rows all filters together may cost.
    pub rows_max: usize,
    /// Of how many hits, the first ones, the JSON is wanted with the answer. It spares a caller who
    /// wants it anyway a second look at the same rows.
    pub bodies_max: usize,
}

impl Query {
    pub fn limit(&self, filter: &Filter) -> usize {
        filter.limit.unwrap_or(self.limit_max).min(self.limit_max)
    }

    /// The newest time that is asked for.
    pub fn until(&self, filter: &Filter) -> Option<UnixSeconds> {
        let place = self.after.map(|Order(Reverse(created_at), _)| created_at);
        filter.until.into_iter().chain(place).min()
    }

    pub fn is_ahead(&self, hit: &Hit) -> bool {
        self.after.is_none_or(|after| hit.order() > after)
    }
}

/// What a query found, as of one seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    pub head: Seq,
    pub hits: Vec<Hit>,
    /// The JSON of the first hits, of as many as were asked for.
    pub bodies: Vec<String>,
}

/// An event that matches: its number, and its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub event: Seq,
    pub created_at: UnixSeconds,
    pub id: EventId,
}

/// The order of answers: newest first, ties by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(pub Reverse<UnixSeconds>, pub EventId);

impl AsRef<Hit> for Hit {
    fn as_ref(&self) -> &Hit {
        self
    }
}

impl Hit {
    pub fn order(&self) -> Order {
        Order(Reverse(self.created_at), self.id)
    }
}

/// Joins the answers of several filters: each event once, in order.
pub fn merge_hits<H: AsRef<Hit>>(answers: impl IntoIterator<Item = Vec<H>>) -> Vec<H> {
    let mut hits: Vec<H> = answers.into_iter().flatten().collect();
    hits.sort_unstable_by_key(|hit| hit.as_ref().order());
    hits.dedup_by_key(|hit| hit.as_ref().order());
    hits
}
