//! Random sequences of commands over a world, and random splits of them into batches.

use std::sync::Arc;

use kukuri_core::{Act, Command, IngestPolicy, Sighting, TopicId, UnixMillis, UnlinkReason};

use super::{Dice, World};

const NAMES: [&str; 5] = ["", "bitcoin", "a\0b", "括り \"'\\", "É\u{301}"];

#[derive(Clone, Copy)]
enum Move {
    Publish,
    SetTopic,
    Unlink,
    Retire,
    RemoveTopic,
    Expire,
    Sightings,
}

const MOVES: &[(Move, u32)] = &[
    (Move::Publish, 70),
    (Move::SetTopic, 8),
    (Move::Unlink, 7),
    (Move::Retire, 3),
    (Move::RemoveTopic, 2),
    (Move::Expire, 6),
    (Move::Sightings, 4),
];

/// About `count` commands, after some of the topics are enabled.
pub fn script(world: &World, dice: &mut Dice, count: usize) -> Vec<Command> {
    let mut acts = Vec::new();
    for topic in &world.topics {
        if dice.chance(75) {
            acts.push(set_topic(topic, true, dice));
        }
    }
    while acts.len() < count {
        match dice.weigh(MOVES) {
            Move::Publish => {
                let nth = dice.below(world.events.len());
                acts.push(Act::Publish(world.admitted(nth, dice)));
            }
            Move::SetTopic => {
                let enabled = dice.chance(60);
                acts.push(set_topic(dice.pick(&world.topics), enabled, dice));
            }
            Move::Unlink => acts.push(unlink(world, dice)),
            Move::Retire => retire(world, dice, &mut acts),
            Move::RemoveTopic => acts.push(Act::RemoveTopic(dice.pick(&world.topics).clone())),
            Move::Expire => acts.push(expire(world, dice)),
            Move::Sightings => acts.push(sightings(world, dice)),
        }
    }
    stamp(acts, dice)
}

/// A clock that mostly creeps, sometimes leaps past expirations, and sometimes goes back.
fn stamp(acts: Vec<Act>, dice: &mut Dice) -> Vec<Command> {
    let mut at = World::now();
    let stamped = acts.into_iter().map(|act| {
        at.0 += dice.weigh(&[(0, 30), (1, 20), (700, 40), (5_000, 5), (-1_500, 5)]);
        Command { at, act }
    });
    stamped.collect()
}

fn set_topic(topic: &TopicId, enabled: bool, dice: &mut Dice) -> Act {
    Act::SetTopic {
        topic_id: topic.clone(),
        name: (*dice.pick(&NAMES)).to_owned(),
        enabled,
        pinned: dice.chance(50),
        wanted: *dice.pick(&[0, 1, 7, u32::MAX]),
        ingest_policy: IngestPolicy {
            retention_days: *dice.pick(&[None, None, Some(7), Some(90)]),
        },
    }
}

fn unlink(world: &World, dice: &mut Dice) -> Act {
    let events = match dice.chance(50) {
        true => world.ids(),
        false => dice.some(&world.ids(), 3),
    };
    let reasons = [UnlinkReason::Retention, UnlinkReason::Capacity, UnlinkReason::Topic];
    Act::Unlink { topic: dice.pick(&world.topics).clone(), events, reason: *dice.pick(&reasons) }
}

/// What an operator does who removes a topic, and perhaps thinks better of it.
fn retire(world: &World, dice: &mut Dice, acts: &mut Vec<Act>) {
    let topic = dice.pick(&world.topics).clone();
    acts.push(set_topic(&topic, false, dice));
    acts.push(Act::Unlink {
        topic: topic.clone(),
        events: world.ids(),
        reason: UnlinkReason::Topic,
    });
    acts.push(Act::RemoveTopic(topic.clone()));
    if dice.chance(60) {
        acts.push(set_topic(&topic, true, dice));
    }
}

fn expire(world: &World, dice: &mut Dice) -> Act {
    Act::Expire(match dice.chance(70) {
        true => world.ids(),
        false => dice.some(&world.ids(), 3),
    })
}

fn sightings(world: &World, dice: &mut Dice) -> Act {
    let ids = dice.some(&world.ids(), 4);
    let sighting = |event_id| Sighting {
        event_id,
        last_seen_at: UnixMillis(World::now().0 + dice.range(-5_000..20_000)),
        count: dice.weigh(&[(0, 5), (1, 60), (5, 30), (u64::MAX, 5)]),
    };
    Act::Sightings(ids.into_iter().map(sighting).collect())
}

/// The world's events in any order, some of them again, while one topic after the other is carried.
/// Nothing is unlinked, so that a link once made stays for as long as its event is visible.
pub fn arrivals(world: &World, dice: &mut Dice) -> Vec<Act> {
    let events = world.events.len();
    let mut order: Vec<usize> = (0..events).chain((0..events / 2).map(|_| 0)).collect();
    order[events..].iter_mut().for_each(|nth| *nth = dice.below(events));
    dice.shuffle(&mut order);
    let stretch = order.len() / (2 * world.topics.len()) + 1;
    let mut acts = Vec::with_capacity(order.len() + 2 * world.topics.len());
    for (nth, event) in order.into_iter().enumerate() {
        if nth % stretch == stretch / 2 {
            let topic = world.topics[nth / stretch % world.topics.len()].clone();
            acts.push(Act::carry(topic, String::new()));
        }
        acts.push(Act::Publish(world.admitted(event, dice)));
    }
    acts
}

/// The commands in order, cut into batches at random.
pub fn batches(commands: &[Command], dice: &mut Dice) -> Vec<Arc<[Command]>> {
    let most = dice.weigh(&[(1, 10), (3, 25), (8, 30), (commands.len().max(1), 35)]);
    let mut rest = commands;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(rest.len().min(1 + dice.below(most)));
        batches.push(batch.into());
        rest = later;
    }
    batches
}
