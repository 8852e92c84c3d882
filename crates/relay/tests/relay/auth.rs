//! NIP-42 and NIP-70.

use kukuri_relay::{AuthGate, OpenGate};
use serde_json::{Value, json};

use crate::rig::{Client, Rig, URL, author, config, draft, note, signed, topic};

fn proof(number: u32, challenge: &str, url: &str) -> Value {
    let draft = draft(22242, "", &[&["relay", url], &["challenge", challenge]]);
    serde_json::from_str(&author(number).sign(&draft)).unwrap()
}

async fn challenge(client: &mut Client) -> String {
    let message = client.expect().await;
    assert_eq!(message[0], "AUTH", "{message}");
    message[1].as_str().unwrap().to_owned()
}

async fn prove(client: &mut Client, proof: &Value) -> (bool, String) {
    client.send(json!(["AUTH", proof])).await;
    let answer = client.expect().await;
    assert_eq!((&answer[0], &answer[1]), (&json!("OK"), &proof["id"]), "{answer}");
    (answer[2].as_bool().unwrap(), answer[3].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn where_it_is_required_nothing_goes_without_it() {
    let rig = Rig::with(config(), AuthGate).await;
    let mut client = rig.client().await;
    let challenge = challenge(&mut client).await;
    let event = signed(&note("mine"));
    let refused = (false, "auth-required: authenticate to publish".to_owned());
    assert_eq!(client.publish(&event).await, refused);
    client.send(json!(["REQ", "s", {"#t": [topic(1)]}])).await;
    assert_eq!(client.closed("s").await, "auth-required: authenticate to read");
    assert_eq!(prove(&mut client, &proof(1, &challenge, URL)).await, (true, String::new()));
    client.publish_ok(&event).await;
    assert_eq!(client.request("s", json!({"#t": [topic(1)]})).await.len(), 1);
    let foreign = serde_json::from_str(&author(2).sign(&note("theirs"))).unwrap();
    let refused = (false, "restricted: not allowed to publish here".to_owned());
    assert_eq!(client.publish(&foreign).await, refused);
}

/// A proof is of this connection, this relay, now, and signed.
#[tokio::test]
async fn proofs_that_are_none_are_refused() {
    let rig = Rig::with(config(), AuthGate).await;
    let (mut other, mut client) = (rig.client().await, rig.client().await);
    let foreign = challenge(&mut other).await;
    let own = challenge(&mut client).await;
    assert_ne!(foreign, own);
    let mut late = draft(22242, "", &[&["relay", URL], &["challenge", &own]]);
    late.created_at.0 -= 121;
    let mut forged = proof(1, &own, URL);
    forged["sig"] = json!("00".repeat(64));
    for (proof, why) in [
        (proof(1, &foreign, URL), "invalid: wrong challenge"),
        (proof(1, &own, "ws://evil.example"), "invalid: wrong relay"),
        (signed(&late), "invalid: created_at is too far from now"),
        (signed(&note("no proof")), "invalid: AUTH takes an event of kind 22242"),
        (forged, "invalid: bad signature"),
    ] {
        assert_eq!(prove(&mut client, &proof).await, (false, why.to_owned()));
    }
    let refused = (false, "auth-required: authenticate to publish".to_owned());
    assert_eq!(client.publish(&signed(&note("still not"))).await, refused);
}

/// A protected event is taken from its author alone, whatever the mode.
#[tokio::test]
async fn protected_events_need_their_author() {
    let rig = Rig::with(config(), OpenGate).await;
    let mut client = rig.client().await;
    let event = signed(&draft(1, "mine alone", &[&["t", topic(1).as_str()], &["-"]]));
    client.send(json!(["EVENT", event])).await;
    let challenge = challenge(&mut client).await;
    let answer = client.expect().await;
    assert_eq!(answer[3], "auth-required: authenticate to publish");
    assert!(prove(&mut client, &proof(2, &challenge, URL)).await.0);
    let refused = (false, "restricted: not allowed to publish here".to_owned());
    assert_eq!(client.publish(&event).await, refused);
    assert!(prove(&mut client, &proof(1, &challenge, URL)).await.0);
    client.publish_ok(&event).await;
}
