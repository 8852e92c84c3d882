//! Publishing, and the life of a client.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use kukuri_client::{
    Client, ClientConfig, ConnectError, Prefix, PublishError, SUBSCRIPTIONS_MAX, SubscribeError,
};
use kukuri_relay::AuthPolicy;
use kukuri_store::conformance::signing::Draft;
use kukuri_testkit::generate::World;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::accept_async;

use crate::rig::{Rig, WAIT_MAX, all, client_config, ends, note, signed, until, url};

#[tokio::test]
async fn an_event_is_taken_or_refused_with_a_reason() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let client = rig.client().await;
    let event = note("one");
    let published = client.publish(&event).await.unwrap();
    assert_eq!((published.id, published.message.text()), (event.id(), ""));
    let again = client.publish_json(&event.to_json()).await.unwrap();
    assert_eq!(again.message.prefix(), Prefix::Duplicate);
    let topicless = signed(&Draft::new(1, World::NOW));
    match client.publish(&topicless).await {
        Err(PublishError::Refused { id, reason }) => {
            assert_eq!((id, reason.prefix()), (topicless.id(), Prefix::Invalid), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.publish_json("{}").await, Err(PublishError::Event(_))));
}

/// More than may be in flight at once.
#[tokio::test]
async fn publishes_share_a_connection() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let client = rig.client().await;
    let events: Vec<_> = (0..600).map(|nth| note(&nth.to_string())).collect();
    let answers = join_all(events.iter().map(|event| client.publish(event))).await;
    for (event, answer) in events.iter().zip(answers) {
        assert_eq!(answer.unwrap().id, event.id());
    }
}

/// A relay that takes connections and says nothing.
#[tokio::test]
async fn a_relay_that_does_not_answer_is_not_waited_for_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let wait = Duration::from_millis(50);
    let config = ClientConfig { connect_wait_max: wait, ..client_config() };
    let silent = url(listener.local_addr().unwrap());
    let error = Client::connect(&silent, config).await.err().unwrap();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    drop(listener);
    let error = Client::connect(&silent, client_config()).await.err().unwrap();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    for (url, tls) in [("nonsense", false), ("wss://127.0.0.1:1", true)] {
        let error = Client::connect(url, client_config()).await.err().unwrap();
        assert_eq!(matches!(error, ConnectError::Tls { .. }), tls, "{error}");
        assert_eq!(matches!(error, ConnectError::Url { .. }), !tls, "{error}");
    }
}

/// The relay goes away for good while an event waits for its answer.
#[tokio::test]
async fn an_answer_that_never_comes_is_an_error_in_time() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let wait = Duration::from_millis(100);
    let config = ClientConfig { publish_wait_max: wait, ..client_config() };
    let client = Client::connect(&rig.url(), config).await.unwrap();
    let relay = rig.relay.clone();
    drop(rig);
    relay.close().await;
    let event = note("late");
    let error = client.publish(&event).await.unwrap_err();
    assert_eq!(error, PublishError::Unanswered { id: event.id(), waited: wait });
}

#[tokio::test]
async fn closing_or_dropping_a_client_ends_all_it_had() {
    let rig = Rig::start(AuthPolicy::OFF).await;
    let (closed, dropped) = (rig.client().await, rig.client().await);
    let subscriptions =
        [closed.subscribe(all()).await.unwrap(), dropped.subscribe(all()).await.unwrap()];
    closed.close().await;
    drop(dropped);
    for mut subscription in subscriptions {
        // What was shown before may still be there.
        while subscription.waiting() > 0 {
            subscription.next().await.unwrap();
        }
        ends(subscription).await;
    }
    until("hanging up", || rig.relay.stats().connections == 0).await;
    until("detaching", || rig.fanout.stats().subscriptions == 0).await;
}

/// A relay that answers no question, so that none of them ends by itself.
#[tokio::test]
async fn subscriptions_have_a_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(listener.local_addr().unwrap());
    let mut silent = tokio::task::JoinSet::new();
    silent.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    });
    let client = Client::connect(&url, client_config()).await.unwrap();
    assert_eq!(client.subscribe(Vec::new()).await.err(), Some(SubscribeError::NoFilters));
    let mut open = Vec::new();
    for _ in 0..SUBSCRIPTIONS_MAX {
        open.push(client.subscribe(all()).await.unwrap());
    }
    assert_eq!(client.subscribe(all()).await.err(), Some(SubscribeError::TooMany));
    open.pop();
    let room = async {
        while client.subscribe(all()).await.is_err() {
            // Being refused takes no time, and others need some.
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT_MAX, room).await.expect("room for one more");
}
