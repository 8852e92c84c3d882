//! Clients that do not read.

use kukuri_relay::{OpenGate, RelayLimits};
use serde_json::json;

use crate::rig::{Client, Rig, id, limited, note, signed, topic, until};

/// Bodies large enough to fill what the kernel keeps for a socket.
const CONTENT_BYTES: usize = 40_000;
const EVENTS: usize = 400;

/// A client that stops reading delays nobody and, when it reads again, has missed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_pauses_misses_nothing_and_delays_nobody() {
    let rig = Rig::start().await;
    let (mut writer, mut healthy, mut paused) =
        (rig.client().await, rig.client().await, rig.client().await);
    let filter = json!({"#t": [topic(1)]});
    healthy.request("h", filter.clone()).await;
    paused.request("p", filter).await;
    let mut expected = Vec::new();
    for nth in 0..EVENTS {
        let content = format!("{nth} {}", "x".repeat(CONTENT_BYTES));
        let event = signed(&note(&content));
        writer.publish_ok(&event).await;
        assert_eq!(healthy.expect().await, json!(["EVENT", "h", event]));
        expected.push(id(&event));
    }
    assert!(rig.fanout.stats().overflows > 0, "the mailbox of the paused client was never full");
    let mut seen = Vec::new();
    while seen.len() < EVENTS {
        seen.push(id(&paused.expect().await[2]));
    }
    assert_eq!(seen, expected);
    paused.nothing_more().await;
}

const LAG_ROWS_MAX: i64 = 50;

/// A client that reads nothing until so many events have found no room, and what was published.
async fn behind_by(rows: i64) -> (Rig, Client, Vec<String>) {
    let limits = |l| RelayLimits { lag_rows_max: LAG_ROWS_MAX, ..l };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let (mut writer, mut paused) = (rig.client().await, rig.client().await);
    paused.request("p", json!({"#t": [topic(1)]})).await;
    let (mut sent, mut more) = (Vec::new(), None);
    // The first event for which there is no room is the first that is missing.
    while more != Some(0) {
        let content = format!("{} {}", sent.len(), "x".repeat(CONTENT_BYTES));
        let event = signed(&note(&content));
        let before = rig.fanout.stats();
        writer.publish_ok(&event).await;
        until("following", || rig.fanout.stats().position > before.position).await;
        sent.push(id(&event));
        let full = rig.fanout.stats().overflows > 0;
        more = more.map(|more| more - 1).or(full.then_some(rows - 1));
    }
    (rig, paused, sent)
}

/// One that is as far behind as it may be stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_just_not_too_slow_stays() {
    let (rig, mut paused, sent) = behind_by(LAG_ROWS_MAX).await;
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        seen.push(id(&paused.expect().await[2]));
    }
    assert_eq!(seen, sent);
    assert_eq!(rig.relay.stats().subscriptions_too_slow, 0);
}

/// One row further, and it does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_one_row_too_slow_is_closed() {
    let (rig, mut paused, _) = behind_by(LAG_ROWS_MAX + 1).await;
    until("falling behind", || rig.relay.stats().subscriptions_too_slow > 0).await;
    let mut last = None;
    while let Some(message) = paused.next().await {
        last = Some(message);
    }
    assert_eq!(last, Some(json!(["CLOSED", "p", "error: too slow"])));
}

/// One that falls too far behind is told so and let go.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_too_slow_is_closed_with_a_reason() {
    let rig = Rig::with(limited(|l| RelayLimits { lag_rows_max: 50, ..l }), OpenGate).await;
    let (mut writer, mut paused) = (rig.client().await, rig.client().await);
    paused.request("p", json!({"#t": [topic(1)]})).await;
    for nth in 0..EVENTS {
        let content = format!("{nth} {}", "x".repeat(CONTENT_BYTES));
        writer.publish_ok(&signed(&note(&content))).await;
    }
    until("falling behind", || rig.relay.stats().subscriptions_too_slow > 0).await;
    let mut closed = Vec::new();
    while let Some(message) = paused.next().await {
        closed.extend((message[0] == "CLOSED").then_some(message));
    }
    assert_eq!(closed, [json!(["CLOSED", "p", "error: too slow"])]);
}
