//! Going on where a client left off, without clocks.

use std::sync::Arc;

use kukuri_core::{Act, Command, Seq, UnixMillis};
use kukuri_relay::OpenGate;
use kukuri_store::{Model, Store};
use serde_json::{Value, json};

use crate::rig::{Client, Rig, config, id, note, signed, topic};

/// Events with their cursors, and the cursor of the EOSE.
async fn resume(client: &mut Client, sub: &str, after: &str) -> (Vec<(String, String)>, String) {
    client.send(json!(["REQ", sub, {"#t": [topic(1)], "after": after}])).await;
    let mut events = Vec::new();
    loop {
        let message = client.expect().await;
        match message[0].as_str() {
            Some("EVENT") => events.push((id(&message[2]), cursor(&message[3]))),
            Some("EOSE") => return (events, cursor(&message[2])),
            _ => panic!("{message}"),
        }
    }
}

fn cursor(value: &Value) -> String {
    value["cursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_was_missed_comes_once_and_in_order() {
    let rig = Rig::start().await;
    let (mut writer, mut reader) = (rig.client().await, rig.client().await);
    let events: Vec<Value> = (0..6).map(|nth| signed(&note(&nth.to_string()))).collect();
    let ids: Vec<String> = events.iter().map(id).collect();
    for event in &events[..3] {
        writer.publish_ok(event).await;
    }
    let (seen, end) = resume(&mut reader, "s", "").await;
    assert_eq!(seen.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), ids[..3]);
    assert_eq!(seen[2].1, end);
    // Live events have cursors too.
    writer.publish_ok(&events[3]).await;
    let live = reader.expect().await;
    assert_eq!(id(&live[2]), ids[3]);
    let last = cursor(&live[3]);
    drop(reader);
    for event in &events[4..] {
        writer.publish_ok(event).await;
    }
    let mut reader = rig.client().await;
    let (seen, end) = resume(&mut reader, "s", &last).await;
    assert_eq!(seen.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), ids[4..]);
    // From one in the middle, and from the end.
    let (again, _) = resume(&mut reader, "t", &seen[0].1).await;
    assert_eq!(again.len(), 1);
    assert_eq!(resume(&mut reader, "u", &end).await, (Vec::new(), end));
}

#[tokio::test]
async fn cursors_that_lead_nowhere_are_told_so() {
    let store = Arc::new(Model::default());
    let rig = Rig::over(store.clone(), config(), OpenGate).await;
    let mut client = rig.client().await;
    client.publish_ok(&signed(&note("one"))).await;
    client.publish_ok(&signed(&note("two"))).await;
    let (seen, _) = resume(&mut client, "s", "").await;
    let (epoch, _) = seen[0].1.split_once('.').unwrap();
    let trim = Command { at: UnixMillis(0), act: Act::Trim(Seq(1)) };
    store.apply([trim].into()).await.unwrap();
    for (after, why) in [
        ("x", "invalid: bad cursor"),
        ("1.-1", "invalid: bad cursor"),
        ("7fffffff.1", "error: cursor diverged"),
        (&format!("{epoch}.ffff"), "error: cursor diverged"),
        (&format!("{epoch}.0"), "error: cursor too old"),
    ] {
        client.send(json!(["REQ", "t", {"#t": [topic(1)], "after": after}])).await;
        assert_eq!(client.closed("t").await, why, "{after}");
    }
    let filters = [json!({"#t": [topic(1)], "after": ""}), json!({"#t": [topic(1)]})];
    client.send(json!(["REQ", "t", filters[0], filters[1]])).await;
    assert_eq!(client.closed("t").await, "invalid: all filters need the same after");
}
