//! Relays that do not mean well, or do not know what they are asked.

use futures_util::{SinkExt, StreamExt};
use kukuri_core::TopicId;
use kukuri_event::EventId;
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{Node, id, note, topic};

/// A relay that answers each message as a function says.
async fn relay(answer: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { continue };
            while let Some(Ok(message)) = socket.next().await {
                let Message::Text(text) = message else { continue };
                let message: Value = serde_json::from_str(&text).unwrap();
                for said in answer(&message) {
                    if socket.send(Message::text(said.to_string())).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    url
}

/// The answer of one who claims to have these events.
fn claims(ids: &[EventId], message: &Value) -> Value {
    let mut storage = NegentropyStorageVector::new();
    for (nth, id) in (0..).zip(ids) {
        storage.insert(1_700_000_000 - nth, Id::from_byte_array(*id.as_bytes())).unwrap();
    }
    storage.seal().unwrap();
    let at = if message[0] == "NEG-OPEN" { 3 } else { 2 };
    let query = hex::decode(message[at].as_str().unwrap()).unwrap();
    let answer = Negentropy::owned(storage, 0).unwrap().reconcile(&query).unwrap();
    json!(["NEG-MSG", message[1], hex::encode(answer)])
}

async fn node(topic: &TopicId) -> Node {
    Node::start(std::slice::from_ref(topic)).await
}

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

/// A relay that says that everything is too big is asked about ever shorter times, and then no more.
#[tokio::test]
async fn too_big_comes_to_an_end() {
    let topic = topic('a');
    let url = relay(|message| match message[0].as_str() {
        Some("NEG-OPEN") => {
            vec![json!(["NEG-ERR", message[1], "blocked: this query is too big"])]
        }
        _ => Vec::new(),
    })
    .await;
    let (_, done) = node(&topic).await.try_pull(&topic, &url).await;
    let told = format!("{:#}", done.unwrap_err());
    assert!(told.contains("more events in a second"), "{told}");
}
