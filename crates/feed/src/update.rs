//! What a consumer is told: rows of the feed with the events they are about, or the state as if each of
//! its links had just become a row.

use std::sync::Arc;

use kukuri_core::{FeedRow, Op, Reason, Record, Seq, TopicId, UnixMillis, VersionKey};
use kukuri_event::{Body, EventId, Kind, Pubkey, UnixSeconds};

/// One change of one event in one topic. It holds what both the feed and the state can tell, and nothing
/// that only one of them knows: so a consumer cannot but become the same from either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The row of the feed; from the state, the row that linked the event to the topic.
    pub seq: Seq,
    pub event_id: EventId,
    pub topic_id: TopicId,
    /// The other topics of the event, sorted: with an upsert those linked before this one, with a delete
    /// those that remain. A delete without any is the end of the event.
    pub prior: Vec<TopicId>,
    pub kind: Kind,
    pub pubkey: Pubkey,
    pub created_at: UnixSeconds,
    /// The key of a replaceable or addressable event.
    pub effective_key: Option<VersionKey>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The event is visible in the topic.
    Upsert { body: Arc<Body>, ingested_at: UnixMillis },
    /// The event was visible in the topic and is no longer: a later row says why. There is nothing left to
    /// write, and what was written is deleted then.
    Gone,
    /// The event stopped being visible in the topic. Its body may be gone.
    Delete { reason: Option<Reason> },
}

impl Update {
    /// A row, with the event it is about if that is visible in the row's topic now.
    pub(crate) fn of_row(row: FeedRow, record: Option<&Record>) -> Self {
        let visible =
            record.filter(|record| record.is_effective() && record.link(&row.topic_id).is_some());
        let what = match (row.op, visible) {
            (Op::Delete, _) => What::Delete { reason: row.reason },
            (Op::Upsert, Some(record)) => What::upsert(record),
            (Op::Upsert, None) => What::Gone,
        };
        let FeedRow { seq, event_id, topic_id, prior, kind, pubkey, created_at, .. } = row;
        let effective_key = row.effective_key;
        Self { seq, event_id, topic_id, prior, kind, pubkey, created_at, effective_key, what }
    }

    /// A visible event as rows would tell of it, one for each of its topics, in the order in which it was
    /// linked to them.
    pub(crate) fn of_state(record: &Record) -> Vec<Self> {
        let event = record.event();
        let mut links: Vec<_> = record.links.iter().collect();
        links.sort_unstable_by_key(|link| link.seq);
        let mut prior: Vec<TopicId> = Vec::new();
        let update = |link: &kukuri_core::Link| {
            let update = Self {
                seq: link.seq,
                event_id: event.id(),
                topic_id: link.topic.clone(),
                prior: prior.clone(),
                kind: event.kind(),
                pubkey: event.pubkey(),
                created_at: event.created_at(),
                effective_key: VersionKey::of(event),
                what: What::upsert(record),
            };
            prior.push(link.topic.clone());
            prior.sort_unstable();
            update
        };
        links.into_iter().map(update).collect()
    }
}

impl What {
    fn upsert(record: &Record) -> Self {
        Self::Upsert { body: Arc::clone(&record.body), ingested_at: record.ingested_at }
    }
}
