//! NIP-42 and NIP-70.

use std::sync::Arc;

use kukuri_core::TopicId;
use kukuri_core::admission::Verdict;
use kukuri_event::{Event, UnixSeconds};
use kukuri_relay::{AuthPolicy, Authed, Gate, OpenGate, RelayConfig};
use kukuri_store::Model;
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::rig::{Client, Rig, Time, URL, config, draft, note, signed, signed_by, topic};

fn proof(number: u32, challenge: &str, url: &str) -> Value {
    signed_by(number, &draft(22242, "", &[&["relay", url], &["challenge", challenge]]))
}

fn required() -> RelayConfig {
    RelayConfig { auth: AuthPolicy::REQUIRED, ..config() }
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
    let rig = Rig::with(required(), OpenGate).await;
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
    let foreign = signed_by(2, &note("theirs"));
    let refused = (false, "restricted: not allowed to publish here".to_owned());
    assert_eq!(client.publish(&foreign).await, refused);
}

/// A proof is of this connection, this relay, now, and signed.
#[tokio::test]
async fn proofs_that_are_none_are_refused() {
    let rig = Rig::with(required(), OpenGate).await;
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

/// The operator changes the mode while people are connected: who is there has the grace, who comes
/// after the time has the timeout, and nobody is asked before it.
#[tokio::test]
async fn the_mode_changes_while_people_are_connected() {
    let time = Time::stopped();
    let rig = Rig::at(time.clock(), Arc::new(Model::default()), config(), OpenGate).await;
    let (mut early, mut proven) = (rig.client().await, rig.client().await);
    early.publish_ok(&signed(&note("before"))).await;
    let enforce_at = UnixSeconds(World::now().seconds().0 + 60);
    let policy = AuthPolicy { enforce_at: Some(enforce_at), ..AuthPolicy::REQUIRED };
    rig.relay.set_auth(policy);
    early.publish_ok(&signed(&note("until then nothing changes"))).await;

    time.advance(60);
    assert_eq!(challenge(&mut early).await.len(), 64);
    let asked = challenge(&mut proven).await;
    assert!(prove(&mut proven, &proof(1, &asked, URL)).await.0);
    let refused = (false, "auth-required: authenticate to publish".to_owned());
    assert_eq!(early.publish(&signed(&note("no longer"))).await, refused);
    let mut late = rig.client().await;
    challenge(&mut late).await;
    time.advance(10);
    assert_eq!(late.expect().await, json!(["NOTICE", "auth-required: timeout"]));
    assert_eq!(late.next().await, None);
    // Still here, with nothing but the right to prove.
    assert_eq!(early.publish(&signed(&note("still not"))).await, refused);
    time.advance(i64::try_from(policy.grace.as_secs()).unwrap() - 10);
    assert_eq!(early.expect().await, json!(["NOTICE", "auth-required: deadline reached"]));
    assert_eq!(early.next().await, None);
    proven.publish_ok(&signed(&note("who has proved stays"))).await;

    rig.relay.set_auth(AuthPolicy::OFF);
    rig.client().await.publish_ok(&signed(&note("anyone again"))).await;
}

/// Knows nobody.
struct ClosedGate;

impl Gate for ClosedGate {
    fn publish(&self, _: &Authed, _: &Event) -> Verdict {
        Verdict::Restricted
    }

    fn read(&self, _: &Authed, _: &[TopicId]) -> Verdict {
        Verdict::Restricted
    }
}

/// Consent and plans are asked for where proofs are, on EVENT and on REQ, and only there.
#[tokio::test]
async fn a_gate_is_asked_where_proofs_are_required() {
    let rig = Rig::with(required(), ClosedGate).await;
    let mut client = rig.client().await;
    let asked = challenge(&mut client).await;
    assert!(prove(&mut client, &proof(1, &asked, URL)).await.0);
    let refused = (false, "restricted: not allowed to publish here".to_owned());
    assert_eq!(client.publish(&signed(&note("no plan"))).await, refused);
    client.send(json!(["REQ", "s", {"#t": [topic(1)]}])).await;
    assert_eq!(client.closed("s").await, "restricted: not allowed to read here");
    rig.relay.set_auth(AuthPolicy::OFF);
    client.publish_ok(&signed(&note("nobody asks"))).await;
}

/// Lets in whom it is told to.
struct ChangingGate {
    open: watch::Sender<u64>,
}

impl ChangingGate {
    const CLOSED: u64 = 0;
    const OPEN: u64 = 1;

    fn verdict(&self) -> Verdict {
        if *self.open.borrow() == Self::OPEN { Verdict::Admit } else { Verdict::Blocked }
    }
}

impl Gate for ChangingGate {
    fn publish(&self, _: &Authed, _: &Event) -> Verdict {
        self.verdict()
    }

    fn read(&self, _: &Authed, _: &[TopicId]) -> Verdict {
        self.verdict()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.open.subscribe())
    }
}

/// A plan that ends, ends what is open; and who subscribed before proofs were required is asked about
/// once they have given one.
#[tokio::test]
async fn open_subscriptions_are_asked_about_again() {
    let open = watch::Sender::new(ChangingGate::OPEN);
    let rig = Rig::with(config(), ChangingGate { open: open.clone() }).await;
    let (mut early, mut proven) = (rig.client().await, rig.client().await);
    for client in [&mut early, &mut proven] {
        assert!(client.request("s", json!({"#t": [topic(1)]})).await.is_empty());
    }
    rig.relay.set_auth(AuthPolicy::REQUIRED);
    let asked = challenge(&mut proven).await;
    assert!(prove(&mut proven, &proof(3, &asked, URL)).await.0);
    let mut writer = rig.client().await;
    let asked = challenge(&mut writer).await;
    assert!(prove(&mut writer, &proof(1, &asked, URL)).await.0);
    let event = signed(&note("both hear it"));
    writer.publish_ok(&event).await;
    assert_eq!(proven.expect().await, json!(["EVENT", "s", event]));

    open.send_replace(ChangingGate::CLOSED);
    assert_eq!(proven.closed("s").await, "blocked: not allowed to read here");
    let asked = challenge(&mut early).await;
    assert_eq!(early.expect().await, json!(["EVENT", "s", event]));
    assert!(prove(&mut early, &proof(2, &asked, URL)).await.0);
    assert_eq!(early.closed("s").await, "blocked: not allowed to read here");
}

/// A proof is worth something to this relay only: it is not kept, and nobody else gets to see it,
/// whether it comes as a proof or as an event.
#[tokio::test]
async fn proofs_are_neither_kept_nor_passed_on() {
    let rig = Rig::with(required(), OpenGate).await;
    let (mut listener, mut client) = (rig.client().await, rig.client().await);
    let asked = challenge(&mut listener).await;
    assert!(prove(&mut listener, &proof(2, &asked, URL)).await.0);
    let everything = json!({"#t": [topic(1), "kukuri:global"]});
    assert!(listener.request("s", everything.clone()).await.is_empty());
    let asked = challenge(&mut client).await;
    let topic = topic(1);
    let tags: [&[&str]; 3] = [&["t", &topic], &["relay", URL], &["challenge", &asked]];
    let proof = signed(&draft(22242, "", &tags));
    assert!(prove(&mut client, &proof).await.0);
    client.refused(&proof, "invalid: auth events are not stored").await;
    // Had it gone out live, it would have come before this.
    let event = signed(&note("after it"));
    client.publish_ok(&event).await;
    assert_eq!(listener.expect().await, json!(["EVENT", "s", event]));
    assert_eq!(client.request("s", everything).await, [event]);
}

/// The keys of a connection are remembered, so there is an end to them.
#[tokio::test]
async fn so_many_keys_are_proved_on_a_connection_and_no_more() {
    let rig = Rig::with(required(), OpenGate).await;
    let mut client = rig.client().await;
    let asked = challenge(&mut client).await;
    for number in 1..=16 {
        assert!(prove(&mut client, &proof(number, &asked, URL)).await.0, "{number}");
    }
    let refused = (false, "error: too many keys, at most 16 on a connection".to_owned());
    assert_eq!(prove(&mut client, &proof(17, &asked, URL)).await, refused);
    assert!(prove(&mut client, &proof(16, &asked, URL)).await.0, "a known key is no new one");
}
