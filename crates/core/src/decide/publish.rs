//! An admitted event: refused, known already, stored, or stored in place of an older version.

use kukuri_event::{Class, Kind};

use super::deletion;
use super::known::{Known, deleted, known};
use super::room;
use super::step::{Cause, Step};
use super::unlink::cutoffs;
use crate::admission::Age;
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
        Known::Unlinked(topics) => link(step, admitted, &topics, cause),
        // Even of what is refused or stale something is remembered.
        Known::New if room::is_spent(step) => Outcome::Refused(Rejection::StorageFull),
        Known::New => match VersionKey::of(event) {
            Some(key) => publish_version(step, admitted, &key, &handled, cause),
            None => publish_regular(step, admitted, &handled, cause),
        },
    }
}

/// Links a stored event to those of the topics that would keep it and have room for it.
fn link(step: &mut Step, admitted: &Admitted, topics: &[TopicId], cause: Cause<'_>) -> Outcome {
    let id = admitted.event().id();
    let mut record = step.view.records.get(&id).expect("an unlinked event is stored").clone();
    let kept = |topic: &&TopicId| !cutoffs(step, topic, cause.at).take(&record);
    let kept: Vec<TopicId> = topics.iter().filter(kept).cloned().collect();
    let Ok(open) = room::for_links(step, admitted, &kept) else {
        return Outcome::Duplicate(Duplicate::Known);
    };
    if open.is_empty() {
        return Outcome::Duplicate(Duplicate::Known);
    }
    open.iter().for_each(|topic| step.link(&mut record, topic, cause));
    step.view.records.set(&id, Some(record));
    Outcome::Accepted
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
    // The door goes by its own settings; what was forgotten may have been so under others.
    let created_at = admitted.event().created_at();
    if admitted.age() == Age::Bounded && step.node().past.may_have_held(created_at) {
        return Outcome::Refused(Rejection::TooOld);
    }
    if deleted(&step.view, admitted.event()) {
        return refuse_deleted(step, admitted, cause);
    }
    let open = match room::for_new(step, admitted, handled) {
        Ok(open) => open,
        Err(why) => return Outcome::Refused(why),
    };
    store(step, admitted, &open, cause);
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
    let known = version.mark.filter(|mark| mark.event_id == event.id());
    if known.is_some_and(|mark| mark.state == MarkState::Evicted) {
        // Dedupe may have forgotten it, the mark has not.
        return Outcome::Duplicate(Duplicate::NotKept);
    }
    // A purged winner that dedupe has forgotten may come back as what it was.
    let wins = version.mark.is_none_or(|mark| mark.is_beaten_by(event))
        || known.is_some_and(|mark| mark.state == MarkState::Purged);
    let deleted = deleted(&step.view, event);
    let open = match wins && !deleted {
        true => match room::for_new(step, admitted, handled) {
            Ok(open) => open,
            Err(why) => return Outcome::Refused(why),
        },
        false => Vec::new(),
    };
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
    store(step, admitted, &open, cause);
    Outcome::Accepted
}

/// Stores the event with its links, and remembers its id.
fn store(step: &mut Step, admitted: &Admitted, open: &[TopicId], cause: Cause<'_>) {
    let topics: Vec<&NodeTopic> =
        open.iter().filter_map(|topic| step.view.topics.get(topic)).collect();
    let mut record = Record {
        seq: step.next_seq(),
        body: admitted.body().clone(),
        ingested_at: cause.at,
        keep: Keep::of(admitted.event(), topics, &step.node().allowance.retention),
        state: State::Effective,
        links: Vec::with_capacity(open.len()),
        left: Vec::new(),
    };
    open.iter().for_each(|topic| step.link(&mut record, topic, cause));
    step.count(|usage| usage.add(record.bytes()));
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
        // It is remembered for as long as this event could be taken in.
        let recorded_at = tombstone.recorded_at.max(event.created_at().into());
        let tombstone = Tombstone { applied_at, recorded_at, ..tombstone };
        step.view.tombstones.set(&key, Some(tombstone));
    }
    Outcome::Refused(Rejection::Deleted)
}
