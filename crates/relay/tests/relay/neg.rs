//! Reconciliation (NIP-77), with the library's own client as the other side: it shares no code with ours
//! but the format.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::admission::Verdict;
use kukuri_core::{Act, TopicId};
use kukuri_event::{Event, EventId};
use kukuri_relay::{Allowance, Authed, Gate, OpenGate, RelayLimits};
use kukuri_store::{Model, Store};
use kukuri_testkit::generate::World;
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};

use crate::rig::{
    Client, Rig, Time, ago, author, draft, id, limited, note, signed, topic, topic_id, until,
};

/// The largest message that the library's client makes here.
const FRAME_BYTES: u64 = 4096;

/// What one side of a reconciliation learns, and what it cost in messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Learnt {
    have: BTreeSet<EventId>,
    need: BTreeSet<EventId>,
    rounds: usize,
}

fn storage(own: &[Value]) -> NegentropyStorageVector {
    let mut storage = NegentropyStorageVector::new();
    for event in own {
        let event = Event::parse(&event.to_string()).unwrap();
        let created_at = event.created_at().0.try_into().unwrap();
        storage.insert(created_at, Id::from_byte_array(*event.id().as_bytes())).unwrap();
    }
    storage.seal().unwrap();
    storage
}

fn hex_of(message: &Value) -> Vec<u8> {
    hex::decode(message[2].as_str().unwrap()).unwrap()
}

/// The library's client over a socket, with these events of its own.
async fn reconcile(client: &mut Client, filter: Value, own: &[Value]) -> Learnt {
    let storage = storage(own);
    let mut library = Negentropy::borrowed(&storage, FRAME_BYTES).unwrap();
    let first = hex::encode(library.initiate().unwrap());
    client.send(json!(["NEG-OPEN", "n", filter, first])).await;
    let (mut have, mut need, mut rounds) = (Vec::new(), Vec::new(), 0);
    loop {
        let answer = client.expect().await;
        assert_eq!((&answer[0], &answer[1]), (&json!("NEG-MSG"), &json!("n")), "{answer}");
        rounds += 1;
        let next = library.reconcile_with_ids(&hex_of(&answer), &mut have, &mut need).unwrap();
        let Some(next) = next else { break };
        client.send(json!(["NEG-MSG", "n", hex::encode(next)])).await;
    }
    client.send(json!(["NEG-CLOSE", "n"])).await;
    let ids = |ids: Vec<Id>| ids.into_iter().map(|id| EventId::from_bytes(id.to_bytes())).collect();
    Learnt { have: ids(have), need: ids(need), rounds }
}

fn ids(events: &[Value]) -> BTreeSet<EventId> {
    events.iter().map(|event| EventId::parse(&id(event)).unwrap()).collect()
}

/// Notes of several seconds, of which each has some.
fn notes(count: i64) -> Vec<Value> {
    let nth = |nth: i64| signed(&ago(nth / 3, note(&nth.to_string())));
    (0..count).map(nth).collect()
}

async fn publish(client: &mut Client, events: &[Value]) {
    for event in events {
        client.publish_ok(event).await;
    }
}

fn all() -> Value {
    json!({"#t": [topic(1)]})
}

/// A message that says nothing but its version and that everything is wanted.
const EVERYTHING: &str = "6100000200";

/// What is refused, and the client hears why.
async fn refused(client: &mut Client, message: Value) -> String {
    client.send(message).await;
    let answer = client.expect().await;
    assert_eq!(answer[0], "NEG-ERR", "{answer}");
    answer[2].as_str().unwrap().to_owned()
}

async fn opened(client: &mut Client, name: &str, filter: Value) {
    client.send(json!(["NEG-OPEN", name, filter, EVERYTHING])).await;
    let answer = client.expect().await;
    assert_eq!((&answer[0], &answer[1]), (&json!("NEG-MSG"), &json!(name)), "{answer}");
}

#[tokio::test]
async fn both_sides_differences_are_found() {
    // With small messages, the answers are as small as they can be.
    let small = |l| RelayLimits { message_bytes_max: 8 * 1024 + 512, ..l };
    let rig = Rig::with(limited(small), OpenGate).await;
    let mut client = rig.client().await;
    let events = notes(900);
    let (theirs, ours) = (&events[..800], &events[100..]);
    publish(&mut client, theirs).await;
    let learnt = reconcile(&mut client, all(), ours).await;
    assert_eq!(learnt.need, ids(&events[..100]));
    assert_eq!(learnt.have, ids(&events[800..]));
    let equal = reconcile(&mut client, all(), theirs).await;
    assert_eq!(equal, Learnt { rounds: 1, ..Learnt::default() });
    let nothing = reconcile(&mut client, all(), &[]).await;
    assert_eq!((nothing.need, nothing.have), (ids(theirs), BTreeSet::new()));
    // Answers are bounded, so that hundreds of ids take several.
    let rounds_min = 800 * 32 / FRAME_BYTES as usize;
    assert!(nothing.rounds >= rounds_min, "{}", nothing.rounds);
    client.nothing_more().await;
}

/// What is compared is what a query finds: neither deleted nor replaced nor expired events, and no more
/// than the filter asks for.
#[tokio::test]
async fn only_what_can_be_read_is_compared() {
    let time = Time::stopped();
    let config = limited(|limits| limits);
    let store = Arc::new(Model::default());
    let rig = Rig::at(time.clock(), store, config, OpenGate).await;
    let mut client = rig.client().await;
    let t = topic(1);
    let doomed = signed(&ago(9, note("doomed")));
    let deletion = signed(&ago(8, draft(5, "", &[&["t", &t], &["e", &id(&doomed)]])));
    let old = signed(&ago(7, draft(10_003, "old", &[&["t", &t]])));
    let new = signed(&ago(6, draft(10_003, "new", &[&["t", &t]])));
    let soon = (draft(1, "", &[]).created_at.0 + 10).to_string();
    let passing = signed(&ago(5, draft(1, "passing", &[&["t", &t], &["expiration", &soon]])));
    let kept = signed(&ago(4, note("kept")));
    let events = [&doomed, &deletion, &old, &new, &passing, &kept].map(Clone::clone);
    publish(&mut client, &events).await;
    time.advance(20);
    let found = client.stored(all()).await;
    assert_eq!(ids(&found), ids(&[deletion.clone(), new.clone(), kept.clone()]));
    assert_eq!(reconcile(&mut client, all(), &[]).await.need, ids(&found));
    for (filter, need) in [
        (json!({"#t": [topic(1)], "kinds": [5]}), ids(std::slice::from_ref(&deletion))),
        (json!({"#t": [topic(1)], "limit": 1}), ids(std::slice::from_ref(&kept))),
        (json!({"#t": [topic(1)], "limit": 0}), BTreeSet::new()),
        (json!({"#t": [topic(1)], "until": new["created_at"]}), ids(&[deletion, new.clone()])),
        (json!({"#t": [topic(1)], "since": new["created_at"]}), ids(&[new, kept])),
    ] {
        assert_eq!(reconcile(&mut client, filter.clone(), &[]).await.need, need, "{filter}");
    }
}

#[tokio::test]
async fn versions_of_the_protocol() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    // Another version is told which one is spoken, and may then speak that.
    for version in ["60", "62", "6f"] {
        client.send(json!(["NEG-OPEN", "n", all(), format!("{version}00")])).await;
        assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]), "{version}");
    }
    for nonsense in ["", "00", "50", "70", "ff"] {
        let why = refused(&mut client, json!(["NEG-OPEN", "n", all(), nonsense])).await;
        assert!(why.starts_with("invalid: "), "{nonsense}: {why}");
    }
    opened(&mut client, "n", all()).await;
}

/// Whatever is wrong with a message is said, and ends the reconciliation it is about.
#[tokio::test]
async fn hostile_messages_are_answered() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    publish(&mut client, &notes(50)).await;
    let huge = format!("610000{}", "02ffffffffffffffff7f");
    for (message, why) in [
        (json!(["NEG-OPEN", "n", all(), "6"]), "invalid: a reconciliation is spoken in hex"),
        (json!(["NEG-OPEN", "n", all(), "zz"]), "invalid: a reconciliation is spoken in hex"),
        (json!(["NEG-OPEN", "n", all(), 61]), "invalid: a reconciliation is spoken in hex"),
        (json!(["NEG-OPEN", "n", "x".repeat(64), "61"]), "invalid: bad filter"),
        (json!(["NEG-OPEN", "n", {"#t": [topic(1)], "search": "x"}, "61"]), "invalid: bad filter"),
        (json!(["NEG-OPEN", "n", {}, "61"]), "invalid: missing #t"),
        (json!(["NEG-OPEN", "n", {"#t": ["x"]}, "61"]), "invalid: bad topic"),
        (json!(["NEG-OPEN", "n", {"#t": [topic(2)]}, "61"]), "restricted: topic not handled here"),
        (json!(["NEG-OPEN", "", all(), "61"]), "invalid: a subscription id has"),
        (json!(["NEG-OPEN", "x".repeat(65), all(), "61"]), "invalid: a subscription id has"),
        (json!(["NEG-OPEN", "n", all(), "610000ff"]), "invalid: Unexpected mode"),
        (json!(["NEG-OPEN", "n", all(), huge]), "invalid: parse ends prematurely"),
        (json!(["NEG-OPEN", "n", all(), "6100ff01"]), "invalid: parse ends prematurely"),
        (json!(["NEG-MSG", "n", "61"]), "closed: no such reconciliation"),
        (json!(["NEG-MSG", "n", "6"]), "invalid: a reconciliation is spoken in hex"),
    ] {
        let told = refused(&mut client, message.clone()).await;
        assert!(told.starts_with(why), "{message}: {told}");
    }
    for message in [json!(["NEG-OPEN", "n", all()]), json!(["NEG-MSG", "n"]), json!(["NEG-CLOSE"])]
    {
        client.send(message.clone()).await;
        let told = client.expect().await;
        assert_eq!(told[0], "NOTICE", "{message}: {told}");
        assert!(told[1].as_str().unwrap().contains("wrong number of parts"), "{told}");
    }
    // What is wrong in the middle of one ends it, and what was held for it is given back.
    opened(&mut client, "n", all()).await;
    assert_eq!(rig.relay.stats().neg_sessions, 1);
    let why = refused(&mut client, json!(["NEG-MSG", "n", "61000003"])).await;
    assert!(why.starts_with("invalid: Unexpected mode"), "{why}");
    until("giving back", || rig.relay.stats().neg_sessions == 0).await;
    let why = refused(&mut client, json!(["NEG-MSG", "n", "61"])).await;
    assert_eq!(why, "closed: no such reconciliation");
    client.nothing_more().await;
}

#[tokio::test]
async fn one_message_has_one_answer() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    publish(&mut client, &notes(10)).await;
    // Both are read before the first is answered: comparing takes a thread of its own.
    let open = json!(["NEG-OPEN", "n", all(), EVERYTHING]);
    let both = [open.clone(), json!(["NEG-MSG", "n", "61"])];
    for message in both {
        client.send(message).await;
    }
    let answer = client.expect().await;
    let impatient = json!(["NEG-ERR", "n", "invalid: the last message has no answer yet"]);
    // An answer that was quicker than the second message is one, too.
    assert!(answer == impatient || answer[0] == "NEG-MSG", "{answer}");
    if answer[0] == "NEG-MSG" {
        assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]));
    }
    opened(&mut client, "n", all()).await;
}

#[tokio::test]
async fn sessions_of_a_connection_and_of_all() {
    let limits = |l| RelayLimits { neg_sessions_max: 2, neg_sessions_all_max: 3, ..l };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    opened(&mut one, "a", all()).await;
    opened(&mut one, "b", all()).await;
    let why = refused(&mut one, json!(["NEG-OPEN", "c", all(), EVERYTHING])).await;
    assert_eq!(why, "error: too many reconciliations, at most 2 are open at once");
    // One of them may begin anew, and one that ends makes room.
    opened(&mut one, "b", all()).await;
    opened(&mut two, "a", all()).await;
    let why = refused(&mut two, json!(["NEG-OPEN", "b", all(), EVERYTHING])).await;
    assert_eq!(why, "error: too many reconciliations at once, try again later");
    one.send(json!(["NEG-CLOSE", "a"])).await;
    until("room", || rig.relay.stats().neg_sessions == 2).await;
    opened(&mut two, "b", all()).await;
    drop((one, two));
    until("an end with the connections", || rig.relay.stats().neg_sessions == 0).await;
}

#[tokio::test]
async fn ids_of_one_and_of_all() {
    let limits = |l| RelayLimits { neg_ids_max: 10, neg_ids_all_max: 15, ..l };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let mut client = rig.client().await;
    let events = notes(11);
    publish(&mut client, &events[..10]).await;
    assert_eq!(reconcile(&mut client, all(), &[]).await.need.len(), 10);
    opened(&mut client, "a", json!({"#t": [topic(1)], "limit": 5})).await;
    opened(&mut client, "b", all()).await;
    client.send(json!(["NEG-CLOSE", "a"])).await;
    let six = json!(["NEG-OPEN", "a", {"#t": [topic(1)], "limit": 6}, EVERYTHING]);
    let why = refused(&mut client, six).await;
    assert_eq!(why, "error: too many reconciliations at once, try again later");
    client.send(json!(["NEG-CLOSE", "b"])).await;
    until("room", || rig.relay.stats().neg_sessions == 0).await;
    publish(&mut client, &events[10..]).await;
    let why = refused(&mut client, json!(["NEG-OPEN", "a", all(), EVERYTHING])).await;
    assert_eq!(why, "blocked: this query is too big");
}

#[tokio::test]
async fn silence_ends_it() {
    let time = Time::stopped();
    let rig = Rig::at(time.clock(), Arc::new(Model::default()), limited(|l| l), OpenGate).await;
    let mut client = rig.client().await;
    opened(&mut client, "n", all()).await;
    time.advance(59);
    client.send(json!(["NEG-MSG", "n", "61"])).await;
    assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]));
    time.advance(59);
    client.send(json!(["NEG-MSG", "n", "61"])).await;
    assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]));
    time.advance(60);
    let told = json!(["NEG-ERR", "n", "closed: you took too long to respond!"]);
    assert_eq!(client.expect().await, told);
    assert_eq!(rig.relay.stats().neg_sessions, 0);
}

/// Who said something every minute held ids for ever.
#[tokio::test]
async fn talk_does_not_keep_it_open() {
    let time = Time::stopped();
    let rig = Rig::at(time.clock(), Arc::new(Model::default()), limited(|l| l), OpenGate).await;
    let mut client = rig.client().await;
    opened(&mut client, "n", all()).await;
    for _ in 0..10 {
        time.advance(59);
        client.send(json!(["NEG-MSG", "n", "61"])).await;
        assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]));
    }
    // Ten seconds short of ten minutes, and then ten minutes.
    time.advance(9);
    client.send(json!(["NEG-MSG", "n", "61"])).await;
    assert_eq!(client.expect().await, json!(["NEG-MSG", "n", "61"]));
    time.advance(1);
    let why = "closed: this reconciliation has lasted too long, open another one";
    assert_eq!(client.expect().await, json!(["NEG-ERR", "n", why]));
    assert_eq!(rig.relay.stats().neg_sessions, 0);
    // Another one may begin.
    opened(&mut client, "n", all()).await;
}

/// One address held all ids that there were for everybody, with a connection or two more.
#[tokio::test]
async fn ids_of_one_address() {
    let limits = |l| RelayLimits { neg_ids_per_ip_max: 15, ..l };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    publish(&mut one, &notes(10)).await;
    opened(&mut one, "a", all()).await;
    let six = json!(["NEG-OPEN", "a", {"#t": [topic(1)], "limit": 6}, EVERYTHING]);
    let why = refused(&mut two, six).await;
    assert_eq!(why, "error: too many reconciliations at once, try again later");
    opened(&mut two, "a", json!({"#t": [topic(1)], "limit": 5})).await;
    // What ends gives back what it held.
    one.send(json!(["NEG-CLOSE", "a"])).await;
    until("room", || rig.relay.stats().neg_sessions == 1).await;
    opened(&mut one, "a", all()).await;
}

#[tokio::test]
async fn messages_are_charged() {
    let requests_per_ip = Allowance { per_minute: 1, burst: 3 };
    let rig = Rig::with(limited(|l| RelayLimits { requests_per_ip, ..l }), OpenGate).await;
    let mut client = rig.client().await;
    opened(&mut client, "n", all()).await;
    for _ in 0..2 {
        client.send(json!(["NEG-MSG", "n", "61"])).await;
        assert_eq!(client.expect().await[0], "NEG-MSG");
    }
    let why = refused(&mut client, json!(["NEG-MSG", "n", "61"])).await;
    assert_eq!(why, "rate-limited: slow down");
    let why = refused(&mut client, json!(["NEG-OPEN", "n", all(), EVERYTHING])).await;
    assert_eq!(why, "rate-limited: slow down");
}

/// Who asks about much pays for more than one question, so that nobody makes the node read for nothing.
#[tokio::test]
async fn pages_are_charged() {
    let events = (0..5000).map(|nth| author(1).admit(&ago(nth, note("")), World::NOW));
    let acts: Vec<Act> = events.map(Act::Publish).collect();
    let store: Arc<dyn Store> = Arc::new(Model::default());
    for (burst, answer) in [(1, "NEG-ERR"), (2, "NEG-MSG")] {
        let requests_per_ip = Allowance { per_minute: 1, burst };
        let config = limited(|l| RelayLimits { requests_per_ip, ..l });
        let rig = Rig::over(Arc::clone(&store), config, OpenGate).await;
        for acts in acts.chunks(500) {
            let answers = rig.lane.submit_all(acts.to_vec()).await.unwrap().await;
            assert!(answers.iter().all(Result::is_ok));
        }
        let mut client = rig.client().await;
        client.send(json!(["NEG-OPEN", "n", all(), EVERYTHING])).await;
        let said = client.expect().await;
        assert_eq!(said[0], answer, "{burst}: {}", said[2].as_str().unwrap().len());
    }
}

/// Nobody may read anything.
struct Shut;

impl Gate for Shut {
    fn publish(&self, _: &Authed, _: &Event) -> Verdict {
        Verdict::Admit
    }

    fn read(&self, _: &Authed, _: &[TopicId]) -> Verdict {
        Verdict::Restricted
    }
}

#[tokio::test]
async fn who_may_not_read_may_not_reconcile() {
    let mut config = limited(|limits| limits);
    config.auth.mode = kukuri_relay::Auth::Required;
    let rig = Rig::with(config, Shut).await;
    let mut client = rig.client().await;
    assert_eq!(client.expect().await[0], "AUTH");
    let why = refused(&mut client, json!(["NEG-OPEN", "n", all(), EVERYTHING])).await;
    assert_eq!(why, "auth-required: authenticate to read");
}

#[tokio::test]
async fn a_topic_that_is_carried_no_longer_ends_it() {
    let store: Arc<dyn Store> = Arc::new(Model::default());
    let rig = Rig::over(store, limited(|limits| limits), OpenGate).await;
    let mut client = rig.client().await;
    opened(&mut client, "n", all()).await;
    let disabled = Act::SetTopic {
        topic_id: topic_id(1),
        name: String::new(),
        enabled: false,
        pinned: false,
        wanted: 0,
        ingest_policy: Default::default(),
    };
    let _outcome = rig.lane.run(disabled).await.unwrap();
    let told = json!(["NEG-ERR", "n", "restricted: topic not handled here"]);
    assert_eq!(client.expect().await, told);
    until("an end", || rig.relay.stats().neg_sessions == 0).await;
}
