//! Deciding a batch: a fold of pure rules over a view.

mod deletion;
mod expire;
mod known;
mod publish;
mod step;
mod topic;
mod unlink;

pub use known::{Known, known};

use crate::{Act, Command, Decision, Outcome, Seq, View};
use step::Step;

/// Decides `batch` on `view`, which was taken at head `base`. How commands are split into batches
/// changes nothing: each one sees exactly what those before it did.
pub fn decide(view: View, base: Seq, batch: &[Command]) -> Decision {
    let mut step = Step::new(view, base);
    let outcomes = batch.iter().map(|command| decide_one(&mut step, command)).collect();
    let (writes, rows) = step.finish();
    Decision { base, writes, rows, outcomes }
}

fn decide_one(step: &mut Step, command: &Command) -> Outcome {
    let at = command.at;
    match &command.act {
        Act::Publish(admitted) => publish::publish(step, at, admitted),
        Act::SetTopic { .. } => topic::set(step, at, &command.act),
        Act::RemoveTopic(topic) => topic::remove(step, topic),
        Act::Unlink { topic, events, reason } => {
            unlink::unlink(step, at, topic, events, *reason);
            Outcome::Done
        }
        Act::Expire(events) => {
            expire::expire(step, at, events);
            Outcome::Done
        }
        Act::Sightings(sightings) => {
            known::count(step, sightings);
            Outcome::Done
        }
    }
}
