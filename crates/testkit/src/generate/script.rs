//! Random sequences of commands over a world, and random splits of them into batches.

use std::sync::Arc;

use kukuri_core::{Act, Allowance, Command, Sighting, TopicId, UnixMillis, UnlinkReason};

use super::{Dice, World, upkeep};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

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
    Allow,
    Climb,
    SetStorage,
    Evict,
    Forget,
    Trim,
    Hold,
}

const MOVES: &[(Move, u32)] = &[
    (Move::Publish, 70),
    (Move::SetTopic, 8),
    (Move::Unlink, 7),
    (Move::Retire, 3),
    (Move::RemoveTopic, 2),
    (Move::Expire, 6),
    (Move::Sightings, 4),
    (Move::Allow, 2),
    (Move::Climb, 1),
    (Move::SetStorage, 1),
    (Move::Evict, 2),
    (Move::Forget, 2),
    (Move::Trim, 1),
    (Move::Hold, 3),
];

/// How often the node's own acts are done under a lease.
const FENCED_PERCENT: u32 = 15;

/// About `count` commands, after some of the topics are enabled.
pub fn script(world: &World, dice: &mut Dice, count: usize) -> Vec<Command> {
    // What the node allows is left from whoever had the store before.
    let mut acts = vec![Act::Allow(Allowance::STANDARD)];
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
            Move::Unlink => acts.push(upkeep::unlink(world, dice)),
            Move::Retire => retire(world, dice, &mut acts),
            Move::RemoveTopic => acts.push(Act::RemoveTopic(dice.pick(&world.topics).clone())),
            Move::Expire => acts.push(expire(world, dice)),
            Move::Sightings => acts.push(sightings(world, dice)),
            Move::Allow => acts.push(upkeep::allow(dice)),
            Move::Climb => acts.push(upkeep::climb(dice)),
            Move::SetStorage => acts.push(upkeep::set_storage(dice)),
            Move::Evict => acts.push(upkeep::evict(world, dice)),
            Move::Forget => acts.push(upkeep::forget(world, dice)),
            Move::Trim => acts.push(upkeep::trim(dice)),
            Move::Hold => acts.push(upkeep::hold(dice)),
        }
        let last = acts.last();
        let own = last.is_some_and(|act| !matches!(act, Act::Publish(_) | Act::Fenced { .. }));
        if own && dice.chance(FENCED_PERCENT) {
            acts.pop().into_iter().for_each(|act| acts.push(upkeep::fenced(act, dice)));
        }
    }
    stamp(acts, dice)
}

/// As [`script`], with the feed left whole: for who reads it from its beginning.
pub fn untrimmed(world: &World, dice: &mut Dice, count: usize) -> Vec<Command> {
    let mut commands = script(world, dice, count);
    commands.retain(|command| !trims(&command.act));
    commands
}

fn trims(act: &Act) -> bool {
    match act {
        Act::Trim(_) => true,
        Act::Fenced { act, .. } => trims(act),
        _ => false,
    }
}

/// A clock that mostly creeps, sometimes leaps past expirations, rarely past retentions, and sometimes
/// goes back.
fn stamp(acts: Vec<Act>, dice: &mut Dice) -> Vec<Command> {
    let mut at = World::now();
    let stamped = acts.into_iter().map(|act| {
        at.0 += dice.weigh(&[
            (0, 30),
            (1, 20),
            (700, 40),
            (5_000, 5),
            (-1_500, 5),
            (8 * DAY_MS, 1),
            (31 * DAY_MS, 1),
        ]);
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
        ingest_policy: upkeep::policy(dice),
    }
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
