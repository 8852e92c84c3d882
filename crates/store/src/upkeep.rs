//! What upkeep asks a store for, and the acts that follow from what it finds.

use kukuri_core::{
    Act, Cursor, FeedBounds, Look, NodeKey, NodeState, ReadSet, Seq, TombstoneKey, TopicId,
    UnixMillis, UnlinkReason,
};
use kukuri_event::{EventId, UnixSeconds};

use crate::{FeedError, Store, StoreError};

/// Where events are given up for room.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Topic(TopicId),
    Node,
}

/// An event and its `created_at`: what has nearly the same date came together and lies together.
pub type Dated = (UnixSeconds, EventId);

/// Ids and deletions that need not be remembered any longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgettable {
    pub events: Vec<EventId>,
    pub tombstones: Vec<TombstoneKey>,
}

/// A part of what a store takes on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub name: String,
    pub bytes: u64,
}

/// What of its space a store gives back to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Of what holds nothing any more: some steps of tidying give it back.
    pub vacant_bytes: u64,
    /// Of events: about so much could be given back if they left.
    pub held_bytes: u64,
}

/// What a step of tidying leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// Nothing to be given back.
    Done,
    /// More to do at once.
    More,
    /// Something that others are in the way of. It is tried again later.
    Blocked(String),
}

/// The state of the node as a whole.
pub async fn node_state(store: &dyn Store) -> Result<NodeState, StoreError> {
    let facts = store.facts(ReadSet { node: Some(NodeKey), ..ReadSet::default() }).await?;
    Ok(facts.node.into_values().flatten().next().unwrap_or(NodeState::FRESH))
}

/// Looks for what a plan names, and says what to do about it; `None` if there is nothing.
pub async fn name(
    store: &dyn Store,
    look: &Look,
    now: UnixMillis,
    max: usize,
) -> Result<Option<Act>, StoreError> {
    let some = |events: Vec<EventId>| Some(events).filter(|events| !events.is_empty());
    Ok(match look {
        Look::Expired => some(store.expired(now.seconds(), max).await?).map(Act::Expire),
        Look::Aged { topic, cutoffs } => {
            let aged = store.aged(topic.clone(), *cutoffs, max).await?;
            let events = aged.into_iter().map(|(_, id)| id).collect();
            let (topic, reason) = (topic.clone(), UnlinkReason::Retention);
            some(events).map(|events| Act::Unlink { topic, events, reason })
        }
        Look::OldestOfTopic(topic) => {
            let events = store.oldest(Scope::Topic(topic.clone()), max).await?;
            let (topic, reason) = (topic.clone(), UnlinkReason::Capacity);
            some(events).map(|events| Act::Unlink { topic, events, reason })
        }
        Look::OldestOfNode { to } => {
            let events = store.oldest(Scope::Node, max).await?;
            some(events).map(|events| Act::Evict { events, to: *to })
        }
        Look::Forgettable { before } => {
            let Forgettable { events, tombstones } = store.forgettable(*before, max).await?;
            let any = !events.is_empty() || !tombstones.is_empty();
            any.then_some(Act::Forget { events, tombstones, before: *before })
        }
        Look::FeedRows { until } => {
            let bounds = store.bounds().await?;
            let seq = feed_rows_until(store, bounds, *until).await?;
            (seq > bounds.floor).then_some(Act::Trim(seq))
        }
    })
}

/// The last row of the feed that was taken in by a time, or the floor. Rows are about in the order of
/// their times, so halving finds it; where a clock went back it may find one of its neighbours.
pub async fn feed_rows_until(
    store: &dyn Store,
    bounds: FeedBounds,
    until: UnixMillis,
) -> Result<Seq, StoreError> {
    let FeedBounds { epoch, floor, head } = bounds;
    let (mut old, mut end) = (floor.0, head.0);
    while old < end {
        let middle = old + (end - old + 1) / 2;
        let row = match store.feed(Cursor { epoch, seq: Seq(middle - 1) }, 1).await {
            Ok(rows) => rows.into_iter().next(),
            // Somebody else moves the floor: there is nothing to do here.
            Err(FeedError::Cursor(_)) => return Ok(floor),
            Err(FeedError::Store(error)) => return Err(error),
            Err(hole) => return Err(StoreError::Corrupt(hole.to_string())),
        };
        match row {
            Some(row) if row.ingested_at <= until => old = middle,
            _ => end = middle - 1,
        }
    }
    Ok(Seq(old))
}
