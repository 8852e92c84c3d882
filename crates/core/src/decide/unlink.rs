//! Events leave a topic: its retention, its capacity, or the topic itself was removed.

use kukuri_event::EventId;

use super::step::{Cause, Step};
use crate::{MarkState, TopicId, UnixMillis, UnlinkReason, VersionKey};

pub(super) fn unlink(
    step: &mut Step,
    at: UnixMillis,
    topic: &TopicId,
    events: &[EventId],
    reason: UnlinkReason,
) {
    for id in events {
        let Some(mut record) = step.view.records.get(id).cloned() else {
            continue;
        };
        if record.link(topic).is_none() {
            continue;
        }
        step.unlink(&mut record, topic, reason.into(), Cause::node(at));
        if !record.links.is_empty() {
            step.view.records.set(id, Some(record));
            continue;
        }
        step.view.records.set(id, None);
        if reason == UnlinkReason::Topic {
            step.view.dedupe.set(id, None);
        }
        if let Some(key) = VersionKey::of(record.event()).filter(|_| record.is_effective()) {
            step.retire_mark(&key, id, MarkState::Purged);
        }
    }
}
