//! EVENT and its OK.

use serde_json::json;

use crate::rig::{Rig, author, draft, id, note, signed, topic, until};

#[tokio::test]
async fn an_event_is_acknowledged_and_found() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let event = signed(&note("hello"));
    client.publish_ok(&event).await;
    let found = client.request("a", json!({"#t": [topic(1)]})).await;
    assert_eq!(found, std::slice::from_ref(&event));
    let again = client.publish(&event).await;
    assert_eq!(again, (true, "duplicate: already have this event".to_owned()));
}

/// Each refusal has its text, and the connection goes on.
#[tokio::test]
async fn refusals_say_why() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let good = signed(&note("good"));
    let mut bad_sig = good.clone();
    bad_sig["sig"] = json!("00".repeat(64));
    let mut bad_id = good.clone();
    bad_id["id"] = json!("00".repeat(32));
    let cases = [
        (bad_sig, "invalid: bad signature"),
        (bad_id, "invalid: id does not match"),
        (signed(&draft(1, "", &[])), "invalid: missing topic"),
        (signed(&draft(1, "", &[&["t", "kukuri:x"]])), "invalid: bad topic"),
        (signed(&draft(1, "", &[&["t", topic(2).as_str()]])), "restricted: topic not handled here"),
        (
            signed(&draft(22242, "", &[&["t", topic(1).as_str()]])),
            "invalid: auth events are not stored",
        ),
        (signed(&draft(39020, "", &[&["t", topic(1).as_str()]])), "blocked: p2p-only"),
    ];
    for (event, why) in cases {
        assert_eq!(client.publish(&event).await, (false, why.to_owned()));
    }
    client.publish_ok(&good).await;
}

#[tokio::test]
async fn a_deletion_hides_its_target_and_refuses_it_later() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let event = signed(&note("regretted"));
    client.publish_ok(&event).await;
    let (topic_one, target) = (topic(1), id(&event));
    let tags: [&[&str]; 2] = [&["t", &topic_one], &["e", &target]];
    let foreign = author(2).sign(&draft(5, "", &tags));
    client.publish_ok(&serde_json::from_str(&foreign).unwrap()).await;
    let by_id = json!({"#t": [topic(1)], "ids": [id(&event)]});
    assert_eq!(client.request("a", by_id.clone()).await.len(), 1);
    client.publish_ok(&signed(&draft(5, "", &tags))).await;
    assert_eq!(client.request("b", by_id).await, [] as [serde_json::Value; 0]);
    let again = client.publish(&event).await;
    assert_eq!(again, (false, "blocked: deleted by its author".to_owned()));
}

/// Ephemeral events reach who listens and nobody later.
#[tokio::test]
async fn ephemeral_events_are_passed_on_and_not_kept() {
    let rig = Rig::start().await;
    let (mut writer, mut reader) = (rig.client().await, rig.client().await);
    assert!(reader.request("live", json!({"#t": [topic(1)]})).await.is_empty());
    // The subscription is attached after its EOSE was queued.
    until("attaching", || rig.fanout.stats().subscriptions == 1).await;
    let event = signed(&draft(20_001, "now", &[&["t", topic(1).as_str()]]));
    writer.publish_ok(&event).await;
    assert_eq!(reader.expect().await, json!(["EVENT", "live", event]));
    assert!(writer.request("later", json!({"#t": [topic(1)]})).await.is_empty());
}
