//! An admitted event: refused, known already, stored, or stored in place of an older version.

use kukuri_event::{Class, Kind};

use super::deletion;
use super::known::{Known, deleted, known};
use super::step::{Cause, Step};
use crate::{
    Admitted, Dedupe, Duplicate, Keep, Mark, MarkState, NodeTopic, Outcome, Reason, Record,
    Rejection, State, Tombstone, TombstoneKey, TopicId, UnixMillis, VersionKey,
};

pub(super) fn publish(step: &mut Step, at: UnixMillis, admitted: &Admitted) -> Outcome {
    let event = admitted.event();
    let handled = handled(step, admitted.topics());
    if handled.is_empty() {
        return Outcome::Refused(Rejection::TopicNotHandled);
    }
    if event.tags().expiration().is_some_and(|end| end <= at.seconds()) {
        return Outcome::Refused(Rejection::Expired);
    }
    if event.kind().class() == Class::Ephemeral {
        return Outcome::Ephemeral;
    }
    let cause = Cause { at, source: admitted.source(), via: admitted.via() };
    match known(&step.view, event, &handled) {
        Known::Answer(outcome) => outcome,
        Known::Unlinked(topics) => {
            let mut record =
                step.view.records.get(&event.id()).expect("an unlinked event is stored").clone();
            topics.iter().for_each(|topic| step.link(&mut record, topic, cause));
            step.view.records.set(&event.id(), Some(record));
            Outcome::Accepted
        }
        Known::New => match VersionKey::of(event) {
            Some(key) => publish_version(step, admitted, &key, &handled, cause),
            None => publish_regular(step, admitted, &handled, cause),
        },
    }
}

/// Those of the event's topics that the node carries now.
fn handled(step: &Step, topics: &[TopicId]) -> Vec<TopicId> {
    let enabled = |topic: &&TopicId| step.view.topics.get(topic).is_some_and(|row| row.enabled);
    topics.iter().filter(enabled).cloned().collect()
}

fn publish_regular(
    step: &mut Step,
    admitted: &Admitted,
    handled: &[TopicId],
    cause: Cause<'_>,
) -> Outcome {
    if deleted(&step.view, admitted.event()) {
        return refuse_deleted(step, admitted, cause);
    }
    store(step, admitted, handled, cause);
    if admitted.event().kind() == Kind::DELETION {
        deletion::apply(step, admitted.event(), cause);
    }
    Outcome::Accepted
}

/// The winner of a key is the greatest version ever seen, deleted or not; the effective version is
/// the winner if it is neither deleted nor expired, and otherwise none.
fn publish_version(
    step: &mut Step,
    admitted: &Admitted,
    key: &VersionKey,
    handled: &[TopicId],
    cause: Cause<'_>,
) -> Outcome {
    let event = admitted.event();
    let mut version = step.view.versions.get(key).cloned().unwrap_or_default();
    let wins = version.mark.is_none_or(|mark| {
        // A purged winner that dedupe has forgotten may come back as what it was.
        mark.is_beaten_by(event) || (mark.event_id == event.id() && mark.state == MarkState::Purged)
    });
    let deleted = deleted(&step.view, event);
    if wins {
        if let Some(old) = version.mark.filter(|mark| mark.state == MarkState::Effective) {
            step.hide(&old.event_id, State::Superseded, Reason::Superseded, cause);
        }
        let state = if deleted { MarkState::Deleted } else { MarkState::Effective };
        version.mark = Some(Mark { created_at: event.created_at(), event_id: event.id(), state });
        version.body = (!deleted).then(|| admitted.body().clone());
        step.view.versions.set(key, Some(version));
    }
    if deleted {
        return refuse_deleted(step, admitted, cause);
    }
    if !wins {
        remember(step, admitted, None, cause.at);
        return Outcome::Duplicate(Duplicate::Stale);
    }
    store(step, admitted, handled, cause);
    Outcome::Accepted
}

/// Stores the event with its links, and remembers its id.
fn store(step: &mut Step, admitted: &Admitted, handled: &[TopicId], cause: Cause<'_>) {
    let topics: Vec<&NodeTopic> =
        handled.iter().filter_map(|topic| step.view.topics.get(topic)).collect();
    let mut record = Record {
        seq: step.next_seq(),
        body: admitted.body().clone(),
        ingested_at: cause.at,
        keep: Keep::of(admitted.event(), topics),
        state: State::Effective,
        links: Vec::with_capacity(handled.len()),
    };
    handled.iter().for_each(|topic| step.link(&mut record, topic, cause));
    remember(step, admitted, Some(&record), cause.at);
    step.view.records.set(&admitted.event().id(), Some(record));
}

fn remember(step: &mut Step, admitted: &Admitted, record: Option<&Record>, at: UnixMillis) {
    let seq = record.map(|record| record.seq);
    step.view.dedupe.set(&admitted.event().id(), Some(Dedupe::once(at, seq)));
}

/// Not stored and not remembered: the tombstone or the key says all there is to know.
fn refuse_deleted(step: &mut Step, admitted: &Admitted, cause: Cause<'_>) -> Outcome {
    let event = admitted.event();
    let key = TombstoneKey { target: event.id(), pubkey: event.pubkey() };
    if let Some(tombstone) = step.view.tombstones.get(&key).copied() {
        let applied_at = tombstone.applied_at.or(Some(cause.at));
        step.view.tombstones.set(&key, Some(Tombstone { applied_at, ..tombstone }));
    }
    Outcome::Refused(Rejection::Deleted)
}
