//! L3: folding the feed rows gives the effective view, at every prefix, whatever happens to topics in
//! between; and all tables agree with each other.

use kukuri_core::{Command, FeedRow, Op, Reason, Seq, TopicId};
use kukuri_store::conformance::dump;
use kukuri_store::{Entry, Model, Store};
use kukuri_testkit::audit::{Fold, audit, effective};
use kukuri_testkit::generate::{Seed, World, script, untrimmed};

use crate::{apply, set_topic};

const SEQUENCES: u64 = 150;
const COMMANDS: usize = 40;
const EVENTS: usize = 24;

#[tokio::test]
async fn l3_the_feed_tells_the_whole_story() {
    let seed = Seed::of_run("-p kukuri-store l3_the_feed");
    for part in 0..SEQUENCES {
        let seed_of_part = seed.part(part);
        let world = World::new(seed_of_part, 0, EVENTS);
        let commands = script(&world, &mut seed_of_part.part(0).dice(), COMMANDS);
        follow(&commands).await.unwrap_or_else(|fault| panic!("seed {seed}, part {part}: {fault}"));
    }
}

/// As above, with nothing but events and topics that come and go between them.
#[tokio::test]
async fn l3_holds_while_topics_come_and_go() {
    let seed = Seed::of_run("-p kukuri-store l3_holds");
    for part in 0..SEQUENCES {
        let world = World::new(seed.part(part), 0, EVENTS);
        let mut dice = seed.part(part).part(0).dice();
        let at = World::now();
        let mut commands = Vec::new();
        for nth in (0..world.events.len()).chain(0..world.events.len()) {
            let topic = dice.pick(&world.topics).clone();
            commands.push(Command { at, act: set_topic(&topic, dice.chance(65)) });
            let event = world.admitted(nth, &mut dice);
            commands.push(Command { at, act: kukuri_core::Act::Publish(event) });
        }
        follow(&commands).await.unwrap_or_else(|fault| panic!("seed {seed}, part {part}: {fault}"));
    }
}

/// Runs the commands one by one and compares feed and state after each.
async fn follow(commands: &[Command]) -> Result<(), String> {
    let model = Model::default();
    let mut fold = Fold::default();
    for (step, command) in commands.iter().enumerate() {
        let decision = apply(&model, [command.clone()].into()).await;
        let state = dump(&model).await;
        let taken = decision.rows.iter().try_for_each(|row| fold.take(row));
        let floor = model.bounds().await.expect("the model has bounds").floor;
        let told = taken.and_then(|()| match fold.links == effective(&state) {
            true => audit(&state, floor),
            false => Err("the fold is not the effective view".to_owned()),
        });
        told.map_err(|fault| format!("step {step}: {fault}\n{command:?}"))?;
    }
    Ok(())
}

async fn some_state() -> Vec<Entry> {
    let world = World::new(Seed(3), 0, EVENTS);
    // What is cut away cannot be missed.
    let commands = untrimmed(&world, &mut Seed(3).dice(), 60);
    let model = Model::default();
    apply(&model, commands.as_slice().into()).await;
    dump(&model).await
}

fn rows(state: &[Entry]) -> Vec<FeedRow> {
    let row = |entry: &Entry| match entry {
        Entry::Row(row) => Some(row.clone()),
        _ => None,
    };
    state.iter().filter_map(row).collect()
}

#[tokio::test]
async fn a_wrong_row_is_noticed() {
    let good = rows(&some_state().await);
    assert!(Fold::of(&good).is_ok());
    let sabotaged = |change: fn(&mut Vec<FeedRow>)| {
        let mut rows = good.clone();
        change(&mut rows);
        Fold::of(&rows)
    };
    let renumber: fn(&mut Vec<FeedRow>) = |rows| {
        // Without the renumbering the missing number alone would tell.
        rows.remove(0);
        (1..).zip(rows).for_each(|(seq, row)| row.seq.0 = seq);
    };
    for (what, change) in [
        ("a hole", (|rows| drop(rows.remove(1))) as fn(&mut Vec<FeedRow>)),
        ("a lost row under a reused number", renumber),
        ("two rows swapped", |rows| rows.swap(0, 1)),
        ("a row twice", |rows| rows.insert(0, rows[0].clone())),
        ("a prior topic too many", |rows| rows[0].prior.push(TopicId::global())),
        ("a reason where none belongs", |rows| rows[0].reason = Some(Reason::Topic)),
        ("a delete for an upsert", |rows| rows[0].op = Op::Delete),
    ] {
        assert!(sabotaged(change).is_err(), "{what} was not noticed");
    }
}

#[tokio::test]
async fn a_wrong_entry_is_noticed() {
    let good = some_state().await;
    assert_eq!(audit(&good, Seq::ZERO), Ok(()));
    for nth in 0..good.len() {
        // What only remembers, and is not held by anything else, may go unnoticed.
        let alone = match &good[nth] {
            Entry::Tombstone(..) => true,
            Entry::Dedupe(id, _) => !stored(&good, id),
            Entry::Version(_, version) => version.mark.is_none_or(|m| !stored(&good, &m.event_id)),
            Entry::Topic(_, usage) => usage.events == 0,
            Entry::Record(_) | Entry::Node(_) | Entry::Row(_) => false,
        };
        let mut sabotaged = good.clone();
        let gone = sabotaged.remove(nth);
        assert!(
            alone || audit(&sabotaged, Seq::ZERO).is_err(),
            "the loss of {gone:?} was not noticed"
        );
    }
    let mut counted = good.clone();
    for entry in &mut counted {
        if let Entry::Topic(_, usage) = entry {
            usage.bytes += 1;
        }
    }
    assert!(audit(&counted, Seq::ZERO).is_err(), "a wrong counter was not noticed");
    let mut twice = good.clone();
    twice.push(good[0].clone());
    assert!(audit(&twice, Seq::ZERO).is_err(), "an entry that stands there twice was not noticed");
}

fn stored(state: &[Entry], id: &kukuri_event::EventId) -> bool {
    let stored = |entry: &Entry| matches!(entry, Entry::Record(r) if r.event().id() == *id);
    state.iter().any(stored)
}
