//! Whatever comes in, something is answered, and the connection goes on.

use kukuri_testkit::generate::{Dice, Seed};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{Client, Rig, note, signed, topic};
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

/// What has to be answered, by a reading of the rules of its own.
#[derive(Debug, PartialEq)]
enum Expected {
    Notice,
    /// Whether the event with this id is taken.
    Ok(Value, bool),
    Closed(Value),
    /// The end of what is stored, or the count.
    Answer(&'static str, Value),
    Silence,
}

/// Each message of a grammar gets the one answer that is due to it, over random mutations of good
/// messages: a NOTICE unless it has a name to answer to, OK to the id of an event, CLOSED to the
/// name of a question.
#[tokio::test]
async fn every_message_of_a_grammar_gets_its_answer() {
    let seed = Seed::of_run("-p kukuri-relay every_message_of_a_grammar_gets_its_answer");
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let (mut dice, mut refused) = (seed.dice(), 0);
    for nth in 0..3_000 {
        let (text, original) = mutated(&mut dice, nth);
        let expected = expected(&text, &original);
        exchange(&mut client, text, &expected).await;
        refused += u32::from(!matches!(expected, Expected::Answer(..) | Expected::Ok(_, true)));
    }
    assert!((1_000..2_500).contains(&refused), "{refused} of the messages were malformed");
}

/// Nothing of what nobody keeps stays in memory, over many messages and many connections.
#[tokio::test]
async fn memory_stays_flat_under_malformed_messages() {
    const MESSAGES_PER_CONNECTION: u32 = 250;
    const CONNECTIONS: u32 = 100;
    const CONNECTIONS_FIRST: u32 = 20;
    const GROWTH_BYTES_MAX: u64 = 4 * 1024 * 1024;
    let seed = Seed::of_run("-p kukuri-relay memory_stays_flat_under_malformed_messages");
    let rig = Rig::start().await;
    let (mut dice, mut before) = (seed.dice(), 0);
    for connection in 0..CONNECTIONS {
        if connection == CONNECTIONS_FIRST {
            before = memory_bytes();
        }
        let mut client = rig.client().await;
        for nth in 0..MESSAGES_PER_CONNECTION {
            let (text, original) = mutated(&mut dice, connection * MESSAGES_PER_CONNECTION + nth);
            let expected = expected(&text, &original);
            // What is taken is kept.
            if !matches!(expected, Expected::Ok(_, true)) {
                exchange(&mut client, text, &expected).await;
            }
        }
    }
    let growth = memory_bytes().saturating_sub(before);
    println!("{growth} bytes more after {CONNECTIONS} connections than after {CONNECTIONS_FIRST}");
    assert!(growth <= GROWTH_BYTES_MAX, "{growth} bytes more");
}

/// Of this process, relay and client together.
fn memory_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE_BYTES
}

/// Sends a message, and takes the one answer that is due to it.
async fn exchange(client: &mut Client, text: String, expected: &Expected) {
    client.send_text(text.clone()).await;
    if *expected != Expected::Silence {
        let mut answer = client.expect().await;
        // A question that is still good may find something.
        while let Expected::Answer("EOSE", sub) = expected
            && (&answer[0], &answer[1]) == (&json!("EVENT"), sub)
        {
            answer = client.expect().await;
        }
        check(&answer, expected).unwrap_or_else(|| panic!("{text}: {answer}, not {expected:?}"));
    }
    client.nothing_more().await;
    if let Expected::Answer("EOSE", sub) = expected {
        client.send(json!(["CLOSE", sub])).await;
    }
}

fn expected(text: &str, original: &Value) -> Expected {
    let Ok(Value::Array(parts)) = serde_json::from_str(text) else { return Expected::Notice };
    let [name, rest @ ..] = &parts[..] else { return Expected::Notice };
    match (name.as_str(), rest) {
        (Some("EVENT"), [event]) if event["id"].is_string() => {
            Expected::Ok(event["id"].clone(), event == &original[1])
        }
        (Some("AUTH"), [event]) if event["id"].is_string() => {
            Expected::Ok(event["id"].clone(), false)
        }
        (Some("CLOSE"), [Value::String(_)]) => Expected::Silence,
        (Some(name @ ("REQ" | "COUNT")), [Value::String(sub), filters @ ..]) => {
            let good = (1..=64).contains(&sub.chars().count())
                && (1..=10).contains(&filters.len())
                && filters.iter().all(is_filter);
            match (good, name) {
                (false, _) => Expected::Closed(json!(sub)),
                (true, "REQ") => Expected::Answer("EOSE", json!(sub)),
                (true, _) => Expected::Answer("COUNT", json!(sub)),
            }
        }
        _ => Expected::Notice,
    }
}

/// A filter with `#t` in which only the first topic is named, and with conditions that are some.
fn is_filter(value: &Value) -> bool {
    let list = |value: &Value, good: &dyn Fn(&Value) -> bool| {
        value.as_array().is_some_and(|values| values.iter().all(good))
    };
    let is_hex = |value: &Value| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        value.as_str().is_some_and(|text| text.len() == 64 && text.bytes().all(digit))
    };
    let is_good = |(key, value): (&String, &Value)| match key.as_str() {
        "#t" => {
            let named = value.as_array().is_some_and(|topics| !topics.is_empty());
            named && list(value, &|topic_id| topic_id == &topic(1))
        }
        "#p" => list(value, &Value::is_string),
        "authors" => list(value, &is_hex),
        "kinds" => list(value, &|kind| kind.as_u64().is_some_and(|kind| kind < 1 << 16)),
        "limit" => value.is_u64(),
        "since" => value.is_i64(),
        _ => false,
    };
    value.as_object().is_some_and(|all| all.contains_key("#t") && all.iter().all(is_good))
}

fn check(answer: &Value, expected: &Expected) -> Option<()> {
    let why = |at: usize| answer[at].as_str().filter(|why| why.contains(": "));
    let holds = match expected {
        Expected::Notice => answer[0] == "NOTICE" && why(1).is_some(),
        Expected::Ok(id, true) => answer == &json!(["OK", id, true, ""]),
        Expected::Ok(id, false) => {
            answer[0] == "OK" && &answer[1] == id && answer[2] == false && why(3).is_some()
        }
        Expected::Closed(sub) => answer[0] == "CLOSED" && &answer[1] == sub && why(2).is_some(),
        Expected::Answer(name, sub) => &answer[0] == name && &answer[1] == sub,
        Expected::Silence => false,
    };
    holds.then_some(())
}

/// What judges the answers notices wrong ones.
#[test]
fn a_wrong_answer_is_noticed() {
    let (mine, why) = (json!("mine"), "invalid: why");
    for (wrong, expected) in [
        (json!(["OK", "mine", false, why]), Expected::Notice),
        (json!(["NOTICE", "no word for programs"]), Expected::Notice),
        (json!(["NOTICE", why]), Expected::Ok(mine.clone(), false)),
        (json!(["OK", "yours", false, why]), Expected::Ok(mine.clone(), false)),
        (json!(["OK", "mine", true, ""]), Expected::Ok(mine.clone(), false)),
        (json!(["OK", "mine", false, why]), Expected::Ok(mine.clone(), true)),
        (json!(["CLOSED", "yours", why]), Expected::Closed(mine.clone())),
        (json!(["EOSE", "mine"]), Expected::Closed(mine.clone())),
        (json!(["CLOSED", "mine", why]), Expected::Answer("EOSE", mine.clone())),
        (json!(["COUNT", "mine", {"count": 0}]), Expected::Answer("EOSE", mine)),
    ] {
        assert_eq!(check(&wrong, &expected), None, "{wrong}");
    }
}

/// A message, and what it was before something happened to it.
fn mutated(dice: &mut Dice, nth: u32) -> (String, Value) {
    let filter = json!({"#t": [topic(1)], "kinds": [30_000], "limit": 3, "since": 1});
    let good = match dice.below(5) {
        0 | 1 => json!(["EVENT", signed(&note(&nth.to_string()))]),
        2 => json!(["REQ", "s", filter]),
        3 => {
            let other = json!({"#t": [topic(1)], "authors": ["ab".repeat(32)], "#p": ["x"]});
            json!(["COUNT", "s", other, filter])
        }
        _ => json!(["AUTH", signed(&note(&nth.to_string()))]),
    };
    let mut message = good.clone();
    for _ in 0..dice.below(3) {
        mutate(&mut message, dice);
    }
    let mut text = message.to_string();
    if dice.chance(5) {
        let mut end = dice.below(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    (text, good)
}

/// Puts something strange somewhere, or one part too many or too few.
fn mutate(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Array(items) if items.len() > 1 && dice.chance(85) => {
            let nth = 1 + dice.below(items.len() - 1);
            match dice.below(10) {
                0 => drop(items.remove(nth)),
                1 => items.push(items[nth].clone()),
                _ => mutate(&mut items[nth], dice),
            }
        }
        Value::Object(fields) if !fields.is_empty() && dice.chance(85) => {
            let nth = dice.below(fields.len());
            let key = fields.keys().nth(nth).unwrap().clone();
            match dice.below(10) {
                0 => drop(fields.remove(&key)),
                _ => mutate(fields.get_mut(&key).unwrap(), dice),
            }
        }
        other => *other = strange(dice),
    }
}

fn strange(dice: &mut Dice) -> Value {
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
        json!("CLOSE"),
        json!(18_446_744_073_709_551_615_u64),
    ];
    dice.pick(&strange).clone()
}
