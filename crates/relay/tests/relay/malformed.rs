//! Whatever comes in, something is answered, and the connection goes on.

use kukuri_testkit::generate::{Dice, Seed};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{Rig, note, signed, topic};
use futures_util::SinkExt;

#[tokio::test]
async fn nonsense_gets_a_notice() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    for text in [
        "",
        " ",
        "null",
        "{}",
        "[]",
        "[1]",
        "\"EVENT\"",
        "[\"EVENT\"",
        "[\"event\",{}]",
        "[\"EVENT\"]",
        "[\"EVENT\",{},{}]",
        "[\"REQ\"]",
        "[\"REQ\",1,{}]",
        "[\"CLOSE\"]",
        "[\"CLOSE\",1]",
        "[\"AUTH\"]",
        "[\"EVENT\",1]",
        "[\"EVENT\",{\"id\":1}]",
        "[\"EVENT\",[]]",
        "[\"COUNT\"]",
        "[\"NOPE\",{}]",
        "[[\"EVENT\"]]",
        "[\"\\ud800\"]",
        "[\"AUTH\",{}]",
    ] {
        client.send_text(text.to_owned()).await;
        let answer = client.expect().await;
        assert_eq!(answer[0], "NOTICE", "{text}: {answer}");
    }
    client.socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(client.expect().await, json!(["NOTICE", "invalid: messages are text"]));
    client.publish_ok(&signed(&note("still here"))).await;
}

#[tokio::test]
async fn an_event_with_an_id_gets_its_ok_however_broken_it_is() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    for event in [
        json!({"id": "x"}),
        json!({"id": "x", "kind": 1e99}),
        json!({"id": "\u{0}", "tags": {}}),
        json!({"id": "x", "pubkey": "x", "created_at": -1, "kind": 70000, "tags": [[]], "content": 1, "sig": ""}),
    ] {
        let (accepted, why) = client.publish(&event).await;
        assert!(!accepted && why.starts_with("invalid: malformed event"), "{why}");
    }
}

/// Every EVENT gets exactly one OK (or a NOTICE if it has no id) and every REQ its EOSE or CLOSED, over
/// random mutations of good messages.
#[tokio::test]
async fn every_message_of_a_grammar_is_answered() {
    let seed = Seed::of_run("every_message_of_a_grammar_is_answered");
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let mut dice = seed.dice();
    for nth in 0..1_500 {
        let message = mutated(&mut dice, nth);
        client.send_text(message.clone()).await;
        loop {
            let answer = client.expect().await;
            match answer[0].as_str().unwrap() {
                // Stored events of a question that turned out to be good.
                "EVENT" => {}
                "OK" | "NOTICE" | "CLOSED" | "EOSE" | "COUNT" => break,
                _ => panic!("{message}: {answer}"),
            }
        }
        client.send(json!(["CLOSE", "s"])).await;
    }
    client.nothing_more().await;
}

fn mutated(dice: &mut Dice, nth: u32) -> String {
    let mut message = match dice.below(3) {
        0 => json!(["EVENT", signed(&note(&nth.to_string()))]),
        1 => json!(["REQ", "s", {"#t": [topic(1)], "kinds": [30_000], "limit": 3}]),
        _ => json!(["COUNT", "s", {"#t": [topic(1)], "authors": ["ab".repeat(32)]}]),
    };
    for _ in 0..dice.below(3) {
        mutate(&mut message, dice);
    }
    let mut text = message.to_string();
    if dice.chance(10) {
        let mut end = dice.below(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

/// Puts something strange somewhere.
fn mutate(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Array(items) if items.len() > 1 && dice.chance(85) => {
            let nth = 1 + dice.below(items.len() - 1);
            mutate(&mut items[nth], dice);
        }
        Value::Object(fields) if !fields.is_empty() && dice.chance(85) => {
            let nth = dice.below(fields.len());
            mutate(fields.values_mut().nth(nth).unwrap(), dice);
        }
        other => {
            let strange = [
                json!(null),
                json!(-1),
                json!(1e300),
                json!(""),
                json!("\u{0}\u{fffd}🦀"),
                json!([]),
                json!({}),
                json!([[["deep"]]]),
                json!({"#t": 1}),
                json!(true),
                json!("AB".repeat(32)),
            ];
            *other = dice.pick(&strange).clone();
        }
    }
}
