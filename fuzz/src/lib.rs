//! What must hold of every parser that strangers can reach, whatever they send. Nothing here may panic
//! but the assertions.

use std::collections::BTreeSet;

use kukuri_client::sync::{Dated, Reconciler};
use kukuri_core::admission::{Age, Door, Rate, Topicless};
use kukuri_core::{Limits, NetworkId, TopicId, UnixMillis};
use kukuri_event::{Event, EventId, Filter, Pubkey, UnixSeconds};
use kukuri_gossip::PeerHint;
use kukuri_gossip::message::read;
use kukuri_index::{
    Ask, Cursor, NameCursor, NameQuery, NamedTopic, Names, QUERY_TERMS_MAX, Query,
    SNIPPET_CHARS_MAX, Start, snippet, text_of,
};
use kukuri_relay::{
    AuthPolicy, AuthRule, Network, OpenGate, Output, Reconcile, RelayLimits, Session, Surroundings,
};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::Value;

/// An event that is read is written so that it is read as the same.
pub fn event(text: &str) {
    let Ok(event) = Event::parse(text) else { return };
    let json = event.to_json();
    let again = Event::parse(&json).expect("what was written can be read");
    assert_eq!(again, event);
    assert_eq!(again.to_json(), json, "there is one way to write it");
    // Whatever it says of itself, its id and signature are computed without harm.
    let _ = event.identify().map(|identified| identified.verify());
}

/// A filter that is read is written so that it is read as the same.
pub fn filter(text: &str) {
    let Ok(filter) = Filter::parse(text) else { return };
    let again = Filter::parse(&filter.to_json()).expect("what was written can be read");
    assert_eq!(again, filter);
}

/// Names that are read are those that were written.
pub fn names(text: &str) {
    if let Ok(topic) = TopicId::parse(text) {
        assert_eq!(TopicId::parse(topic.as_str()).as_ref(), Ok(&topic));
    }
    if let Ok(id) = EventId::parse(text) {
        assert_eq!(id.to_hex(), text);
    }
    if let Ok(pubkey) = Pubkey::parse(text) {
        assert_eq!(pubkey.to_hex(), text);
    }
    let _ = text.parse::<Network>();
}

/// Topics can be asked for by any name; cursors that are read are those that were written.
pub fn question(text: &str) {
    if let Ok(query) = NameQuery::parse(text, &NetworkId::default()) {
        let named = |name: &str| NamedTopic { topic_id: TopicId::global(), name: name.to_owned() };
        let found = Names::new([named(text)]).find(Some(&query), None, 1).expect("has no cursor");
        assert_eq!(found.next, None);
    }
    if let Ok(cursor) = Cursor::parse(text) {
        assert_eq!(cursor.to_string(), text.to_lowercase());
    }
    if let Ok(cursor) = NameCursor::parse(text) {
        assert_eq!(cursor.to_string(), text.to_lowercase());
    }
}

/// One connection that is sent these lines: every message has its answer, and every answer is JSON.
pub fn session(text: &str) {
    let topics = BTreeSet::from([TopicId::global()]);
    let around = Surroundings {
        now: UnixMillis(1_700_000_000_000),
        limits: &RelayLimits::STANDARD,
        topics: &topics,
        topicless: Topicless::Reject,
        urls: &["ws://relay.example".to_owned()],
        auth: AuthRule { policy: AuthPolicy::OFF, since: UnixMillis(0) },
        gate: &OpenGate,
        charge: &|_| Rate::Within,
        seen: &|_| None,
    };
    let mut session = Session::new("challenge".into(), around.now);
    for line in text.lines() {
        let outputs = session.handle(line, &around);
        answered(line, &outputs);
        for output in &outputs {
            if let Output::Reconcile(Reconcile::Open { sub, .. } | Reconcile::Further { sub, .. }) =
                output
            {
                session.reconciled(sub, around.now);
            }
        }
    }
}

/// Messages of reconciliations, line by line in hex: both sides read them or refuse them, and what they
/// answer is bounded.
pub fn neg(text: &str) {
    const FRAME_BYTES: u64 = 4096;
    let dated = |nth: u8| {
        let (created_at, id) = (UnixSeconds(1_700_000_000 + i64::from(nth / 3)), [nth; 32]);
        Dated { created_at, id: EventId::from_bytes(id) }
    };
    let mut storage = NegentropyStorageVector::new();
    for Dated { created_at, id } in (0..200).map(dated) {
        let created_at = created_at.0.try_into().expect("it is after the epoch");
        let id = Id::from_byte_array(*id.as_bytes());
        storage.insert(created_at, id).expect("it is not sealed yet");
    }
    storage.seal().expect("it is not sealed yet");
    let mut asks = Reconciler::new((50..250).map(dated)).expect("they are few");
    for line in text.lines().filter_map(|line| hex::decode(line).ok()) {
        let mut answers = Negentropy::borrowed(&storage, FRAME_BYTES).expect("it is large enough");
        if let Ok(answer) = answers.reconcile(&line) {
            assert!(answer.len() as u64 <= FRAME_BYTES, "{} bytes", answer.len());
        }
        if let Ok(step) = asks.answered(&line) {
            let named = 32 * step.need.len();
            assert!(named <= line.len(), "more ids than were sent: {named} of {}", line.len());
        }
    }
}

/// Messages of a swarm, as they are and line by line in hex: what is taken for an event carries the topic of
/// the swarm and fits, whatever it came in. Peers that are named are those that were written.
pub fn swarm(text: &str) {
    let door = Door {
        limits: &Limits::STANDARD,
        topicless: Topicless::Reject,
        age: Age::Any,
        now: UnixMillis(1_773_100_900_000),
        handles: &|_| true,
    };
    let messages = text.lines().filter_map(|line| hex::decode(line).ok());
    for bytes in messages.chain([text.as_bytes().to_vec()]) {
        let Ok(screened) = read(&bytes, &TopicId::global(), &door) else { continue };
        assert!(screened.topics().contains(&TopicId::global()));
        let json = screened.event().to_json();
        assert!(json.len() <= Limits::STANDARD.event_bytes_max);
        let again = read(json.as_bytes(), &TopicId::global(), &door).expect("it was read before");
        assert_eq!(again.event(), screened.event());
        // Whether somebody has signed it is found out without harm.
        let _ = screened.verify();
    }
    for line in text.lines() {
        if let Ok(hint) = line.parse::<PeerHint>() {
            assert_eq!(hint.to_string().parse().as_ref(), Ok(&hint));
        }
    }
}

/// Whatever is published can be indexed, and whatever is asked can be asked of a topic and shown in a text.
pub fn search(text: &str) {
    let json = serde_json::json!({
        "id": "0".repeat(64),
        "pubkey": "0".repeat(64),
        "created_at": 1_700_000_000,
        "kind": 1,
        "tags": [["t", text], ["title", text]],
        "content": text,
        "sig": "0".repeat(128),
    });
    let event = Event::parse(&json.to_string()).expect("any text can be a note");
    let document = text_of(&event);
    assert!(document.terms.is_sorted_by(|one, other| one < other), "distinct and sorted");
    let Ok(query) = Query::parse(text) else { return };
    assert!((1..=QUERY_TERMS_MAX).contains(&query.terms().len()));
    let start = Start::First { now: UnixSeconds(1_700_000_000) };
    let ask = Ask::new(text, vec![TopicId::global()], start);
    assert_eq!(ask.map(|ask| ask.query).as_ref(), Ok(&query));
    let shown = snippet(&query, text);
    let chars = shown.text.chars().count();
    assert!(text.contains(&shown.text) && chars <= SNIPPET_CHARS_MAX, "{shown:?}");
    for range in &shown.matches {
        assert!(range.start < range.end && range.end <= chars, "{shown:?}");
    }
}

fn answered(line: &str, outputs: &[Output]) {
    let (mut answers, mut forgotten) = (0, 0);
    for output in outputs {
        match output {
            Output::Send(said) => {
                let said: Vec<Value> = serde_json::from_str(said).expect("what is said is JSON");
                answers += usize::from(said[0] != "AUTH");
            }
            Output::Publish(_) | Output::Ask(_) | Output::Count(_) => answers += 1,
            Output::Reconcile(Reconcile::Open { .. } | Reconcile::Further { .. }) => answers += 1,
            Output::Forget(_) | Output::Reconcile(Reconcile::Forget(_)) => forgotten += 1,
            Output::Close(..) | Output::End => panic!("{line}: {output:?}"),
        }
    }
    assert!(answers == 1 || (answers == 0 && is_close(line)), "{line}: {outputs:?}");
    assert!(forgotten <= 1, "{line}: {outputs:?}");
}

/// The only messages that need not be answered.
fn is_close(line: &str) -> bool {
    let message: Result<Vec<Value>, _> = serde_json::from_str(line);
    message.is_ok_and(|message| {
        message.first().is_some_and(|first| first == "CLOSE" || first == "NEG-CLOSE")
    })
}
