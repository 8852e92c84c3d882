//! Memory ends as well: ids and deletions from before a time, and the oldest rows of the feed.

use kukuri_event::EventId;

use super::step::Step;
use crate::{Outcome, TombstoneKey, UnixMillis, Usage};

/// What is stored is not forgotten: dedupe leads to it.
pub(super) fn forget(
    step: &mut Step,
    events: &[EventId],
    tombstones: &[TombstoneKey],
    before: UnixMillis,
) -> Outcome {
    let mut forgotten = Usage::default();
    for id in events {
        let old = step.view.dedupe.get(id).is_some_and(|row| row.first_seen_at < before);
        if old && step.view.records.get(id).is_none() {
            step.view.dedupe.set(id, None);
            forgotten.add(0);
        }
    }
    for key in tombstones {
        if step.view.tombstones.get(key).is_some_and(|row| row.recorded_at < before) {
            step.view.tombstones.set(key, None);
            forgotten.add(0);
        }
    }
    Outcome::Removed(forgotten)
}
