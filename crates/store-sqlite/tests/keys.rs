//! What an index abbreviates is told apart by the events themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kukuri_core::{Act, Admitted, Command, Dedupe, ReadSet, TopicId};
use kukuri_event::{EventId, Filter, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Entry, Place, Query, Store};
use kukuri_store_sqlite::{FILE, Options, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

fn open(directory: &TempDir) -> SqliteStore {
    SqliteStore::open(directory.path(), Options::standard(1)).unwrap()
}

fn event(nth: u32) -> Admitted {
    let draft = Draft::new(1, NOW).tag("t", TopicId::global()).tag("r", nth.to_string());
    Author::numbered(nth).admit(&draft, NOW)
}

async fn found(store: &SqliteStore, filter: &str) -> Vec<EventId> {
    let filters = vec![Filter::parse(filter).unwrap()];
    let query =
        Query { filters, after: None, now: NOW, limit_max: 100, rows_max: 1000, bodies_max: 0 };
    store.query(query).await.unwrap().hits.into_iter().map(|hit| hit.id).collect()
}

/// Every event is entered under the keys of both, as if they were the same.
#[tokio::test]
async fn events_that_share_keys_are_told_apart() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (event(1), event(2));
    let store = open(&directory);
    let enable = Act::carry(TopicId::global(), "global");
    let acts = [enable, Act::Publish(one.clone()), Act::Publish(two.clone())];
    let batch: Arc<[Command]> =
        acts.into_iter().map(|act| Command { at: NOW.into(), act }).collect();
    assert!(store.apply(batch).await.unwrap().outcomes.iter().all(|outcome| outcome.is_ok()));
    drop(store);

    let file = Connection::open(directory.path().join(FILE)).unwrap();
    let rows = file.query_row("SELECT count(*) FROM event_dedupe", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows, Ok(0), "what came once needs no row");
    let collide = "
        INSERT INTO event_ids SELECT a.id, b.seq FROM event_ids a, event_ids b WHERE a.seq <> b.seq;
        INSERT INTO event_tags SELECT a.key, b.created_at, b.seq FROM event_tags a, event_tags b
            WHERE a.seq <> b.seq";
    file.execute_batch(collide).unwrap();

    let store = open(&directory);
    for (nth, event) in [(1, &one), (2, &two)] {
        let id = event.event().id();
        assert_eq!(found(&store, &format!(r#"{{"ids":["{id}"]}}"#)).await, [id]);
        assert_eq!(found(&store, &format!(r##"{{"#r":["{nth}"]}}"##)).await, [id]);
        let needs = ReadSet { events: [id].into(), ..ReadSet::default() };
        let facts = store.facts(needs).await.unwrap();
        let record = facts.records[&id].as_ref().unwrap();
        assert_eq!(record.event().id(), id);
        assert_eq!(facts.dedupe[&id], Some(Dedupe::of(record)));
    }
    let mut ids = [one.event().id(), two.event().id()];
    ids.sort();
    for (after, rest) in [(None, &ids[..]), (Some(ids[0]), &ids[1..]), (Some(ids[1]), &[])] {
        let entries = store.page(Place::Dedupe(after), 10).await.unwrap();
        let walked = entries.iter().map(|entry| match entry {
            Entry::Dedupe(id, _) => *id,
            other => panic!("{other:?} among dedupe rows"),
        });
        assert_eq!(walked.collect::<Vec<_>>(), rest);
    }
}
