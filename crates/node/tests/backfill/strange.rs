//! Relays that are made up.

use futures_util::{SinkExt, StreamExt};
use kukuri_core::Admitted;
use kukuri_event::EventId;
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

/// A relay that answers each message as a function says.
pub async fn relay(answer: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> String {
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
pub fn claims(ids: &[EventId], message: &Value) -> Value {
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

/// A relay that never ends talking, and answers what a function says.
pub async fn babbler(answer: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut says, mut hears) = tokio_tungstenite::accept_async(stream).await.unwrap().split();
        loop {
            let heard = tokio::select! {
                biased;
                heard = hears.next() => heard,
                said = says.send(Message::text(r#"["EOSE","0"]"#)) => {
                    if said.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let Some(Ok(Message::Text(text))) = heard else { return };
            for said in answer(&serde_json::from_str(&text).unwrap()) {
                if says.send(Message::text(said.to_string())).await.is_err() {
                    return;
                }
            }
        }
    });
    url
}

pub fn body(event: &Admitted) -> Value {
    serde_json::from_str(event.body().json()).unwrap()
}

/// The whole answer to a question: those of the bodies that it asks for, and the end.
pub fn answer(bodies: &[Value], question: &Value) -> Vec<Value> {
    let events = asked_for(bodies, question).into_iter();
    let events = events.map(|body| json!(["EVENT", question[1], body]));
    events.chain([json!(["EOSE", question[1]])]).collect()
}

/// Those of the bodies that a question asks for.
pub fn asked_for<'a>(bodies: &'a [Value], question: &Value) -> Vec<&'a Value> {
    let ids = question[2]["ids"].as_array().unwrap();
    bodies.iter().filter(|body| ids.contains(&body["id"])).collect()
}
