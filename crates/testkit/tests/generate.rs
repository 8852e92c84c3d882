//! The generators: the same seed gives the same input, and the input is what it says it is.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::admission::Checked;
use kukuri_event::{Class, Event, Kind, TagLetter, UnixSeconds, Values};
use kukuri_testkit::generate::bulk::Bulk;
use kukuri_testkit::generate::{Seed, World, batches, query, script};

fn texts(world: &World) -> Vec<String> {
    world.events.iter().map(|event| event.event().to_json()).collect()
}

#[test]
fn a_seed_says_it_all() {
    let make = |seed: Seed| {
        let world = World::new(seed, 3, 30);
        let mut dice = seed.part(1).dice();
        let commands = script(&world, &mut dice, 40);
        let cut: Vec<usize> = batches(&commands, &mut dice).iter().map(|b| b.len()).collect();
        let asked = format!("{:?}", query(&world, &mut dice));
        (texts(&world), format!("{commands:?}"), cut, asked)
    };
    assert_eq!(make(Seed(1)), make(Seed(1)));
    assert_ne!(make(Seed(1)), make(Seed(2)));
}

#[test]
fn worlds_of_different_lots_share_nothing() {
    let (one, other) = (World::new(Seed(1), 0, 40), World::new(Seed(2), 1, 40));
    let (one, other) = (one.keys(), other.keys());
    assert!(one.events.is_disjoint(&other.events));
    assert!(one.versions.is_disjoint(&other.versions));
    assert!(one.tombstones.is_disjoint(&other.tombstones));
    assert!(one.topics.is_disjoint(&other.topics));
}

/// A world in which nothing meets tests nothing.
#[test]
fn everything_meets_in_a_world() {
    let world = World::new(Seed(7), 0, 300);
    let events: Vec<&Event> = world.events.iter().map(Checked::event).collect();
    let classes = |class| events.iter().filter(|event| event.kind().class() == class).count();
    for class in [Class::Regular, Class::Replaceable, Class::Addressable, Class::Ephemeral] {
        assert!(classes(class) > 3, "{class:?}");
    }
    let ids: BTreeSet<_> = events.iter().map(|event| event.id()).collect();
    let requests = events.iter().filter(|event| event.kind() == Kind::DELETION);
    let (by_id, by_address): (usize, usize) = requests
        .map(|request| {
            let known = request.tags().event_ids().filter(|id| ids.contains(id)).count();
            let own = request.tags().addresses().filter(|a| a.pubkey == request.pubkey()).count();
            (known, own)
        })
        .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    assert!(by_id > 30 && by_address > 20, "{by_id} by id, {by_address} by address");
    let expiring = events.iter().filter(|event| event.tags().expiration().is_some()).count();
    assert!(expiring > 20, "{expiring} expire");
    let long = events.iter().filter(|event| event.tags().letters().any(|(_, v)| v.len() > 255));
    assert!(long.count() > 5);
}

#[test]
fn filters_take_every_shape() {
    let world = World::new(Seed(7), 0, 30);
    let mut dice = Seed(7).dice();
    let mut shapes = BTreeSet::new();
    for _ in 0..500 {
        let asked = query(&world, &mut dice);
        shapes.insert(format!("{} filters", asked.filters.len()));
        for filter in asked.filters {
            let present = [
                ("ids", filter.ids.as_ref().map(Values::len)),
                ("authors", filter.authors.as_ref().map(Values::len)),
                ("kinds", filter.kinds.as_ref().map(Values::len)),
                ("topics", filter.topics().map(Values::len)),
                ("since", filter.since.map(|_| 1)),
                ("until", filter.until.map(|_| 1)),
                ("limit", filter.limit.map(|limit| limit.min(1))),
            ];
            for (name, length) in present {
                shapes.extend(length.map(|length| format!("{name} {}", length.min(1))));
            }
            let letters = filter.tags.iter().map(|(letter, _)| letter.as_char());
            shapes.extend(letters.map(|letter| format!("#{letter}")));
        }
    }
    for shape in [
        "0 filters",
        "1 filters",
        "2 filters",
        "3 filters",
        "ids 0",
        "ids 1",
        "authors 0",
        "authors 1",
        "kinds 0",
        "kinds 1",
        "topics 0",
        "topics 1",
        "since 1",
        "until 1",
        "limit 0",
        "limit 1",
        "#e",
        "#p",
        "#d",
        "#r",
        "#E",
    ] {
        assert!(shapes.contains(shape), "no filter has {shape}: {shapes:?}");
    }
}

fn bulk(events: usize) -> Bulk {
    Bulk::standard(Seed(5), events, UnixSeconds(1_700_000_000))
}

#[test]
fn bulk_events_are_valid_and_always_the_same() {
    let lines = bulk(2_500).lines();
    assert_eq!(lines.len(), 2_500);
    assert_eq!(lines, bulk(2_500).lines());
    let mut ids = BTreeSet::new();
    let mut last = UnixSeconds(0);
    for line in &lines {
        let event = Event::parse(line).expect("it is an event");
        assert!(event.created_at() >= last, "oldest first");
        last = event.created_at();
        ids.insert(event.id());
        let checked = event.identify().expect("the id is right").verify();
        checked.expect("the signature holds");
    }
    assert_eq!(ids.len(), lines.len(), "each once");
    assert_eq!(last, UnixSeconds(1_700_000_000));
}

#[test]
fn bulk_events_are_spread_as_people_spread_them() {
    let lines = bulk(10_000).lines();
    let events: Vec<Event> =
        lines.iter().map(|line| Event::parse(line).expect("an event")).collect();
    let mut topics: BTreeMap<&str, usize> = BTreeMap::new();
    let mut links = 0;
    for event in &events {
        *topics.entry(event.tags().values("t").next().expect("a topic")).or_default() += 1;
        let linking = ["e", "p"].map(|name| TagLetter::parse(name).expect("a letter"));
        links += event.tags().letters().filter(|(letter, _)| linking.contains(letter)).count();
    }
    let (first, tenth) = (topics[bulk(1).topic(0).as_str()], topics[bulk(1).topic(9).as_str()]);
    assert!((7..14).contains(&(first / tenth)), "{first} in the first topic, {tenth} in the tenth");
    assert!((18_000..22_000).contains(&links), "{links} e and p tags");
    let authors: BTreeSet<_> = events.iter().map(Event::pubkey).collect();
    assert!(authors.len() > 4_000, "{} authors", authors.len());
    let bytes: usize = events.iter().map(|event| event.to_json().len()).sum();
    println!("{} bytes per event, {} topics", bytes / events.len(), topics.len());
}
