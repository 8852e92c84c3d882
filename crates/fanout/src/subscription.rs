use std::sync::Arc;

use kukuri_core::{FeedRow, Op, TopicId};
use kukuri_event::{Event, Filter, matches_any};

/// Names a subscription in this process. No two ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubKey(pub u64);

/// A group of filters that wants each event once.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub key: SubKey,
    pub filters: Arc<[Filter]>,
}

impl Subscription {
    /// Whether a row makes its event new to the subscription: the event matches with the topics it
    /// has now, and did not with those it had before. So of all rows of an event exactly one is
    /// taken, without a memory of what was sent.
    pub fn takes(&self, row: &FeedRow, event: &Event) -> bool {
        row.op == Op::Upsert && self.takes_in(event, &row.topic_id, &row.prior)
    }

    /// Whether a row can be for the subscription, as far as the row itself tells.
    pub fn may_take(&self, row: &FeedRow) -> bool {
        let topic = row.topic_id.as_str();
        row.op == Op::Upsert
            && self.filters.iter().any(|filter| {
                filter.admits(row.event_id, row.pubkey, row.kind, row.created_at)
                    && filter.topics().is_none_or(|topics| topics.contains(topic))
            })
    }

    fn takes_in(&self, event: &Event, topic: &TopicId, prior: &[TopicId]) -> bool {
        let now: Vec<&TopicId> = prior.iter().chain([topic]).collect();
        matches_any(&self.filters, event, &now)
            && (prior.is_empty() || !matches_any(&self.filters, event, prior))
    }

    /// Whether an event matches with these topics: those it was sent to if it is not stored, and those
    /// it has now if it comes late.
    pub fn wants(&self, event: &Event, topics: &[TopicId]) -> bool {
        matches_any(&self.filters, event, topics)
    }
}
