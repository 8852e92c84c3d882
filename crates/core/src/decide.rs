//! Deciding a batch: a fold of pure rules over a view.

mod deletion;
mod expire;
mod forget;
mod known;
mod lease;
mod publish;
mod room;
mod step;
mod topic;
mod unlink;

pub use known::{Known, known};

use crate::{Act, Command, Decision, FeedBounds, NodeState, Outcome, UnixMillis, View};
use step::Step;

/// Decides `batch` on `view`, which was taken when the feed had these bounds. How commands are split
/// into batches changes nothing: each one sees exactly what those before it did.
pub fn decide(view: View, bounds: FeedBounds, batch: &[Command]) -> Decision {
    let mut step = Step::new(view, bounds);
    let act = |command: &Command| decide_one(&mut step, command.at, &command.act);
    let outcomes = batch.iter().map(act).collect();
    let (writes, floor, rows) = step.finish();
    Decision { base: bounds.head, writes, floor, rows, outcomes }
}

fn decide_one(step: &mut Step, at: UnixMillis, act: &Act) -> Outcome {
    match act {
        Act::Publish(admitted) => publish::publish(step, at, admitted),
        Act::SetTopic { .. } => topic::set(step, at, act),
        Act::RemoveTopic(topic) => topic::remove(step, topic),
        Act::Unlink { topic, events, reason } => unlink::unlink(step, at, topic, events, *reason),
        Act::Expire(events) => expire::expire(step, at, events),
        Act::Sightings(sightings) => {
            known::count(step, sightings);
            Outcome::Done
        }
        Act::Evict { events, to } => unlink::evict(step, at, events, *to),
        Act::Forget { events, tombstones, before } => {
            forget::forget(step, events, tombstones, *before)
        }
        Act::Trim(seq) => {
            step.trim(*seq);
            Outcome::Done
        }
        Act::Allow(allowance) => {
            let node = NodeState { allowance: *allowance, ..step.node().clone() };
            step.set_node(node);
            Outcome::Done
        }
        Act::Climb(moved) => {
            let mut node = step.node().clone();
            node.allowance.step = moved.to;
            node.past.last_move = Some(moved.clone());
            step.set_node(node);
            Outcome::Done
        }
        Act::SetStorage(storage) => {
            let mut node = step.node().clone();
            node.allowance.storage = *storage;
            step.set_node(node);
            Outcome::Done
        }
        Act::Hold { task, holder, lease_ms } => lease::hold(step, at, *task, *holder, *lease_ms),
        Act::Release { task, holder } => lease::release(step, *task, *holder),
        Act::Fenced { task, fence, act } => match lease::holds(step, *task, *fence) {
            true => decide_one(step, at, act),
            false => Outcome::HeldElsewhere,
        },
    }
}
