//! What is said to an event that came before.

use kukuri_event::{Event, Kind};

use super::step::Step;
use crate::{
    Dedupe, Duplicate, Outcome, Rejection, Sighting, State, TombstoneKey, TopicId, VersionKey, View,
};

/// Where the count of arrivals stops: what a signed 64-bit column can hold.
const SEEN_COUNT_MAX: u64 = i64::MAX.unsigned_abs();

/// What a store knows of an event that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    New,
    /// Effective, and not linked to these topics that are handled now, nor taken out of them before.
    Unlinked(Vec<TopicId>),
    /// Nothing will change; this is the answer.
    Answer(Outcome),
}

/// Looks an event up. Doors ask before they verify a signature, and the lane asks again.
pub fn known(view: &View, event: &Event, handled: &[TopicId]) -> Known {
    let duplicate = |which| Known::Answer(Outcome::Duplicate(which));
    let Some(dedupe) = view.dedupe.get(&event.id()) else {
        return Known::New;
    };
    let record = view.records.get(&event.id());
    if let Some(record) = record.filter(|record| record.is_effective()) {
        let missing = handled.iter().filter(|topic| record.may_join(topic));
        let missing: Vec<TopicId> = missing.cloned().collect();
        return if missing.is_empty() {
            duplicate(Duplicate::Known)
        } else {
            Known::Unlinked(missing)
        };
    }
    if deleted(view, event) {
        return Known::Answer(Outcome::Refused(Rejection::Deleted));
    }
    match (record.map(|record| record.state), dedupe.seq) {
        (Some(State::Deleted), _) => Known::Answer(Outcome::Refused(Rejection::Deleted)),
        (Some(State::Expired), _) => Known::Answer(Outcome::Refused(Rejection::Expired)),
        (Some(_), _) => duplicate(Duplicate::Known),
        (None, None) => duplicate(Duplicate::Stale),
        (None, Some(_)) => duplicate(Duplicate::NotKept),
    }
}

/// Whether the author has asked for the event's deletion. Deletions themselves cannot be deleted.
pub(super) fn deleted(view: &View, event: &Event) -> bool {
    if event.kind() == Kind::DELETION {
        return false;
    }
    let key = TombstoneKey { target: event.id(), pubkey: event.pubkey() };
    let until = VersionKey::of(event).and_then(|key| view.versions.get(&key)?.deleted_until);
    view.tombstones.get(&key).is_some() || until.is_some_and(|until| event.created_at() <= until)
}

/// Adds up repeated arrivals of ids that are still remembered.
pub(super) fn count(step: &mut Step, sightings: &[Sighting]) {
    for sighting in sightings {
        let Some(row) = step.view.dedupe.get(&sighting.event_id).copied() else {
            continue;
        };
        let row = Dedupe {
            last_seen_at: row.last_seen_at.max(sighting.last_seen_at),
            seen_count: row.seen_count.saturating_add(sighting.count).min(SEEN_COUNT_MAX),
            ..row
        };
        step.view.dedupe.set(&sighting.event_id, Some(row));
    }
}
