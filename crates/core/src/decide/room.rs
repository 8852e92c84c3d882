//! Whether there is room for an event. It is asked for right before something is stored, so that the
//! answer is exact. Deletions find room as long as there is any: they are how room is made.

use kukuri_event::Kind;

use super::step::Step;
use crate::ladder;
use crate::{
    Admitted, Backfill, NodeState, NodeTopic, OnFull, Priority, Rejection, Source, Storage, TopicId,
};

/// Those of the topics that take a new event now; why none does.
pub(super) fn for_new(
    step: &Step,
    admitted: &Admitted,
    topics: &[TopicId],
) -> Result<Vec<TopicId>, Rejection> {
    let NodeState { usage, allowance, .. } = step.node();
    if admitted.event().kind() == Kind::DELETION {
        return for_links(step, admitted, topics);
    }
    on_disk(step, admitted)?;
    if allowance.on_full == OnFull::Refuse && !allowance.capacity.has_room(*usage, bytes(admitted))
    {
        return Err(Rejection::NodeFull);
    }
    for_links(step, admitted, topics)
}

/// Those of the topics that take an event that may be stored already; why none does.
pub(super) fn for_links(
    step: &Step,
    admitted: &Admitted,
    topics: &[TopicId],
) -> Result<Vec<TopicId>, Rejection> {
    on_disk(step, admitted)?;
    if admitted.event().kind() == Kind::DELETION {
        return Ok(topics.to_vec());
    }
    let (mut open, mut refusal) = (Vec::with_capacity(topics.len()), Rejection::TopicNotHandled);
    for topic in topics.iter().rev() {
        match in_topic(step, admitted, topic) {
            Ok(()) => open.insert(0, topic.clone()),
            Err(why) => refusal = why,
        }
    }
    if open.is_empty() { Err(refusal) } else { Ok(open) }
}

/// Whether what is left of the disk is for upkeep alone.
pub(super) fn is_spent(step: &Step) -> bool {
    matches!(step.node().allowance.storage, Storage::Spent { .. })
}

/// Whether the disk has room for the event.
fn on_disk(step: &Step, admitted: &Admitted) -> Result<(), Rejection> {
    match step.node().allowance.storage {
        Storage::Open => Ok(()),
        Storage::Full { .. } if admitted.event().kind() == Kind::DELETION => Ok(()),
        Storage::Full { .. } | Storage::Spent { .. } => Err(Rejection::StorageFull),
    }
}

fn in_topic(step: &Step, admitted: &Admitted, topic: &TopicId) -> Result<(), Rejection> {
    let given_up = step.node().allowance.step;
    let row = step.view.topics.get(topic);
    let Some(NodeTopic { ingest_policy: policy, .. }) = row else {
        return Err(Rejection::TopicNotHandled);
    };
    if policy.priority == Priority::Low && given_up >= ladder::Step::StopLowPriority {
        return Err(Rejection::TopicPaused);
    }
    let no_backfill = policy.backfill == Backfill::Off || given_up >= ladder::Step::StopBackfill;
    if admitted.source() == Source::Backfill && no_backfill {
        return Err(Rejection::NoBackfill);
    }
    let usage = step.view.usage.get(topic).copied().unwrap_or_default();
    if policy.on_full == OnFull::Refuse && !policy.capacity().has_room(usage, bytes(admitted)) {
        return Err(Rejection::TopicFull);
    }
    Ok(())
}

fn bytes(admitted: &Admitted) -> u64 {
    admitted.body().json().len() as u64
}
