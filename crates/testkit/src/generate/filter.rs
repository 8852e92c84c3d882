//! Random questions about a world.

use std::cmp::Reverse;

use kukuri_event::{EventId, Filter, Kind, TagLetter};
use kukuri_store::{Order, Query};

use super::draft::{D_VALUES, second, tag_values};
use super::{Dice, World};

/// A query whose filters take every shape: each condition present or not, with values that exist and
/// values that do not, and limits that cut in the middle of ties.
pub fn query(world: &World, dice: &mut Dice) -> Query {
    let filters = dice.weigh(&[(1, 70), (2, 15), (3, 10), (0, 5)]);
    Query {
        filters: (0..filters).map(|_| filter(world, dice)).collect(),
        after: dice.chance(25).then(|| place(world, dice)),
        now: World::NOW.saturating_add(dice.range(-2..15)),
        limit_max: dice.weigh(&[(500, 80), (3, 15), (0, 5)]),
        rows_max: 100_000,
        bodies_max: dice.weigh(&[(500, 60), (2, 20), (0, 20)]),
    }
}

/// The place of an event, or one between events.
fn place(world: &World, dice: &mut Dice) -> Order {
    let event = dice.pick(&world.events).event();
    match dice.chance(80) {
        true => Order(Reverse(event.created_at()), event.id()),
        false => Order(Reverse(second(dice)), EventId::from_bytes(dice.bytes())),
    }
}

/// A group of one or more filters, without limits: everything that matches is wanted.
pub fn group(world: &World, dice: &mut Dice) -> Vec<Filter> {
    let filters = dice.weigh(&[(1, 70), (2, 20), (3, 10)]);
    let unlimited = |filter| Filter { limit: None, ..filter };
    (0..filters).map(|_| unlimited(filter(world, dice))).collect()
}

/// A group as a relay takes it: each filter names topics, all of the world's if no others.
pub fn group_in_topics(world: &World, dice: &mut Dice) -> Vec<Filter> {
    let mut filters = group(world, dice);
    for filter in &mut filters {
        if filter.topics().is_none_or(|named| named.is_empty()) {
            let topics = world.topics.iter().map(ToString::to_string).collect();
            filter.tags.insert(TagLetter::TOPIC, topics);
        }
    }
    filters
}

fn filter(world: &World, dice: &mut Dice) -> Filter {
    let mut filter = Filter::default();
    if dice.chance(12) {
        filter.ids = Some(list(dice, |dice| match dice.chance(90) {
            true => dice.pick(&world.events).event().id(),
            false => EventId::from_bytes(dice.bytes()),
        }));
    }
    if dice.chance(30) {
        filter.authors = Some(list(dice, |dice| dice.pick(&world.authors).pubkey()));
    }
    if dice.chance(35) {
        filter.kinds = Some(list(dice, |dice| Kind(*dice.pick(&[0, 1, 3, 5, 7, 10_002, 30_023]))));
    }
    for (name, percent) in [("t", 60), ("e", 15), ("p", 10), ("d", 10), ("r", 12), ("E", 6)] {
        if dice.chance(percent) {
            let letter = TagLetter::parse(name).expect("it is a letter");
            filter.tags.insert(letter, list(dice, |dice| value(world, dice, name)));
        }
    }
    filter.since = dice.chance(15).then(|| second(dice));
    filter.until = dice.chance(15).then(|| second(dice));
    filter.limit = dice.chance(50).then(|| dice.below(5));
    filter
}

fn value(world: &World, dice: &mut Dice, name: &str) -> String {
    match name {
        "t" if dice.chance(5) => "hashtag".to_owned(),
        "t" => dice.pick(&world.topics).to_string(),
        "e" => dice.pick(&world.events).event().id().to_hex(),
        "p" => dice.pick(&world.authors).pubkey().to_hex(),
        "d" => (*dice.pick(&D_VALUES)).to_owned(),
        _ => dice.pick(&tag_values()).clone(),
    }
}

/// One to three values, rarely none.
fn list<T: Ord, C: FromIterator<T>>(dice: &mut Dice, mut one: impl FnMut(&mut Dice) -> T) -> C {
    let count = dice.weigh(&[(1, 55), (2, 30), (3, 12), (0, 3)]);
    (0..count).map(|_| one(dice)).collect()
}
