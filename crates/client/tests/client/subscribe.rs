//! Subscriptions on a connection that holds.

use kukuri_client::{Closing, Item};
use kukuri_event::{Event, Filter};
use kukuri_relay::AuthPolicy;

use crate::rig::{Rig, all, ends, live, next, note, stored, until};

#[tokio::test]
async fn stored_then_eose_then_live() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let (writer, reader) = (rig.client().await, rig.client().await);
    let events: Vec<Event> = (0..6).map(|nth| note(&nth.to_string())).collect();
    for event in &events[..3] {
        writer.publish(event).await.unwrap();
    }
    let mut subscription = reader.subscribe(all()).await.unwrap();
    let mut first = Vec::new();
    for _ in 0..3 {
        first.push(next(&mut subscription).await);
    }
    for event in &events[..3] {
        assert!(first.contains(&stored(event)));
    }
    assert_eq!(next(&mut subscription).await, Item::Eose);
    for event in &events[3..] {
        writer.publish(event).await.unwrap();
        assert_eq!(next(&mut subscription).await, live(event));
    }
    // Whoever subscribes by the same client learns nothing twice either.
    let newest = Filter { limit: Some(1), ..all().remove(0) };
    let mut second = reader.subscribe(vec![newest]).await.unwrap();
    assert!(matches!(next(&mut second).await, Item::Stored(_)));
    assert_eq!(next(&mut second).await, Item::Eose);
    let more = note("more");
    writer.publish(&more).await.unwrap();
    assert_eq!(next(&mut second).await, live(&more));
    assert_eq!(next(&mut subscription).await, live(&more));
}

#[tokio::test]
async fn a_subscription_that_is_closed_is_closed_on_the_relay() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let client = rig.client().await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    assert_eq!(next(&mut subscription).await, Item::Eose);
    until("following", || rig.fanout.stats().subscriptions == 1).await;
    subscription.close();
    until("detaching", || rig.fanout.stats().subscriptions == 0).await;
    assert_eq!(rig.relay.stats().connections, 1);
}

#[tokio::test]
async fn a_subscription_that_the_relay_refuses_says_why_and_ends() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let client = rig.client().await;
    let mut subscription = client.subscribe(vec![Filter::default()]).await.unwrap();
    match next(&mut subscription).await {
        Item::Closed(Closing::Relay(reason)) => assert_eq!(reason.text(), "invalid: missing #t"),
        other => panic!("{other:?}"),
    }
    ends(subscription).await;
}
