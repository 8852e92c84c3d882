//! Every check of the doctor: silent on what the rules left, loud on each way to break it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "checks/state.rs"]
mod state;

use std::sync::Arc;

use kukuri_core::{Act, Command, FeedRow, MarkState, Op, Record, Seq, State, UnixMillis};
use kukuri_event::{Body, UnixSeconds};
use kukuri_node::doctor::Moved;
use kukuri_store::conformance::dump;
use kukuri_store::{Entry, Model, Store};
use kukuri_testkit::generate::{Seed, World, script};

use state::{NOW, effective, event, examine, expect, records, row, state, store, topic, version};

#[tokio::test]
async fn what_the_rules_left_has_no_findings() {
    expect(|_| (), &[]).await;
}

#[tokio::test]
async fn random_histories_have_no_findings() {
    let seed = Seed::of_run("random_histories_have_no_findings");
    for part in 0..200 {
        let mut dice = seed.part(part).dice();
        let world = World::new(seed.part(part), 0, 30);
        let commands = script(&world, &mut dice, 60);
        let model = Model::default();
        for command in commands {
            let _decision = model.apply([command].into()).await.unwrap();
        }
        let bounds = model.bounds().await.unwrap();
        let findings = examine(bounds, &dump(&model).await);
        assert_eq!(findings, [], "part {part}");
        // A feed whose beginning is gone is no finding, either.
        let trim = Act::Trim(Seq(bounds.floor.0.midpoint(bounds.head.0)));
        let _decision =
            model.apply([Command { at: UnixMillis(0), act: trim }].into()).await.unwrap();
        let bounds = model.bounds().await.unwrap();
        let findings = examine(bounds, &dump(&model).await);
        assert_eq!(findings, [], "part {part}, truncated to {}", bounds.floor);
    }
}

#[tokio::test]
async fn a_missing_row_is_a_hole() {
    let missing = |entries: &mut Vec<Entry>| {
        entries.retain(|entry| !matches!(entry, Entry::Row(row) if row.seq == Seq(1)));
    };
    let expected =
        [("feed", "feed row 2: it follows row 0"), ("feed", "names row 1, which did not make")];
    expect(missing, &expected).await;
}

#[tokio::test]
async fn a_missing_last_row_is_a_hole() {
    let last = state().await.0.head;
    let missing = move |entries: &mut Vec<Entry>| {
        entries.retain(|entry| !matches!(entry, Entry::Row(row) if row.seq == last));
    };
    expect(missing, &[("feed", "it is the last one"), ("feed", "not stored there")]).await;
}

#[tokio::test]
async fn a_row_that_changes_nothing_is_wrong() {
    let twice = |entries: &mut Vec<Entry>| {
        let first = row(entries, 1).clone();
        *row(entries, 2) = FeedRow { seq: Seq(2), ..first };
    };
    let expected = [
        ("feed", "feed row 2: upsert"),
        ("feed", "names row 1, which did not"),
        ("feed", "names row 2, which did not"),
    ];
    expect(twice, &expected).await;
}

#[tokio::test]
async fn an_event_that_the_feed_never_named_is_found() {
    // The feed says it left; the record says it is there.
    let left = |entries: &mut Vec<Entry>| {
        let hidden = records(entries).find(|r| r.state == State::Superseded).unwrap();
        hidden.state = State::Effective;
    };
    let expected = [("feed", "is visible in"), ("versions", "are both effective")];
    let (bounds, mut entries) = state().await;
    left(&mut entries);
    let findings = examine(bounds, &entries);
    for (check, words) in expected {
        assert!(findings.iter().any(|f| f.check == check && f.to_string().contains(words)));
    }
}

#[tokio::test]
async fn an_event_that_is_gone_is_found() {
    let gone = |entries: &mut Vec<Entry>| {
        let id = effective(entries, 1).event().id();
        entries.retain(|entry| !matches!(entry, Entry::Record(r) if r.event().id() == id));
    };
    expect(gone, &[("feed", "it is not stored there"), ("usage", "its counter says")]).await;
}

#[tokio::test]
async fn a_link_that_names_another_row_is_found() {
    let moved = |entries: &mut Vec<Entry>| effective(entries, 7).links[1].seq = Seq(9);
    expect(moved, &[("feed", "names row 9, which did not make it visible there")]).await;
}

#[tokio::test]
async fn a_link_too_many_is_found() {
    let linked = |entries: &mut Vec<Entry>| {
        let mut link = effective(entries, 7).links[1].clone();
        link.seq = Seq(3);
        effective(entries, 1).links.push(link);
    };
    expect(linked, &[("feed", "names row 3"), ("usage", "its counter says")]).await;
}

#[tokio::test]
async fn links_out_of_order_are_found() {
    expect(|e| effective(e, 7).links.reverse(), &[("links", "out of order")]).await;
    let older = |entries: &mut Vec<Entry>| {
        let record = effective(entries, 1);
        record.seq = Seq(5);
    };
    expect(older, &[("links", "older than the event"), ("dedupe", "its number is 5")]).await;
}

#[tokio::test]
async fn dedupe_that_forgot_or_misremembers_is_found() {
    let forgot = |entries: &mut Vec<Entry>| {
        let id = effective(entries, 1).event().id();
        entries.retain(|entry| !matches!(entry, Entry::Dedupe(known, _) if *known == id));
    };
    expect(forgot, &[("dedupe", "dedupe does not know it")]).await;
    let misremembers = |entries: &mut Vec<Entry>| {
        let id = effective(entries, 1).event().id();
        for entry in entries {
            if let Entry::Dedupe(known, dedupe) = entry
                && *known == id
            {
                dedupe.seq = None;
            }
        }
    };
    expect(misremembers, &[("dedupe", "dedupe says none")]).await;
}

#[tokio::test]
async fn a_wrong_counter_is_found() {
    let wrong = |entries: &mut Vec<Entry>| {
        for entry in entries {
            if let Entry::Topic(topic, usage) = entry
                && topic.topic_id.as_str().ends_with('b')
            {
                usage.bytes += 1;
            }
        }
    };
    expect(wrong, &[("usage", "its counter says")]).await;
    let unknown = |entries: &mut Vec<Entry>| {
        entries.retain(|e| !matches!(e, Entry::Topic(t, _) if t.topic_id == topic('b')));
    };
    expect(unknown, &[("usage", "events are linked to it, and it is not known")]).await;
    let node = |entries: &mut Vec<Entry>| {
        for entry in entries {
            if let Entry::Node(node) = entry {
                node.usage.events += 1;
            }
        }
    };
    expect(node, &[("usage", "the node: its counter says")]).await;
}

#[tokio::test]
async fn marks_that_disagree_with_records_are_found() {
    let state = |e: &mut Vec<Entry>| {
        version(e, 0, MarkState::Effective).mark.as_mut().unwrap().state = MarkState::Deleted;
    };
    expect(state, &[("versions", "is effective, and the mark says")]).await;
    let time = |e: &mut Vec<Entry>| {
        version(e, 0, MarkState::Effective).mark.as_mut().unwrap().created_at = UnixSeconds(1);
    };
    expect(time, &[("versions", "and its mark of 1")]).await;
    let body = |e: &mut Vec<Entry>| version(e, 0, MarkState::Effective).body = None;
    expect(body, &[("versions", "is not the one that is kept with the mark")]).await;
    let limit = |e: &mut Vec<Entry>| {
        version(e, 30_023, MarkState::Effective).deleted_until = Some(NOW);
    };
    expect(limit, &[("versions", "versions up to 1700000000 are deleted")]).await;
    let none = |e: &mut Vec<Entry>| version(e, 0, MarkState::Effective).mark = None;
    expect(none, &[("versions", "is effective and not marked")]).await;
    let unknown = |e: &mut Vec<Entry>| {
        e.retain(|entry| !matches!(entry, Entry::Version(key, _) if key.kind.0 == 0));
    };
    expect(unknown, &[("versions", "its key is not known")]).await;
}

#[tokio::test]
async fn marks_of_nothing_are_found() {
    let revived = |e: &mut Vec<Entry>| {
        version(e, 30_023, MarkState::Deleted).mark.as_mut().unwrap().state = MarkState::Effective;
    };
    expect(revived, &[("versions", "is marked as effective and is not")]).await;
    let kept = |e: &mut Vec<Entry>| {
        let body = version(e, 30_023, MarkState::Effective).body.clone();
        version(e, 30_023, MarkState::Deleted).body = body;
    };
    expect(kept, &[("versions", "a body is kept, and no version is effective")]).await;
}

#[tokio::test]
async fn a_tombstone_of_a_visible_event_is_found() {
    let buried = |entries: &mut Vec<Entry>| {
        let target = effective(entries, 7).event().id();
        for entry in entries {
            if let Entry::Tombstone(key, _) = entry {
                key.target = target;
            }
        }
    };
    expect(buried, &[("tombstones", "its author deleted it, and it is visible")]).await;
    // Deletions cannot be deleted.
    let deletion = |entries: &mut Vec<Entry>| {
        let target = effective(entries, 5).event().id();
        for entry in entries {
            if let Entry::Tombstone(key, _) = entry {
                key.target = target;
            }
        }
    };
    expect(deletion, &[]).await;
}

fn tamper(record: &mut Record, from: &str, to: &str) {
    let json = record.body.json().replace(from, to);
    assert_ne!(json, record.body.json());
    record.body = Arc::new(Body::restore(json).unwrap());
}

#[tokio::test]
async fn bodies_that_were_changed_are_found() {
    let blank = |entries: &mut Vec<Entry>| tamper(effective(entries, 1), "{\"id\"", "{ \"id\"");
    expect(blank, &[("bodies", "not the canonical one"), ("usage", "its counter")]).await;
    let kind = |entries: &mut Vec<Entry>| tamper(effective(entries, 1), "\"kind\":1", "\"kind\":2");
    expect(kind, &[("bodies", "its id is not the hash of its values")]).await;
    let signature = |entries: &mut Vec<Entry>| {
        let other = effective(entries, 7).event().sig();
        let record = effective(entries, 1);
        let own = hex(record.event().sig().as_bytes());
        tamper(record, &own, &hex(other.as_bytes()));
    };
    expect(signature, &[("bodies", "its signature does not hold")]).await;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn what_moved_during_the_walk_is_not_judged() {
    let (bounds, mut entries) = state().await;
    let record = effective(&mut entries, 0).clone();
    entries.retain(|e| !matches!(e, Entry::Record(r) if r.event().id() == record.event().id()));
    let findings = examine(bounds, &entries);
    assert_eq!(findings.len(), 4, "the feed, the mark and two counters: {findings:?}");
    let mut moved = Moved::default();
    assert!(findings.iter().all(|finding| moved.spares(finding)));
    let row = entries.iter().find_map(|entry| match entry {
        Entry::Row(row) if row.event_id == record.event().id() => Some(row.clone()),
        _ => None,
    });
    moved.row(&FeedRow { op: Op::Delete, ..row.unwrap() });
    assert!(!findings.iter().any(|finding| moved.spares(finding)));
}

#[tokio::test]
async fn rows_and_records_written_later_are_not_judged() {
    let model = store().await;
    let bounds = model.bounds().await.unwrap();
    let act = Act::Publish(event(1, 1, "a", &[]));
    let at = UnixMillis::from(NOW);
    let _decision = model.apply([Command { at, act }].into()).await.unwrap();
    let mut entries = dump(&model).await;
    entries.retain(|entry| !matches!(entry, Entry::Row(row) if row.seq > bounds.head));
    let findings = examine(bounds, &entries);
    assert_eq!(findings, [], "the record lies beyond the head");
}
