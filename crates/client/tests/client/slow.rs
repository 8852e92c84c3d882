//! Readers that do not read.

use futures_util::future::join_all;
use kukuri_client::{Client, ClientConfig, Item};
use kukuri_event::Event;
use kukuri_relay::AuthPolicy;

use crate::rig::{Rig, all, client_config, live, next, note, until};

const ITEMS_MAX: usize = 16;
const EVENTS: usize = 400;

/// A subscription that is not read holds a bounded number of items, delays neither publishes nor
/// other subscriptions of the same client, and misses nothing.
#[tokio::test]
async fn a_subscription_that_is_not_read_is_bounded_and_misses_nothing() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let config = ClientConfig { items_max: ITEMS_MAX, ..client_config() };
    let client = Client::connect(&rig.url(), config).await.unwrap();
    let mut slow = client.subscribe(all()).await.unwrap();
    let mut quick = client.subscribe(all()).await.unwrap();
    assert_eq!(next(&mut quick).await, Item::Eose);
    let events: Vec<Event> = (0..EVENTS).map(|nth| note(&nth.to_string())).collect();
    for event in &events {
        client.publish(event).await.unwrap();
        assert_eq!(next(&mut quick).await, live(event));
        assert!(slow.waiting() <= ITEMS_MAX);
    }
    // It is not even asked for on the wire.
    until("taking it back", || rig.fanout.stats().subscriptions == 1).await;
    assert_eq!(slow.waiting(), ITEMS_MAX);
    assert_eq!(next(&mut slow).await, Item::Eose);
    for event in &events {
        assert_eq!(next(&mut slow).await, live(event));
    }
    let more = note("more");
    client.publish(&more).await.unwrap();
    assert_eq!(next(&mut slow).await, live(&more));
}

/// The same with what is stored, which comes newest first and has no cursors.
#[tokio::test]
async fn stored_events_that_are_not_read_come_once() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let config = ClientConfig { items_max: ITEMS_MAX, ..client_config() };
    let client = Client::connect(&rig.url(), config).await.unwrap();
    let events: Vec<Event> = (0..EVENTS).map(|nth| note(&nth.to_string())).collect();
    join_all(events.iter().map(|event| client.publish(event))).await;
    let mut slow = client.subscribe(all()).await.unwrap();
    until("filling up", || slow.waiting() == ITEMS_MAX).await;
    client.publish(&note("meanwhile")).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < EVENTS + 1 {
        match next(&mut slow).await {
            Item::Stored(event) | Item::Live(event) => seen.push(event.id()),
            Item::Eose => {}
            Item::Closed(why) => panic!("{why}"),
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), EVENTS + 1);
}
