//! What a door says of an id it knows is what the lane would say.

use std::collections::BTreeMap;

use kukuri_core::admission::Checked;
use kukuri_core::{Act, Admitted, Command, Known, Outcome, ReadSet, TopicId, View, known};
use kukuri_store::{Model, Store};
use kukuri_testkit::generate::{Seed, World, script};

use crate::apply;

const SEQUENCES: u64 = 150;

/// Looks an event up as a door does: with its own facts, before any signature is checked.
async fn look_up(model: &Model, event: &Checked, handled: &[TopicId]) -> Known {
    let mut needs = ReadSet::default();
    needs.add_lookup(event.event());
    let facts = model.facts(needs).await.expect("the model has facts");
    known(&View::new(facts), event.event(), handled)
}

async fn handled(model: &Model, event: &Admitted) -> Vec<TopicId> {
    let topics = model.topics().await.expect("topics are listed");
    let enabled =
        topics.iter().filter(|(topic, _)| topic.enabled).map(|(topic, _)| &topic.topic_id);
    enabled.filter(|topic| event.topics().contains(topic)).cloned().collect()
}

#[tokio::test]
async fn a_door_answers_as_the_lane_would() {
    let seed = Seed::of_run("-p kukuri-store a_door_answers");
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for part in 0..SEQUENCES {
        let world = World::new(seed.part(part), 0, 24);
        let mut dice = seed.part(part).part(0).dice();
        let model = Model::default();
        for command in script(&world, &mut dice, 40) {
            let at = command.at;
            apply(&model, [command].into()).await;
            let nth = dice.below(world.events.len());
            let event = world.admitted(nth, &mut dice);
            let handled = handled(&model, &event).await;
            let expired = event.event().tags().expiration().is_some_and(|end| end <= at.seconds());
            if handled.is_empty() || expired {
                // The door has refused it before it looks anything up.
                continue;
            }
            let known = look_up(&model, &world.events[nth], &handled).await;
            let mut decision =
                apply(&model, [Command { at, act: Act::Publish(event) }].into()).await;
            let outcome = decision.outcomes.pop().expect("one command, one outcome");
            let context = format!("seed {seed}, sequence {part}: {known:?}, then {outcome:?}");
            match &known {
                Known::Answer(answer) => {
                    assert_eq!(*answer, outcome, "{context}");
                    assert!(decision.rows.is_empty() && decision.writes.is_empty(), "{context}");
                }
                Known::Unlinked(topics) => {
                    let linked: Vec<_> =
                        decision.rows.into_iter().map(|row| row.topic_id).collect();
                    // A topic may be full, or have given it up as too old.
                    assert!(linked.iter().all(|topic| topics.contains(topic)), "{context}");
                    let expected = match linked.is_empty() {
                        true => Outcome::Duplicate(kukuri_core::Duplicate::Known),
                        false => Outcome::Accepted,
                    };
                    assert_eq!(outcome, expected, "{context}");
                }
                Known::New => {
                    let repeat = Outcome::Duplicate(kukuri_core::Duplicate::Known);
                    assert_ne!(outcome, repeat, "{context}");
                }
            }
            *answers.entry(answer_name(&known)).or_default() += 1;
        }
    }
    println!("{answers:?}");
    assert!(answers.len() >= 6, "seed {seed}: only {answers:?} happened");
}

fn answer_name(known: &Known) -> String {
    match known {
        Known::New => "new".to_owned(),
        Known::Unlinked(_) => "unlinked".to_owned(),
        Known::Answer(outcome) => outcome.message(),
    }
}
