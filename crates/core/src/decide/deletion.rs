//! Kind 5: the author's wish that events go. It reaches only what the same key signed, and what is
//! not here yet as well.

use std::collections::BTreeSet;

use kukuri_event::{Event, EventId, Kind, UnixSeconds};

use super::step::{Cause, Step};
use crate::{MarkState, Reason, State, Tombstone, TombstoneKey, VersionKey};

pub(super) fn apply(step: &mut Step, deletion: &Event, cause: Cause<'_>) {
    let targets: BTreeSet<EventId> = deletion.tags().event_ids().collect();
    for target in targets {
        delete_event(step, deletion, target, cause);
    }
    let addresses = deletion.tags().addresses().filter(|a| a.pubkey == deletion.pubkey());
    let keys: BTreeSet<VersionKey> = addresses.map(VersionKey::from).collect();
    for key in keys {
        delete_versions(step, &key, deletion.created_at(), cause);
    }
}

fn delete_event(step: &mut Step, deletion: &Event, target: EventId, cause: Cause<'_>) {
    let record = step.view.records.get(&target);
    let ours =
        |event: &Event| event.pubkey() == deletion.pubkey() && event.kind() != Kind::DELETION;
    if record.is_some_and(|record| !ours(record.event())) {
        return;
    }
    let state = record.map(|record| record.state);
    let version_key = record.and_then(|record| VersionKey::of(record.event()));
    if let Some(state) = state.filter(|state| *state != State::Deleted) {
        step.hide(&target, State::Deleted, Reason::Nip09, cause);
        if let (State::Effective, Some(key)) = (state, version_key) {
            step.retire_mark(&key, &target, MarkState::Deleted);
        }
    }
    let key = TombstoneKey { target, pubkey: deletion.pubkey() };
    let old = step.view.tombstones.get(&key).copied();
    let mut tombstone = old.unwrap_or(Tombstone {
        deletion_event_id: deletion.id(),
        requested_at: deletion.created_at(),
        recorded_at: cause.at,
        applied_at: None,
    });
    tombstone.recorded_at = tombstone.recorded_at.max(cause.at);
    tombstone.applied_at = tombstone.applied_at.or(state.map(|_| cause.at));
    step.view.tombstones.set(&key, Some(tombstone));
}

/// Versions up to the request's own time go; newer ones stay.
fn delete_versions(step: &mut Step, key: &VersionKey, until: UnixSeconds, cause: Cause<'_>) {
    let mut version = step.view.versions.get(key).cloned().unwrap_or_default();
    version.deleted_until = version.deleted_until.max(Some(until));
    let mark = version.mark;
    step.view.versions.set(key, Some(version));
    if let Some(mark) = mark.filter(|m| m.state == MarkState::Effective && m.created_at <= until) {
        step.hide(&mark.event_id, State::Deleted, Reason::Nip09, cause);
        step.retire_mark(key, &mark.event_id, MarkState::Deleted);
    }
}
