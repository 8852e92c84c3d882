//! Events leave: their retention, the room they take, or their topic was removed.

use std::slice;

use kukuri_event::EventId;

use super::step::{Cause, Step};
use crate::{
    Cutoffs, MarkState, OnFull, Outcome, Reason, Record, Removed, TopicId, UnixMillis,
    UnlinkReason, Usage, VersionKey,
};

/// Takes events out of one topic, those for which the reason holds when it is their turn.
pub(super) fn unlink(
    step: &mut Step,
    at: UnixMillis,
    topic: &TopicId,
    events: &[EventId],
    reason: UnlinkReason,
) -> Outcome {
    let mut removed = Removed::default();
    for id in events {
        let record = step.view.records.get(id).filter(|record| record.link(topic).is_some());
        let Some(record) = record.filter(|record| holds(step, at, topic, record, reason)) else {
            continue;
        };
        let record = record.clone();
        removed.add_one(record.bytes());
        let gone = leave(step, record, slice::from_ref(topic), reason.into(), at);
        gone.into_iter().for_each(|bytes| removed.gone.add(bytes));
    }
    Outcome::Removed(removed)
}

fn holds(
    step: &Step,
    at: UnixMillis,
    topic: &TopicId,
    record: &Record,
    reason: UnlinkReason,
) -> bool {
    match reason {
        UnlinkReason::Topic => true,
        UnlinkReason::Before(time) => record.ingested_at < time,
        UnlinkReason::Retention => cutoffs(step, topic, at).take(record),
        UnlinkReason::Capacity => {
            let usage = step.view.usage.get(topic).copied().unwrap_or_default();
            step.view.topics.get(topic).is_some_and(|row| {
                let policy = &row.ingest_policy;
                policy.on_full == OnFull::Evict && policy.capacity().is_exceeded(usage)
            })
        }
    }
}

/// What has aged in a topic, by its policy and the node's.
pub(super) fn cutoffs(step: &Step, topic: &TopicId, at: UnixMillis) -> Cutoffs {
    let policy = step.view.topics.get(topic).map(|row| row.ingest_policy.clone());
    step.node().allowance.retention.cutoffs(&policy.unwrap_or_default(), at)
}

/// Takes events out of all their topics while the node holds more than `to`.
pub(super) fn evict(step: &mut Step, at: UnixMillis, events: &[EventId], to: Usage) -> Outcome {
    let mut removed = Removed::default();
    for id in events {
        let node = step.node();
        let more = node.usage.events > to.events || node.usage.bytes > to.bytes;
        if !more || !node.allowance.evicts(node.usage) {
            break;
        }
        if let Some(record) = step.view.records.get(id).cloned() {
            removed.add_one(record.bytes());
            let topics: Vec<TopicId> = record.topics().cloned().collect();
            let gone = leave(step, record, &topics, Reason::Capacity, at);
            gone.into_iter().for_each(|bytes| removed.gone.add(bytes));
        }
    }
    Outcome::Removed(removed)
}

/// A body goes with its last link; then it is said what it weighed. Dedupe remembers it, unless all that it leaves
/// are topics that were removed: if retention or capacity took it out of one, it would come back there as well.
fn leave(
    step: &mut Step,
    mut record: Record,
    topics: &[TopicId],
    reason: Reason,
    at: UnixMillis,
) -> Option<u64> {
    let id = record.event().id();
    for topic in topics {
        step.unlink(&mut record, topic, reason, Cause::node(at));
    }
    if !record.links.is_empty() {
        step.view.records.set(&id, Some(record));
        return None;
    }
    step.count(|usage| usage.remove(record.bytes()));
    step.view.records.set(&id, None);
    let is_forgotten = reason == Reason::Topic && record.left.is_empty();
    let state = if is_forgotten { MarkState::Purged } else { MarkState::Evicted };
    if is_forgotten {
        step.view.dedupe.set(&id, None);
    }
    if let Some(key) = VersionKey::of(record.event()).filter(|_| record.is_effective()) {
        step.retire_mark(&key, &id, state);
    }
    Some(record.bytes())
}
