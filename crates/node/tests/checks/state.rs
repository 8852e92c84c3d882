//! A state with something of everything, ways to reach into it, and the checks on all of it.

use kukuri_core::{
    Act, Admitted, Command, FeedBounds, FeedRow, MarkState, Record, Seq, TopicId, UnixMillis,
    UnlinkReason, Version,
};
use kukuri_event::UnixSeconds;
use kukuri_node::doctor::{Checks, Finding, Subject};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Entry, Model, Store};

pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

pub fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

pub fn carry(digit: char) -> Act {
    Act::carry(topic(digit), "")
}

pub fn event(kind: u16, age: i64, digits: &str, tags: &[(&str, String)]) -> Admitted {
    let draft = Draft::new(kind, UnixSeconds(NOW.0 - age));
    let draft = digits.chars().fold(draft, |draft, digit| draft.tag("t", topic(digit)));
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).admit(&draft, NOW)
}

/// A store with something of everything: notes on one and two topics, a replaced profile, an
/// article, a deleted note, an address that was deleted, an event that left a topic.
pub async fn store() -> Model {
    let model = Model::default();
    let doomed = event(1, 9, "a", &[]);
    let id = doomed.event().id().to_hex();
    let leaver = event(1, 8, "ab", &[]);
    let pubkey = doomed.event().pubkey();
    let acts = [
        carry('a'),
        carry('b'),
        Act::Publish(event(1, 10, "a", &[])),
        Act::Publish(event(7, 10, "ab", &[])),
        Act::Publish(doomed.clone()),
        Act::Publish(leaver.clone()),
        Act::Publish(event(0, 20, "a", &[])),
        Act::Publish(event(0, 10, "a", &[])),
        Act::Publish(event(30_023, 10, "b", &[("d", "x".into())])),
        Act::Publish(event(30_023, 10, "b", &[("d", "y".into())])),
        Act::Publish(event(5, 5, "a", &[("e", id), ("a", format!("30023:{pubkey}:y"))])),
        Act::Unlink {
            topic: topic('b'),
            events: vec![leaver.event().id()],
            reason: UnlinkReason::Before(UnixMillis(i64::MAX)),
        },
    ];
    let at = UnixMillis::from(NOW);
    for act in acts {
        let decision = model.apply([Command { at, act }].into()).await.unwrap();
        assert!(decision.outcomes[0].is_ok());
    }
    model
}

pub async fn state() -> (FeedBounds, Vec<Entry>) {
    let model = store().await;
    (model.bounds().await.unwrap(), dump(&model).await)
}

/// Runs all checks on a whole state.
pub fn examine(bounds: FeedBounds, entries: &[Entry]) -> Vec<Finding> {
    let mut checks = Checks::new(bounds, u64::MAX, 100, 0);
    let table = |entry: &Entry| match entry {
        Entry::Row(_) => 0,
        Entry::Record(_) => 1,
        Entry::Dedupe(..) => 2,
        Entry::Version(..) => 3,
        Entry::Tombstone(..) => 4,
        Entry::Topic(..) => 5,
        Entry::Node(_) => 6,
    };
    let ends = [Checks::rows_end, Checks::records_end, Checks::dedupe_end, Checks::versions_end];
    for nth in 0..7 {
        entries.iter().filter(|entry| table(entry) == nth).for_each(|entry| checks.entry(entry));
        if let Some(end) = ends.get(nth) {
            end(&mut checks);
        }
    }
    checks.topics_end();
    checks.node_end();
    checks.findings.into_parts().0
}

/// Breaks a state with `sabotage` and expects exactly these findings, by check and words.
pub async fn expect(sabotage: impl FnOnce(&mut Vec<Entry>), expected: &[(&str, &str)]) {
    let (bounds, mut entries) = state().await;
    sabotage(&mut entries);
    let mut findings = examine(bounds, &entries);
    // What is wrong with an event is mostly wrong with the node's counter, too.
    let node = expected.iter().any(|(_, words)| words.starts_with("the node"));
    findings.retain(|finding| node || finding.subject != Subject::Node);
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), expected.len(), "{texts:#?}");
    for (check, words) in expected {
        let found = findings.iter().any(|f| f.check == *check && f.to_string().contains(words));
        assert!(found, "{check}: {words} is not in {texts:#?}");
    }
}

pub fn records(entries: &mut [Entry]) -> impl Iterator<Item = &mut Record> {
    entries.iter_mut().filter_map(|entry| match entry {
        Entry::Record(record) => Some(record),
        _ => None,
    })
}

pub fn effective(entries: &mut [Entry], kind: u16) -> &mut Record {
    records(entries).find(|r| r.is_effective() && r.event().kind().0 == kind).unwrap()
}

pub fn version(entries: &mut [Entry], kind: u16, state: MarkState) -> &mut Version {
    let versions = entries.iter_mut().filter_map(|entry| match entry {
        Entry::Version(key, version) if key.kind.0 == kind => Some(version),
        _ => None,
    });
    versions.into_iter().find(|v| v.mark.is_some_and(|mark| mark.state == state)).unwrap()
}

pub fn row(entries: &mut [Entry], seq: i64) -> &mut FeedRow {
    let rows = entries.iter_mut().filter_map(|entry| match entry {
        Entry::Row(row) => Some(row),
        _ => None,
    });
    rows.into_iter().find(|row| row.seq == Seq(seq)).unwrap()
}
