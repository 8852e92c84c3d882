//! Memory ends as well: ids and deletions from before a time, and the oldest rows of the feed.

use kukuri_event::EventId;

use super::step::Step;
use crate::{Outcome, Removed, TombstoneKey, UnixMillis};

/// What is stored is not forgotten: dedupe leads to it. How far back forgetting went is remembered, so that
/// longer settings do not let in what shorter ones have forgotten.
pub(super) fn forget(
    step: &mut Step,
    events: &[EventId],
    tombstones: &[TombstoneKey],
    before: UnixMillis,
) -> Outcome {
    let mut forgotten = Removed::default();
    let mut node = step.node().clone();
    for id in events {
        let old = step.view.dedupe.get(id).filter(|row| row.first_seen_at < before);
        let Some(row) = old.filter(|_| step.view.records.get(id).is_none()) else {
            continue;
        };
        node.past.forget(row.first_seen_at);
        step.view.dedupe.set(id, None);
        forgotten.add_one(0);
    }
    for key in tombstones {
        let old = step.view.tombstones.get(key).filter(|row| row.recorded_at < before);
        let Some(row) = old else {
            continue;
        };
        node.past.forget(row.recorded_at);
        step.view.tombstones.set(key, None);
        forgotten.add_one(0);
    }
    step.set_node(node);
    Outcome::Removed(forgotten)
}
