//! What must hold of every parser that strangers can reach, whatever they send. Nothing here may panic
//! but the assertions.

use std::collections::BTreeSet;

use kukuri_core::admission::{Rate, Topicless};
use kukuri_core::{NetworkId, TopicId, UnixMillis};
use kukuri_event::{Event, EventId, Filter, Pubkey};
use kukuri_index::{
    Cursor, NameCursor, NameQuery, NamedTopic, Names, QUERY_TERMS_MAX, Query, snippet,
};
use kukuri_relay::{
    AuthPolicy, AuthRule, Network, OpenGate, Output, RelayLimits, Session, Surroundings,
};
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

/// A question that can be asked has words, few enough, and a snippet points into itself; cursors that are
/// read are those that were written.
pub fn question(text: &str) {
    if let Ok(query) = Query::parse(text) {
        assert!((1..=QUERY_TERMS_MAX).contains(&query.terms().len()));
        let snippet = snippet(&query, text);
        let chars = snippet.text.chars().count();
        let places = snippet.matches.iter().flat_map(|range| [range.start, range.end]);
        assert!(places.is_sorted() && snippet.matches.iter().all(|range| range.end <= chars));
    }
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
        answered(line, &session.handle(line, &around));
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
            Output::Forget(_) => forgotten += 1,
            Output::Close(..) | Output::End => panic!("{line}: {output:?}"),
        }
    }
    assert!(answers == 1 || (answers == 0 && is_close(line)), "{line}: {outputs:?}");
    assert!(forgotten <= 1, "{line}: {outputs:?}");
}

/// The only message that need not be answered.
fn is_close(line: &str) -> bool {
    let message: Result<Vec<Value>, _> = serde_json::from_str(line);
    message.is_ok_and(|message| message.first().is_some_and(|first| first == "CLOSE"))
}
