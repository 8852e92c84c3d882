//! Limits of questions, messages, rates and counts at n and at n + 1. Those of events are in
//! `limits_events.rs`, those that depend on where someone comes from in `limits_addresses.rs`, and
//! those of waits and queues in `limits_flow.rs`.

use std::sync::Arc;

use futures_util::SinkExt;
use kukuri_relay::{Allowance, OpenGate, RelayLimits};
use kukuri_store_sqlite::SqliteStore;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::rig::{Client, Rig, limited, note, note_of, signed, signed_by, topic, until};

#[tokio::test]
async fn subscriptions_and_their_names() {
    let rig = Rig::with(limited(|l| RelayLimits { subscriptions_max: 3, ..l }), OpenGate).await;
    let mut client = rig.client().await;
    let longest = "é".repeat(64);
    for sub in ["1", "2", &longest] {
        client.request(sub, json!({"#t": [topic(1)]})).await;
    }
    client.send(json!(["REQ", "4", {"#t": [topic(1)]}])).await;
    assert!(client.closed("4").await.starts_with("error: too many subscriptions, at most 3"));
    // One of them may ask anew, and one that ends makes room.
    client.request("2", json!({"#t": [topic(1)]})).await;
    client.send(json!(["CLOSE", "1"])).await;
    client.request("4", json!({"#t": [topic(1)]})).await;
    client.send(json!(["CLOSE", "4"])).await;
    for wrong in ["", &"é".repeat(65)] {
        client.send(json!(["REQ", wrong, {"#t": [topic(1)]}])).await;
        assert!(client.closed(wrong).await.starts_with("invalid: a subscription id has 1 to 64"));
    }
}

#[tokio::test]
async fn filters_and_their_values() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let filter = json!({"#t": [topic(1)]});
    let question = |filters: Vec<Value>| {
        let mut message = vec![json!("REQ"), json!("s")];
        message.extend(filters);
        Value::Array(message)
    };
    client.send(question(vec![filter.clone(); 10])).await;
    client.until_eose("s").await;
    client.send(question(vec![filter; 11])).await;
    assert_eq!(client.closed("s").await, "invalid: too many filters, at most 10");
    let values = |count: usize| {
        let kinds: Vec<usize> = (0..count - 1).collect();
        json!({"#t": [topic(1)], "kinds": kinds})
    };
    client.request("s", values(500)).await;
    client.send(json!(["REQ", "s", values(501)])).await;
    assert_eq!(client.closed("s").await, "invalid: too many values in a filter, at most 500");
}

#[tokio::test]
async fn the_limit_of_a_filter() {
    let rig = Rig::with(limited(|l| RelayLimits { limit_max: 2, ..l }), OpenGate).await;
    let mut client = rig.client().await;
    for nth in 0..3 {
        client.publish_ok(&signed(&note(&nth.to_string()))).await;
    }
    for (limit, found) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
        let events = client.request("s", json!({"#t": [topic(1)], "limit": limit})).await;
        assert_eq!(events.len(), found, "{limit}");
    }
    assert_eq!(client.request("s", json!({"#t": [topic(1)]})).await.len(), 2);
}

#[tokio::test]
async fn the_size_of_events_and_messages() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    client.publish_ok(&signed(&note_of(64 * 1024))).await;
    client.refused(&signed(&note_of(64 * 1024 + 1)), "invalid: event too large").await;
    client.send_text(" ".repeat(128 * 1024)).await;
    assert_eq!(client.expect().await[0], "NOTICE");
    client.send_text(" ".repeat(128 * 1024 + 1)).await;
    let told = json!(["NOTICE", "invalid: a message that cannot be received"]);
    assert_eq!(client.expect().await, told);
    assert_eq!(client.next().await, None, "the connection ends");
}

/// Sends blanks as the parts of one message that never seems to end.
async fn send_in_parts(client: &mut Client, bytes: usize) {
    const PARTS: usize = 8;
    for nth in 0..PARTS {
        let kind = if nth == 0 { Data::Text } else { Data::Continue };
        let part = if nth == 0 { bytes - (PARTS - 1) * (bytes / PARTS) } else { bytes / PARTS };
        let frame = Frame::message(vec![b' '; part], OpCode::Data(kind), nth == PARTS - 1);
        // Whoever is told that this is too much may be gone before the last part.
        let _ = client.socket.send(Message::Frame(frame)).await;
    }
}

/// A message is as large as its parts together, however small each of them is.
#[tokio::test]
async fn the_size_of_a_message_in_parts() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    send_in_parts(&mut client, 128 * 1024).await;
    let told = "invalid: a message is a JSON array that begins with its name";
    assert_eq!(client.expect().await, json!(["NOTICE", told]));
    send_in_parts(&mut client, 128 * 1024 + 1).await;
    let told = json!(["NOTICE", "invalid: a message that cannot be received"]);
    assert_eq!(client.expect().await, told);
    assert_eq!(client.next().await, None, "the connection ends");
}

#[tokio::test]
async fn rows_that_a_question_may_cost() {
    // The store in memory does not count.
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = Arc::new(SqliteStore::open(directory.path(), options).unwrap());
    let config = limited(|l| RelayLimits { scan_rows_max: 3, ..l });
    let rig = Rig::over(store, config, OpenGate).await;
    let mut client = rig.client().await;
    let rare = json!({"#t": [topic(1)], "kinds": [7]});
    let elsewhere = json!({"#t": ["kukuri:global"], "kinds": [7]});
    for nth in 0..3 {
        client.publish_ok(&signed(&note(&nth.to_string()))).await;
    }
    let too_broad = "error: too broad, narrow the filters";
    assert!(client.request("s", rare.clone()).await.is_empty());
    client.send(json!(["COUNT", "s", rare])).await;
    assert_eq!(client.expect().await, json!(["COUNT", "s", {"count": 0}]));
    // All filters of a question pay from one purse.
    client.send(json!(["REQ", "s", rare, elsewhere])).await;
    assert!(client.until_eose("s").await.is_empty());
    let other = json!({"#t": [topic(1)], "kinds": [8]});
    client.send(json!(["REQ", "s", rare, other])).await;
    assert_eq!(client.closed("s").await, too_broad);
    client.publish_ok(&signed(&note("one more"))).await;
    assert_eq!(client.refused_request("t", rare.clone()).await, too_broad);
    client.send(json!(["COUNT", "t", rare])).await;
    assert_eq!(client.closed("t").await, too_broad);
}

/// The clock of these tests stands still, so a burst is all there is.
#[tokio::test]
async fn rates_of_events_requests_and_connections() {
    let once = |burst| Allowance { per_minute: 1, burst };
    let rig = Rig::with(
        limited(|l| RelayLimits {
            events_per_ip: once(4),
            events_per_pubkey: once(2),
            requests_per_ip: once(2),
            connects_per_ip: once(3),
            ..l
        }),
        OpenGate,
    )
    .await;
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    let slow_down = (false, "rate-limited: slow down".to_owned());
    one.publish_ok(&signed(&note("1"))).await;
    two.publish_ok(&signed(&note("2"))).await;
    assert_eq!(one.publish(&signed(&note("3"))).await, slow_down, "the key's burst is spent");
    two.publish_ok(&signed_by(2, &note("4"))).await;
    assert_eq!(
        one.publish(&signed_by(3, &note("5"))).await,
        slow_down,
        "the address's burst is spent"
    );
    for sub in ["1", "2"] {
        one.send(json!(["REQ", sub, {"#t": [topic(1)], "limit": 0}])).await;
        one.until_eose(sub).await;
    }
    two.send(json!(["REQ", "3", {"#t": [topic(1)]}])).await;
    assert_eq!(two.closed("3").await, "rate-limited: slow down");
    let _three = rig.client().await;
    let refused = tokio_tungstenite::connect_async(rig.url()).await.unwrap_err();
    assert!(refused.to_string().contains("429"), "{refused}");
}

#[tokio::test]
async fn connections_of_one_address_and_of_all() {
    let rig =
        Rig::with(limited(|l| RelayLimits { connections_per_ip_max: 2, ..l }), OpenGate).await;
    let (_one, two) = (rig.client().await, rig.client().await);
    let refused = tokio_tungstenite::connect_async(rig.url()).await.unwrap_err();
    assert!(refused.to_string().contains("429"), "{refused}");
    drop(two);
    until("leaving", || rig.relay.stats().connections == 1).await;
    let _three = rig.client().await;
    let rig = Rig::with(limited(|l| RelayLimits { connections_max: 1, ..l }), OpenGate).await;
    let _one = rig.client().await;
    let refused = tokio_tungstenite::connect_async(rig.url()).await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
}

/// Whoever sends someone's events again does not use up that author's rate.
#[tokio::test]
async fn an_author_pays_only_for_what_is_accepted() {
    let once = Allowance { per_minute: 1, burst: 2 };
    let rig = Rig::with(limited(|l| RelayLimits { events_per_pubkey: once, ..l }), OpenGate).await;
    let (mut author, mut other) = (rig.client().await, rig.client().await);
    let first = signed(&note("1"));
    author.publish_ok(&first).await;
    for _ in 0..5 {
        assert!(other.publish(&first).await.0);
    }
    author.publish_ok(&signed(&note("2"))).await;
    let slow_down = (false, "rate-limited: slow down".to_owned());
    assert_eq!(author.publish(&signed(&note("3"))).await, slow_down);
}
