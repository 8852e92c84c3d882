//! Connections are cut in the middle of what is being said, many times, while events are published:
//! in the end each subscription has seen every matching event exactly once.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kukuri_client::{Client, Item, PublishError, Subscription};
use kukuri_core::Record;
use kukuri_event::{Event, EventId, Filter, TagLetter, Values};
use kukuri_relay::AuthPolicy;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::delivery;
use kukuri_testkit::generate::{Dice, Seed, World, group_in_topics};
use tokio::task::JoinSet;

use crate::proxy::Proxy;
use crate::rig::{Rig, client_config, next};

const EVENTS: usize = 1_000;
/// Events that say to be old. Whoever went on by the time of events would miss them.
const LATE_EVENTS: usize = 200;
const LATE_SECONDS_MAX: i64 = 100_000;
/// How many events are there before anyone asks.
const EVENTS_BEFORE: usize = 300;
const READERS: u64 = 2;
/// As many as a relay allows on one connection, and no more.
const SUBSCRIPTIONS_EACH: usize = 32;
const IN_FLIGHT: usize = 24;
const CUTS_MIN: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_once_through_cuts_on_sqlite() {
    let seed = Seed::of_run("-p kukuri-client every_event_once_through_cuts_on_sqlite");
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = SqliteStore::open(directory.path(), options).unwrap();
    run(Arc::new(store), seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_once_through_cuts_in_memory() {
    let seed = Seed::of_run("-p kukuri-client every_event_once_through_cuts_in_memory");
    run(Arc::new(Model::default()), seed).await;
}

async fn run(store: Arc<dyn Store>, seed: Seed) {
    let world = World::new(seed, 0, EVENTS);
    let rig = Rig::over(Arc::clone(&store), &world.topics, AuthPolicy::OFF).await;
    let proxy = Proxy::start(rig.address, seed.part(1)).await;
    let events = events(&world, &mut seed.part(2).dice());
    let (before, after) = events.split_at(EVENTS_BEFORE);
    let steady = rig.client().await;
    publish(&steady, before).await;
    let writer = Client::connect(&proxy.url(), client_config()).await.unwrap();
    proxy.begin_cutting();
    let marker = marker(&world);
    let (mut readers, mut reading) = (Vec::new(), JoinSet::new());
    for nth in 0..READERS {
        let mut dice = seed.part(10 + nth).dice();
        let reader = connect(&proxy).await;
        for _ in 0..SUBSCRIPTIONS_EACH {
            let filters = filters(&world, &marker, &mut dice);
            let subscription = reader.subscribe(filters.clone()).await.unwrap();
            reading.spawn(read(subscription, filters, marker.id()));
        }
        readers.push(reader);
    }
    publish(&writer, after).await;
    let cuts = proxy.cuts();
    proxy.end_cutting();
    println!("{cuts} connections were cut in the middle of what was being said");
    assert!(cuts >= CUTS_MIN, "only {cuts} cuts");
    steady.publish(&marker).await.unwrap();
    let records = delivery::records(&*store, events.iter().map(Event::id)).await.unwrap();
    let mut noticed = 0;
    for (filters, given) in reading.join_all().await {
        delivery::judge(&records, &filters, &given, World::NOW).unwrap();
        noticed += usize::from(faults_are_noticed(&records, &filters, given));
    }
    assert!(noticed > 0, "no subscription was given anything that could have been lost");
}

/// Whether the judge would have noticed the first of the events twice, and not at all.
fn faults_are_noticed(records: &[Record], filters: &[Filter], mut given: Vec<EventId>) -> bool {
    let noticed = |given: &[EventId]| delivery::judge(records, filters, given, World::NOW).is_err();
    let Some(first) = given.first().copied() else { return false };
    given.push(first);
    let twice = noticed(&given);
    given.retain(|id| *id != first);
    twice && noticed(&given)
}

/// Those of the world, and late ones among them.
fn events(world: &World, dice: &mut Dice) -> Vec<Event> {
    let mut events: Vec<Event> = world.events.iter().map(|event| event.event().clone()).collect();
    for nth in 0..LATE_EVENTS {
        let created_at = World::NOW.saturating_sub(dice.range(0..LATE_SECONDS_MAX));
        let draft = Draft::new(1, created_at).tag("t", dice.pick(&world.topics));
        let text = dice.pick(&world.authors).sign(&draft.content(nth.to_string()));
        events.push(Event::parse(&text).unwrap());
    }
    dice.shuffle(&mut events);
    events
}

/// The first connection is not mended by itself, and may be cut as well.
async fn connect(proxy: &Proxy) -> Client {
    loop {
        if let Ok(client) = Client::connect(&proxy.url(), client_config()).await {
            return client;
        }
    }
}

/// Many at a time. What the rules refuse is refused, but everything is answered.
async fn publish(client: &Client, events: &[Event]) {
    let answers = stream::iter(events).map(|event| client.publish(event));
    let mut answers = answers.buffer_unordered(IN_FLIGHT);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(_) | Err(PublishError::Refused { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// An event that every subscription asks for, and that is published last.
fn marker(world: &World) -> Event {
    let draft = Draft::new(1, World::NOW).tag("t", &world.topics[0]).content("the last one");
    Event::parse(&Author::numbered(999).sign(&draft)).unwrap()
}

/// A random question to topics that are carried, and for the marker.
fn filters(world: &World, marker: &Event, dice: &mut Dice) -> Vec<Filter> {
    let topics: Values<String> = world.topics.iter().map(ToString::to_string).collect();
    let tags = [(TagLetter::TOPIC, topics.clone())].into_iter().collect();
    let marked = Filter { ids: Some([marker.id()].into()), tags, ..Filter::default() };
    loop {
        let mut filters = group_in_topics(world, dice);
        filters.push(marked.clone());
        let mut named = filters.iter().filter_map(Filter::topics).flatten();
        if named.all(|topic| topics.contains(topic.as_str())) {
            return filters;
        }
    }
}

/// Everything up to the marker, in the right order.
async fn read(
    mut subscription: Subscription,
    filters: Vec<Filter>,
    marker: EventId,
) -> (Vec<Filter>, Vec<EventId>) {
    let (mut given, mut eose, mut marked) = (Vec::new(), false, false);
    while !(eose && marked) {
        let id = match next(&mut subscription).await {
            Item::Stored(event) if !eose => event.id(),
            Item::Live(event) if eose => event.id(),
            Item::Eose if !eose => {
                eose = true;
                continue;
            }
            other => panic!("out of order: {other:?}"),
        };
        marked |= id == marker;
        given.extend((id != marker).then_some(id));
    }
    (filters, given)
}
