//! REQ, EOSE, live, CLOSE, COUNT.

use std::sync::Arc;

use kukuri_core::{Act, IngestPolicy, Outcome};
use kukuri_relay::OpenGate;
use kukuri_store_sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::rig::{Rig, config, id, note, signed, topic, topic_id, until};

fn filter() -> Value {
    json!({"#t": [topic(1)]})
}

#[tokio::test]
async fn stored_then_live_each_once() {
    let rig = Rig::start().await;
    let (mut writer, mut reader) = (rig.client().await, rig.client().await);
    let events: Vec<Value> = (0..4).map(|nth| signed(&note(&nth.to_string()))).collect();
    writer.publish_ok(&events[0]).await;
    writer.publish_ok(&events[1]).await;
    let mut stored: Vec<String> = reader.request("s", filter()).await.iter().map(id).collect();
    stored.sort_unstable();
    let mut expected: Vec<String> = events[..2].iter().map(id).collect();
    expected.sort_unstable();
    assert_eq!(stored, expected);
    for event in &events[2..] {
        writer.publish_ok(event).await;
        assert_eq!(reader.expect().await, json!(["EVENT", "s", event]));
    }
    reader.nothing_more().await;
}

#[tokio::test]
async fn a_closed_subscription_gets_nothing_and_its_name_is_free() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    client.request("s", filter()).await;
    client.send(json!(["CLOSE", "s"])).await;
    client.publish_ok(&signed(&note("after"))).await;
    client.nothing_more().await;
    assert_eq!(client.request("s", filter()).await.len(), 1);
    assert_eq!(rig.fanout.stats().subscriptions, 1);
}

/// A REQ under the name of another takes its place: events come once.
#[tokio::test]
async fn a_name_used_again_replaces() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    client.request("s", json!({"#t": [topic(1)], "kinds": [7]})).await;
    client.request("s", filter()).await;
    let event = signed(&note("once"));
    client.send(json!(["EVENT", event])).await;
    let mut answers = [client.expect().await, client.expect().await];
    answers.sort_by_key(|answer| answer[0].to_string());
    assert_eq!(answers[0], json!(["EVENT", "s", event]));
    assert_eq!(answers[1][0], "OK");
    client.nothing_more().await;
}

#[tokio::test]
async fn questions_that_may_not_be_asked_are_closed() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    for (filter, why) in [
        (json!({}), "invalid: missing #t"),
        (json!({"#t": ["hashtag"]}), "invalid: bad topic"),
        (json!({"#t": [topic(2)]}), "restricted: topic not handled here"),
        (json!({"#t": [topic(1)], "foo": 1}), "invalid: bad filter: unknown filter field \"foo\""),
    ] {
        client.send(json!(["REQ", "s", filter])).await;
        let reason = client.closed("s").await;
        assert!(reason.starts_with(why), "{reason}");
    }
    client.send(json!(["REQ", "s"])).await;
    assert_eq!(client.closed("s").await, "invalid: no filter");
}

/// A topic that is carried no longer ends its subscriptions.
#[tokio::test]
async fn disabling_a_topic_closes_its_subscriptions() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    client.request("gone", filter()).await;
    client.request("stays", json!({"#t": ["kukuri:global"]})).await;
    let disabled = Act::SetTopic {
        topic_id: topic_id(1),
        name: String::new(),
        enabled: false,
        pinned: false,
        wanted: 0,
        ingest_policy: IngestPolicy::default(),
    };
    assert_eq!(rig.lane.run(disabled).await, Ok(Outcome::Done));
    assert_eq!(client.closed("gone").await, "restricted: topic not handled here");
    client.nothing_more().await;
}

#[tokio::test]
async fn counting_counts_what_a_question_would_find() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    for nth in 0..3 {
        client.publish_ok(&signed(&note(&nth.to_string()))).await;
    }
    client.send(json!(["COUNT", "c", filter()])).await;
    assert_eq!(client.expect().await, json!(["COUNT", "c", {"count": 3}]));
    client.send(json!(["COUNT", "c", {}])).await;
    assert_eq!(client.closed("c").await, "invalid: missing #t");
}

/// More events than fit into one page of bodies, newest first.
#[tokio::test]
async fn long_answers_come_whole_and_in_order() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let mut expected = Vec::new();
    for nth in 0..350 {
        let mut draft = note(&nth.to_string());
        draft.created_at.0 -= nth;
        let event = signed(&draft);
        client.send(json!(["EVENT", event])).await;
        expected.push(id(&event));
    }
    for _ in 0..350 {
        assert_eq!(client.expect().await[2], true);
    }
    let found: Vec<String> = client.request("s", filter()).await.iter().map(id).collect();
    assert_eq!(found, expected);
}

/// A question that cannot be read takes the place of the one before it, too.
#[tokio::test]
async fn a_bad_question_under_an_old_name_ends_the_old_one() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    client.request("s", filter()).await;
    client.send(json!(["REQ", "s", {"foo": 1}])).await;
    assert!(client.closed("s").await.starts_with("invalid: bad filter"));
    client.publish_ok(&signed(&note("after"))).await;
    client.nothing_more().await;
    until("detaching", || rig.fanout.stats().subscriptions == 0).await;
}

/// Clients that leave at any moment leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_of_clients_that_leave() {
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = Arc::new(SqliteStore::open(directory.path(), options).unwrap());
    let rig = Rig::over(store, config(), OpenGate).await;
    for round in 0..60 {
        let mut client = rig.client().await;
        for sub in 0..5 {
            client.send(json!(["REQ", sub.to_string(), filter()])).await;
        }
        // Sooner or later, but mostly while the questions are being answered.
        for _ in 0..round % 6 {
            client.expect().await;
        }
    }
    until("leaving", || rig.relay.stats().connections == 0).await;
    until("detaching", || rig.fanout.stats().subscriptions == 0).await;
}
