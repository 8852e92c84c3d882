//! Relays that do not mean well, or do not know what they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kukuri_event::EventId;
use serde_json::{Value, json};

use crate::rig::{Node, id, node, note, topic};
use crate::strange::{body, claims, relay};

/// What was not asked for, is of another topic, or is not what it says, does not come in.
#[tokio::test]
async fn only_what_was_asked_for_is_taken() {
    let (a, b) = (topic('a'), topic('b'));
    let (good, unasked, foreign) = (note(&a, 1), note(&a, 2), note(&b, 3));
    let mut forged: Value = serde_json::from_str(note(&a, 4).body().json()).unwrap();
    forged["content"] = json!("forged");
    let forged_id = EventId::parse(forged["id"].as_str().unwrap()).unwrap();
    let absent = EventId::from_bytes([7; 32]);
    let named = [id(&good), id(&foreign), forged_id, absent];
    let bodies: Vec<Value> = [&good, &unasked, &foreign]
        .map(|event| serde_json::from_str(event.body().json()).unwrap())
        .into_iter()
        .chain([forged, json!({"id": "x"}), json!([])])
        .collect();
    let url = relay(move |message| match message[0].as_str() {
        // The first is about everything; of deletions and old versions it has none.
        Some("NEG-OPEN" | "NEG-MSG") if message[1] == "1" => vec![claims(&named, message)],
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&[], message)],
        Some("REQ") => {
            let events = bodies.iter().map(|body| json!(["EVENT", message[1], body]));
            // Twice, since who would stop it?
            let events: Vec<Value> = events.clone().chain(events).collect();
            events.into_iter().chain([json!(["EOSE", message[1]])]).collect()
        }
        _ => Vec::new(),
    })
    .await;
    let node = node(&a).await;
    let (pulled, done) = node.try_pull(&a, &url).await;
    done.unwrap();
    let shown: Vec<String> = node.view(&[a, b]).await.into_keys().collect();
    assert_eq!(shown, [id(&good).to_hex()], "{pulled}");
    assert_eq!((pulled.accepted, pulled.refused()), (1, 2), "{:?}", pulled.refused);
}

#[tokio::test]
async fn who_does_not_reconcile_is_told_apart() {
    let topic = topic('a');
    let node = node(&topic).await;
    for (said, error) in [
        (json!(["NOTICE", "unknown message"]), "does not reconcile (NIP-77)"),
        (json!(["NEG-ERR", "1", "auth-required: who are you"]), "refused: auth-required"),
        (json!(["NEG-MSG", "1", "zz"]), "cannot be read"),
        (json!(["NEG-MSG", "1", "62"]), "cannot be read"),
        (json!(["NEG-MSG", "1", "6100000"]), "cannot be read"),
    ] {
        let url = relay(move |message| match message[0].as_str() {
            Some("NEG-OPEN") => vec![said.clone()],
            _ => Vec::new(),
        })
        .await;
        let (_, done) = node.try_pull(&topic, &url).await;
        let told = format!("{:#}", done.unwrap_err());
        assert!(told.contains(error), "{told}");
    }
    // Nobody is there.
    let (_, done) = node.try_pull(&topic, "ws://127.0.0.1:1").await;
    assert!(done.is_err());
}

/// Anybody can put the id of an event on something that is refused for good. When that was remembered for
/// everybody, one relay kept an event away that all others had.
#[tokio::test]
async fn what_one_relay_forges_comes_from_another() {
    let topic = topic('a');
    let real = note(&topic, 1);
    let honest = node(&topic).await;
    honest.publish([real.clone()]).await;
    for (part, forged) in [
        ("content", json!("forged")),
        ("content", json!("x".repeat(70 * 1024))),
        ("sig", json!("0".repeat(128))),
        ("pubkey", json!("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")),
        ("tags", json!([["t", topic.as_str()], ["expiration", "1"]])),
        ("tags", json!(vec![["x", "y"]; 3000])),
        ("created_at", json!(1)),
    ] {
        let mut body = body(&real);
        body[part] = forged;
        let (named, asked) = ([id(&real)], Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let url = relay(move |message| match message[0].as_str() {
            Some("NEG-OPEN" | "NEG-MSG") if message[1] == "1" => vec![claims(&named, message)],
            Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&[], message)],
            Some("REQ") => {
                counted.fetch_add(1, Ordering::Relaxed);
                vec![json!(["EVENT", message[1], body]), json!(["EOSE", message[1]])]
            }
            _ => Vec::new(),
        })
        .await;
        let node = node(&topic).await;
        let (first, done) = node.try_pull(&topic, &url).await;
        done.unwrap();
        assert_eq!((first.fetched, first.refused()), (1, 1), "{part}: {first}");
        // The one who forges is not asked again.
        let (second, done) = node.try_pull(&topic, &url).await;
        done.unwrap();
        assert_eq!((second.known, second.fetched), (1, 0), "{part}: {second}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{part}");
        assert_eq!(node.pull(&topic, &honest).await.accepted, 1, "{part}");
    }
}

/// A relay named one event of ours as often as it liked, and each time it was read and held; and it was enough
/// that the event is here, whether or not it says that it belongs to the topic.
#[tokio::test]
async fn what_is_here_and_of_another_topic_is_not_at_hand() {
    let (a, b) = (topic('a'), topic('b'));
    let node = Node::start(&[a.clone(), b.clone()]).await;
    let other = note(&b, 1);
    node.publish([other.clone()]).await;
    let id_hex = id(&other).to_hex();
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN") => {
            // In three ranges: up to a time, up to a later one, and up to the end of all times.
            let range = |bound: &str| format!("{bound}0201{id_hex}");
            let ranges = ["0500", "0500", "0000"].map(range).concat();
            vec![json!(["NEG-MSG", message[1], format!("61{ranges}")])]
        }
        _ => Vec::new(),
    })
    .await;
    let (pulled, done) = node.try_pull(&a, &url).await;
    done.unwrap();
    // Once for each question: about all, about deletions and about versions.
    let questions = pulled.named;
    assert!((1..=3).contains(&questions), "{pulled}");
    assert_eq!((pulled.known, pulled.at_hand, pulled.fetched), (questions, 0, 0));
    assert!(node.view(&[a]).await.is_empty());
}
