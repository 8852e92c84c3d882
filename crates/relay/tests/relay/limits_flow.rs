//! Limits of waits and queues, at n and at n + 1. How far a client may fall behind is in `slow.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kukuri_relay::{Allowance, OpenGate, RelayLimits};
use kukuri_store::Model;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::held::Held;
use crate::rig::{Client, Rig, Time, limited, note, signed, topic, until};

/// Bodies large enough to fill what the kernel keeps for a socket.
const CONTENT_BYTES: usize = 40_000;
const EVENTS: usize = 400;

/// Three events may wait for their answers. The fourth stays in the socket until one has been
/// answered, and loses nothing by it.
#[tokio::test]
async fn so_many_events_wait_for_their_answer_and_no_more() {
    let store = Held::new(1000);
    let config = limited(|l| RelayLimits { in_flight_events_max: 3, ..l });
    let rig = Rig::over(store.clone(), config, OpenGate).await;
    let (mut writer, mut other) = (rig.client().await, rig.client().await);
    let events: Vec<Value> = (0..4).map(|nth| signed(&note(&nth.to_string()))).collect();
    for event in &events {
        writer.send(json!(["EVENT", event])).await;
    }
    until("three are read", || rig.relay.stats().messages >= 3).await;
    // Others are heard all the while, in which the fourth would have been read as well.
    const ROUNDS: u64 = 100;
    for _ in 0..ROUNDS {
        other.nothing_more().await;
    }
    assert_eq!(rig.relay.stats().messages, 3 + ROUNDS);
    store.commits.add_permits(1);
    assert_eq!(writer.expect().await, json!(["OK", events[0]["id"], true, ""]));
    until("the fourth is read", || rig.relay.stats().messages == 4 + ROUNDS).await;
    store.commits.add_permits(events.len());
    for event in &events[1..] {
        assert_eq!(writer.expect().await, json!(["OK", event["id"], true, ""]));
    }
}

async fn publish_large(rig: &Rig, events: usize) {
    let mut writer = rig.client().await;
    for nth in 0..events {
        let content = format!("{nth} {}", "x".repeat(CONTENT_BYTES));
        writer.publish_ok(&signed(&note(&content))).await;
    }
}

/// What waits to be sent grows to its limit and by one event beyond it, however long the answer is.
#[tokio::test]
async fn so_much_waits_to_be_sent_and_no_more() {
    const BYTES_MAX: usize = 256 * 1024;
    /// What an event has besides its content, and a frame besides its event.
    const AROUND_BYTES_MAX: usize = 1_000;
    let config = limited(|l| RelayLimits { outbound_bytes_max: BYTES_MAX, ..l });
    let rig = Rig::with(config, OpenGate).await;
    publish_large(&rig, 100).await;
    let mut reader = rig.client().await;
    assert_eq!(reader.request("s", json!({"#t": [topic(1)]})).await.len(), 100);
    drop(reader);
    until("leaving", || rig.relay.stats().connections == 0).await;
    let peak = usize::try_from(rig.relay.stats().outbound_bytes_peak).unwrap();
    let bound = BYTES_MAX + CONTENT_BYTES + AROUND_BYTES_MAX;
    assert!((BYTES_MAX..bound).contains(&peak), "{peak} bytes waited");
}

/// A connection that takes nothing any more is given up, and another one does not notice.
#[tokio::test]
async fn who_takes_nothing_for_too_long_is_let_go() {
    let config = limited(|l| RelayLimits { stall_wait_max: Duration::from_millis(500), ..l });
    let rig = Rig::with(config, OpenGate).await;
    publish_large(&rig, EVENTS).await;
    until("the writer leaves", || rig.relay.stats().connections == 0).await;
    let (mut reading, mut stalled) = (rig.client().await, rig.narrow_client().await);
    reading.request("s", json!({"#t": [topic(1)], "limit": 0})).await;
    stalled.send(json!(["REQ", "s", {"#t": [topic(1)]}])).await;
    until("the question is read", || rig.relay.stats().requests == 2).await;
    until("letting go", || rig.relay.stats().connections == 1).await;
    let event = signed(&note("still here"));
    rig.client().await.publish_ok(&event).await;
    assert_eq!(reading.expect().await, json!(["EVENT", "s", event]));
    let mut heard = 0;
    while let Some(message) = stalled.next().await {
        assert_eq!(message[0], "EVENT");
        heard += 1;
    }
    assert!(heard < EVENTS, "it had everything before it was let go");
}

/// Whoever answers no ping is gone, whatever the socket says; whoever answers stays, with nothing
/// else to say.
#[tokio::test]
async fn who_answers_no_ping_is_let_go() {
    let config = limited(|l| RelayLimits { ping_interval: Duration::from_millis(100), ..l });
    let rig = Rig::with(config, OpenGate).await;
    // The library answers pings while it is asked for messages, and the other is not.
    let (mut answering, _deaf) = (rig.client().await, rig.client().await);
    assert_eq!(rig.relay.stats().connections, 2);
    let mut pings = 0;
    tokio::select! {
        () = until("letting go", || rig.relay.stats().connections == 1) => {}
        () = answer_pings(&mut answering, &mut pings) => {}
    }
    assert!(pings > 3, "{pings} pings were answered");
    answering.publish_ok(&signed(&note("still here"))).await;
}

async fn answer_pings(client: &mut Client, pings: &mut u32) {
    while let Some(message) = client.socket.next().await {
        assert!(matches!(message, Ok(Message::Ping(_))), "{message:?}");
        *pings += 1;
    }
}

/// A connection becomes a WebSocket in time or is closed, whether it says nothing or never comes to
/// an end; one that has become a WebSocket has all the time in the world.
#[tokio::test]
async fn who_does_not_come_to_the_point_is_let_go() {
    let wait = Duration::from_secs(2);
    let config = limited(|l| RelayLimits { handshake_wait_max: wait, ..l });
    let rig = Rig::with(config, OpenGate).await;
    let mut client = rig.client().await;
    let mut silent = rig.stream_from([127, 0, 0, 1]).await;
    let mut rambling = rig.stream_from([127, 0, 0, 1]).await;
    rambling.write_all(b"GET / HTTP/1.1\r\nHost: relay\r\nX-And").await.unwrap();
    for stream in [&mut silent, &mut rambling] {
        let mut answer = String::new();
        // Closed with or without a word about it.
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    client.publish_ok(&signed(&note("still here"))).await;
}

/// What was used of an allowance comes back with time, one by one, up to a burst.
#[tokio::test]
async fn allowances_come_back() {
    let two = Allowance { per_minute: 2, burst: 2 };
    let config = limited(|l| RelayLimits { events_per_ip: two, requests_per_ip: two, ..l });
    let time = Time::stopped();
    let rig = Rig::at(time.clock(), Arc::new(Model::default()), config, OpenGate).await;
    let mut client = rig.client().await;
    let mut contents = 0..;
    // After so many seconds there are so many again.
    for (seconds, allowed) in [(0, 2), (29, 0), (1, 1), (30, 1), (600, 2)] {
        time.advance(seconds);
        for nth in 0..=allowed {
            let event = signed(&note(&contents.next().unwrap().to_string()));
            assert_eq!(client.publish(&event).await.0, nth < allowed, "{nth} after {seconds}");
            client.send(json!(["REQ", "s", {"#t": [topic(1)], "kinds": [7]}])).await;
            let answer = client.expect().await;
            assert_eq!(answer[0] == "EOSE", nth < allowed, "{nth} after {seconds}: {answer}");
        }
    }
}
