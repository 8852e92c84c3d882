//! What was wrong once, and must not come back.

use futures_util::{SinkExt, StreamExt};
use kukuri_core::admission::Topicless;
use kukuri_relay::{Allowance, OpenGate, RelayConfig, RelayLimits};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::held::Held;
use crate::rig::{Client, Rig, draft, limited, note, signed, topic, until};

/// A key could exceed its rate by as many events as wait for their answers: each was only looked at
/// when it came, and what was accepted beyond the burst was never paid for.
#[tokio::test]
async fn a_key_does_not_exceed_its_rate_by_not_waiting_for_answers() {
    let store = Held::new(1000);
    let once = Allowance { per_minute: 1, burst: 2 };
    let config = limited(|l| RelayLimits { events_per_pubkey: once, ..l });
    let rig = Rig::over(store.clone(), config, OpenGate).await;
    let mut client = rig.client().await;
    for nth in 0..10 {
        client.send(json!(["EVENT", signed(&note(&nth.to_string()))])).await;
    }
    until("all are read", || rig.relay.stats().messages == 10).await;
    store.commits.add_permits(100);
    let mut accepted = 0;
    for _ in 0..10 {
        accepted += u32::from(client.expect().await[2] == true);
    }
    assert_eq!(accepted, 2);
}

/// Ephemeral events are accepted events, too.
#[tokio::test]
async fn a_key_pays_for_ephemeral_events() {
    let once = Allowance { per_minute: 1, burst: 2 };
    let rig = Rig::with(limited(|l| RelayLimits { events_per_pubkey: once, ..l }), OpenGate).await;
    let mut client = rig.client().await;
    let topic = topic(1);
    for nth in 0..2 {
        client.publish_ok(&signed(&draft(20_001, &nth.to_string(), &[&["t", &topic]]))).await;
    }
    let third = signed(&draft(20_001, "2", &[&["t", &topic]]));
    client.refused(&third, "rate-limited: slow down").await;
}

/// A list is no event and has no id: serde reads the one field of a struct from a list as well.
#[tokio::test]
async fn a_list_has_no_id() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    for name in ["EVENT", "AUTH"] {
        client.send(json!([name, ["x"]])).await;
        assert_eq!(client.expect().await[0], "NOTICE", "{name}");
    }
}

/// The topic that is put into a filter which names none is not one of the client's values.
#[tokio::test]
async fn what_the_relay_adds_to_a_filter_does_not_count() {
    let config = limited(|l| RelayLimits { filter_values_max: 5, ..l });
    let rig = Rig::with(RelayConfig { topicless: Topicless::Global, ..config }, OpenGate).await;
    let mut client = rig.client().await;
    client.request("s", json!({"kinds": [1, 2, 3, 4, 5]})).await;
}

/// DESIGN §7: every filter names at least one topic in `#t`.
#[tokio::test]
async fn an_empty_list_of_topics_names_none() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    assert_eq!(client.refused_request("s", json!({"#t": []})).await, "invalid: missing #t");
}

/// A message that is no text is nonsense and costs as much as any other.
#[tokio::test]
async fn nonsense_costs_whether_it_is_text_or_not() {
    let once = Allowance { per_minute: 1, burst: 2 };
    let rig = Rig::with(limited(|l| RelayLimits { requests_per_ip: once, ..l }), OpenGate).await;
    let mut client = rig.client().await;
    for _ in 0..2 {
        client.socket.send(Message::binary(vec![1])).await.unwrap();
        assert_eq!(client.expect().await[0], "NOTICE");
    }
    let why = client.refused_request("s", json!({"#t": [topic(1)]})).await;
    assert_eq!(why, "rate-limited: slow down");
}

/// A question that is refused for want of a place costs as much as any other that is refused.
#[tokio::test]
async fn a_question_too_many_costs_too() {
    let once = Allowance { per_minute: 1, burst: 2 };
    let limits = |l| RelayLimits { requests_per_ip: once, subscriptions_max: 1, ..l };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let mut client = rig.client().await;
    client.request("1", json!({"#t": [topic(1)]})).await;
    let why = client.refused_request("2", json!({"#t": [topic(1)]})).await;
    assert!(why.starts_with("error: too many subscriptions"), "{why}");
    let why = client.refused_request("2", json!({"#t": [topic(1)]})).await;
    assert_eq!(why, "rate-limited: slow down");
}

/// As many questions are being counted as may be open, and no more.
#[tokio::test]
async fn so_many_are_counted_at_once_and_no_more() {
    let store = Held::new(0);
    let config = limited(|l| RelayLimits { subscriptions_max: 2, ..l });
    let rig = Rig::over(store.clone(), config, OpenGate).await;
    let mut client = rig.client().await;
    for sub in ["1", "2", "3"] {
        client.send(json!(["COUNT", sub, {"#t": [topic(1)]}])).await;
    }
    until("all are read", || rig.relay.stats().messages == 3).await;
    store.queries.add_permits(100);
    assert_eq!(client.closed("3").await, "error: too many at once");
}

/// Who sends events of others and leaves before the answer uses up nobody's rate.
#[tokio::test]
async fn who_leaves_early_costs_nobody_anything() {
    let store = Held::new(1000);
    store.commits.add_permits(1);
    let twice = Allowance { per_minute: 1, burst: 2 };
    let config = limited(|l| RelayLimits { events_per_pubkey: twice, ..l });
    let rig = Rig::over(store.clone(), config, OpenGate).await;
    let (known, new) = (signed(&note("known")), signed(&note("new")));
    let mut author = rig.client().await;
    author.publish_ok(&known).await;
    // A stranger says it again, while the store is busy, and is gone.
    let mut stranger = rig.client().await;
    stranger.send(json!(["EVENT", known])).await;
    until("it waits for the store", || rig.relay.stats().events_submitted == 2).await;
    stranger.socket.close(None).await.unwrap();
    until("the stranger is gone", || rig.relay.stats().connections == 1).await;
    store.commits.add_permits(10);
    // Nothing new was accepted, so there is one left.
    until_ok(&mut author, &new).await;
}

/// The charge is given back when the store has answered, which takes its time.
async fn until_ok(client: &mut Client, event: &serde_json::Value) {
    loop {
        match client.publish(event).await {
            (true, _) => return,
            (false, why) => assert!(why.starts_with("rate-limited:"), "{why}"),
        }
    }
}

/// Who asks for nothing is told where the feed is, without reading all of it.
#[tokio::test]
async fn a_question_for_nothing_begins_at_the_head() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let nothing = json!({"#t": [topic(1)], "since": 1, "until": 0, "after": ""});
    let mut cursors = Vec::new();
    for content in ["one", "two"] {
        client.send(json!(["REQ", "where", nothing])).await;
        let eose = client.expect().await;
        assert_eq!(eose[0], "EOSE");
        cursors.push(eose[2]["cursor"].as_str().unwrap().to_owned());
        client.publish_ok(&signed(&note(content))).await;
    }
    assert_ne!(cursors[0], cursors[1]);
    let missed = json!({"#t": [topic(1)], "after": cursors[1]});
    assert_eq!(client.request("after", missed).await.len(), 1);
}

/// Whoever sends a message that is far too long is told so, although most of it is never read.
#[tokio::test]
async fn a_message_far_too_long_is_answered() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let long = "x".repeat(4 * 1024 * 1024);
    // The relay may be gone before all of it is sent.
    let _ = client.socket.send(Message::text(long)).await;
    let answer = client.expect().await;
    assert_eq!(answer, json!(["NOTICE", "invalid: a message that cannot be received"]));
}

/// A farewell is answered with the same code.
#[tokio::test]
async fn a_farewell_is_returned() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let farewell = CloseFrame { code: CloseCode::Away, reason: "moving on".into() };
    client.socket.send(Message::Close(Some(farewell))).await.unwrap();
    let answer = client.socket.next().await.unwrap().unwrap();
    let Message::Close(Some(answer)) = answer else { panic!("{answer}") };
    assert_eq!(answer.code, CloseCode::Away);
}
