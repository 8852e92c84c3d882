//! Clients that do not read.

use kukuri_relay::{OpenGate, RelayConfig, RelayLimits};
use serde_json::json;

use crate::rig::{Rig, config, id, note, signed, topic, until};

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

/// One that falls too far behind is told so and let go.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_too_slow_is_closed_with_a_reason() {
    let config = config();
    let limits = RelayLimits { lag_rows_max: 50, ..config.limits.clone() };
    let rig = Rig::with(RelayConfig { limits, ..config }, OpenGate).await;
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
