//! Node-level subscriptions: which topics the node carries.

use super::step::Step;
use crate::{Act, NodeTopic, Outcome, TopicId, UnixMillis};

pub(super) fn set(step: &mut Step, at: UnixMillis, act: &Act) -> Outcome {
    let Act::SetTopic { topic_id, name, enabled, pinned, wanted, ingest_policy } = act else {
        unreachable!("called for SetTopic alone");
    };
    let old = step.view.topics.get(topic_id);
    let row = NodeTopic {
        topic_id: topic_id.clone(),
        name: name.clone(),
        enabled: *enabled,
        pinned: *pinned,
        wanted: *wanted,
        ingest_policy: ingest_policy.clone(),
        created_at: old.map_or(at, |old| old.created_at),
        updated_at: at,
    };
    step.view.topics.set(topic_id, Some(row));
    Outcome::Done
}

/// Only a topic without events can be forgotten: its usage row goes with it.
pub(super) fn remove(step: &mut Step, topic: &TopicId) -> Outcome {
    if step.view.usage.get(topic).is_some_and(|usage| usage.events > 0) {
        return Outcome::TopicInUse;
    }
    step.view.topics.set(topic, None);
    step.view.usage.set(topic, None);
    Outcome::Done
}
