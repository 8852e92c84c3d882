//! Space goes back to the disk while the store is in use.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kukuri_core::{
    Act, Admitted, Command, Decision, Outcome, Rejection, Seq, Sighting, TopicId, UnixMillis,
    UnlinkReason,
};
use kukuri_event::{EventId, Filter, UnixSeconds};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Query, Space, Store, Tidied};
use kukuri_store_sqlite::{FILE, Options, SqliteStore, Sync};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

/// Large enough that some thousands of them make many pages.
const CONTENT_BYTES: usize = 8 * 1024;

fn open(directory: &TempDir) -> SqliteStore {
    let options = Options { sync: Sync::OffForTests, ..Options::standard(1) };
    SqliteStore::open(directory.path(), options).unwrap()
}

fn event(nth: u32) -> Admitted {
    let draft = Draft::new(1, UnixSeconds(NOW.0 - i64::from(nth))).tag("t", TopicId::global());
    Author::numbered(1).admit(&draft.content("x".repeat(CONTENT_BYTES)), NOW)
}

async fn apply(store: &SqliteStore, acts: Vec<Act>) -> Decision {
    let batch: Arc<[Command]> =
        acts.into_iter().map(|act| Command { at: NOW.into(), act }).collect();
    store.apply(batch).await.unwrap()
}

async fn tidy_all(store: &SqliteStore) -> usize {
    let mut steps = 0;
    while store.tidy().await.unwrap() == Tidied::More {
        steps += 1;
    }
    steps
}

fn file_bytes(directory: &TempDir) -> u64 {
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    let moved = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    assert_eq!(moved, Ok(0));
    std::fs::metadata(directory.path().join(FILE)).unwrap().len()
}

fn rows(directory: &TempDir) -> i64 {
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    conn.query_row("SELECT count(*) FROM events_outbox", [], |row| row.get(0)).unwrap()
}

/// Some 20 MiB of events.
async fn open_full(directory: &TempDir) -> (SqliteStore, Vec<Admitted>) {
    let store = open(directory);
    let events: Vec<Admitted> = (0..2_500).map(event).collect();
    apply(&store, vec![Act::carry(TopicId::global(), "")]).await;
    for chunk in events.chunks(500) {
        apply(&store, chunk.iter().cloned().map(Act::Publish).collect()).await;
    }
    (store, events)
}

/// Nobody notices but the disk.
#[tokio::test]
async fn a_purge_gives_its_space_back() {
    let directory = TempDir::new().unwrap();
    let (store, events) = open_full(&directory).await;
    let full = file_bytes(&directory);
    assert!(full > 20 * 1024 * 1024, "{full} bytes");
    let (topic, reason) = (TopicId::global(), UnlinkReason::Before(UnixMillis(i64::MAX)));
    let gone = events[100..].iter().map(|event| event.event().id()).collect();
    apply(&store, vec![Act::Unlink { topic, events: gone, reason }]).await;
    let before = dump(&store).await;
    let Space { vacant_bytes, held_bytes } = store.space().await.unwrap();
    let grown = file_bytes(&directory);
    assert!(tidy_all(&store).await > 1, "in steps");
    assert_eq!(store.tidy().await, Ok(Tidied::Done));
    let left = file_bytes(&directory);
    // Index rows that go while space is given back make some more.
    let given_back = grown - left;
    assert!(vacant_bytes > full / 2 && vacant_bytes <= given_back, "{vacant_bytes}, {given_back}");
    assert_eq!(store.space().await, Ok(Space { vacant_bytes: 0, held_bytes }));
    println!("{full} bytes, then {left}");
    assert!(left < full / 2, "{full} bytes, then {left}");
    assert_eq!(dump(&store).await, before);
    let decision = apply(&store, vec![Act::Publish(event(9_999))]).await;
    assert_eq!(decision.outcomes, [Outcome::Accepted]);
}

/// Who reads what was there before keeps the file as large as it was: what has been given back is on its way, and no
/// more has to leave for it.
#[tokio::test]
async fn what_a_reader_holds_back_is_on_its_way() {
    let directory = TempDir::new().unwrap();
    let (store, events) = open_full(&directory).await;
    tidy_all(&store).await;
    let full = file_bytes(&directory);
    let reader = Connection::open(directory.path().join(FILE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    let (topic, reason) = (TopicId::global(), UnlinkReason::Before(UnixMillis(i64::MAX)));
    let gone = events.iter().map(|event| event.event().id()).collect();
    apply(&store, vec![Act::Unlink { topic, events: gone, reason }]).await;
    while store.tidy().await.unwrap() == Tidied::More {}
    let left = std::fs::metadata(directory.path().join(FILE)).unwrap().len();
    assert!(left >= full, "it is as large as before");
    let vacant_bytes = store.space().await.unwrap().vacant_bytes;
    assert!(vacant_bytes > full / 2, "{vacant_bytes} of {full}");
}

/// A file that somebody has made with other settings gives no page back, and it said so for ever.
#[tokio::test]
async fn tidying_ends_in_a_file_that_gives_no_pages_back() {
    let directory = TempDir::new().unwrap();
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    conn.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM; CREATE TABLE theirs (x);").unwrap();
    drop(conn);
    let store = open(&directory);
    let events: Vec<Admitted> = (0..1_000).map(event).collect();
    apply(&store, vec![Act::carry(TopicId::global(), "")]).await;
    apply(&store, events.iter().cloned().map(Act::Publish).collect()).await;
    let (topic, reason) = (TopicId::global(), UnlinkReason::Before(UnixMillis(i64::MAX)));
    let gone = events.iter().map(|event| event.event().id()).collect();
    apply(&store, vec![Act::Unlink { topic, events: gone, reason }]).await;
    let full = file_bytes(&directory);
    let mut steps = 0;
    while store.tidy().await.unwrap() == Tidied::More {
        steps += 1;
        assert!(steps < 100, "it does not end");
    }
    assert_eq!(file_bytes(&directory), full, "it is as large as before");
    let extents = store.extents().await.unwrap();
    assert!(extents[1].bytes > full / 2, "{extents:?}");
}

async fn found(store: &SqliteStore, filter: &str) -> usize {
    let filters = vec![Filter::parse(filter).unwrap()];
    let query =
        Query { filters, after: None, now: NOW, limit_max: 100, rows_max: 1000, bodies_max: 100 };
    store.query(query).await.unwrap().bodies.len()
}

/// Rows of ids, tags and authors that lead to a stored event, and that lead to none.
fn places(directory: &TempDir) -> Vec<(i64, i64)> {
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    let count = |table: &str| {
        let sql = format!(
            "SELECT count(events.seq), count(*) - count(events.seq)
             FROM {table} LEFT JOIN events ON events.seq = {table}.seq"
        );
        conn.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    ["event_ids", "event_tags", "event_authors"].map(count).into()
}

/// A purge would change a page for nearly each of them. Until they are deleted nobody finds them, and
/// an event that comes back after its topic was removed has rows of its own beside them.
#[tokio::test]
async fn index_rows_of_what_has_left_are_deleted_many_at_once() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory);
    let (topic, tagged) = (TopicId::global(), |nth: u32| {
        let draft = Draft::new(1, UnixSeconds(NOW.0 - i64::from(nth))).tag("t", TopicId::global());
        Author::numbered(1).admit(&draft.tag("r", nth).tag("p", "x"), NOW)
    });
    let events: Vec<Admitted> = (0..10).map(tagged).collect();
    let publish = || events.iter().cloned().map(Act::Publish);
    apply(&store, [Act::carry(topic.clone(), "")].into_iter().chain(publish()).collect()).await;
    let left = events[4..].iter().map(|event| event.event().id()).collect();
    apply(&store, vec![Act::Unlink { topic, events: left, reason: UnlinkReason::Topic }]).await;
    assert_eq!(places(&directory), [(4, 6), (8, 12), (4, 6)]);
    for filter in [r##"{"#p":["x"]}"##, r#"{"kinds":[1]}"#] {
        assert_eq!(found(&store, filter).await, 4, "{filter}");
    }
    let again = apply(&store, publish().skip(4).collect()).await;
    assert!(again.outcomes.iter().all(|outcome| *outcome == Outcome::Accepted));
    assert_eq!(found(&store, r##"{"#p":["x"]}"##).await, 10);
    let before = dump(&store).await;
    assert_eq!(store.tidy().await, Ok(Tidied::More));
    assert_eq!(store.tidy().await, Ok(Tidied::Done));
    assert_eq!(places(&directory), [(4, 0), (8, 0), (4, 0)], "the others are in the tail");
    assert_eq!(dump(&store).await, before);
    assert_eq!(found(&store, r##"{"#p":["x"]}"##).await, 10);
    drop(store);
    assert_eq!(places(&directory), [(10, 0), (20, 0), (10, 0)]);
}

/// Ids are remembered by the rows that led to their events, which stay until the ids are forgotten.
#[tokio::test]
async fn ids_of_what_has_left_are_remembered_where_they_were() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory);
    let topic = TopicId::global();
    let tagged = |nth: u32| {
        let draft = Draft::new(1, UnixSeconds(NOW.0 - i64::from(nth))).tag("t", TopicId::global());
        Author::numbered(1).admit(&draft.tag("r", nth), NOW)
    };
    let events: Vec<Admitted> = (0..10).map(tagged).collect();
    let publish = || events.iter().cloned().map(Act::Publish);
    apply(&store, [Act::carry(topic.clone(), "")].into_iter().chain(publish()).collect()).await;
    let left: Vec<_> = events[4..].iter().map(|event| event.event().id()).collect();
    let reason = UnlinkReason::Before(UnixMillis(i64::MAX));
    apply(&store, vec![Act::Unlink { topic, events: left.clone(), reason }]).await;
    let before = dump(&store).await;
    tidy_all(&store).await;
    assert_eq!(places(&directory), [(4, 6), (4, 0), (4, 0)]);
    assert_eq!(dump(&store).await, before);
    let again = apply(&store, publish().collect()).await;
    let known = |outcome: &Outcome| matches!(outcome, Outcome::Duplicate(_));
    assert!(again.outcomes.iter().all(known), "{:?}", again.outcomes);
    let sight = |id: &EventId| Sighting { event_id: *id, last_seen_at: NOW.into(), count: 1 };
    apply(&store, vec![Act::Sightings(left[..2].iter().map(sight).collect())]).await;
    let before = UnixMillis(i64::MAX);
    let mut old = store.forgettable(before, 100).await.unwrap().events;
    old.sort_unstable();
    let mut all = left.clone();
    all.sort_unstable();
    assert_eq!(old, all, "each once");
    apply(&store, vec![Act::Forget { events: old, tombstones: vec![], before }]).await;
    assert_eq!(places(&directory), [(4, 0), (4, 0), (4, 0)]);
    let again = apply(&store, publish().collect()).await;
    let forgotten = Outcome::Refused(Rejection::TooOld);
    let unknown = again.outcomes.iter().filter(|outcome| **outcome == forgotten);
    assert_eq!(unknown.count(), 6, "{:?}", again.outcomes);
}

/// Whoever opens the store in the middle of a pass begins it again, and finds some rows gone.
#[tokio::test]
async fn a_pass_goes_on_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let topic = TopicId::global();
    let events: Vec<Admitted> = (0..3_000_u32)
        .map(|nth| {
            let draft = Draft::new(1, UnixSeconds(NOW.0 - i64::from(nth))).tag("t", &topic);
            let draft = (0..3).fold(draft, |draft, tag| draft.tag("r", 3 * nth + tag));
            Author::numbered(1).admit(&draft, NOW)
        })
        .collect();
    let store = open(&directory);
    apply(&store, vec![Act::carry(topic.clone(), "")]).await;
    apply(&store, events.iter().cloned().map(Act::Publish).collect()).await;
    let gone = events[1..].iter().map(|event| event.event().id()).collect();
    apply(&store, vec![Act::Unlink { topic, events: gone, reason: UnlinkReason::Topic }]).await;
    let before = dump(&store).await;
    assert_eq!(store.tidy().await, Ok(Tidied::More));
    let dangling: i64 = places(&directory).iter().map(|(_, dangling)| dangling).sum();
    assert!((1..5 * 2_999).contains(&dangling), "{dangling} rows are left after one step");
    drop(store);
    let store = open(&directory);
    assert!(tidy_all(&store).await > 1, "in steps");
    assert_eq!(places(&directory), [(1, 0), (3, 0), (1, 0)]);
    assert_eq!(dump(&store).await, before);
}

/// The floor rises at once; rows below it are deleted in steps, also by who opens the store next.
#[tokio::test]
async fn rows_below_the_floor_are_deleted_in_steps() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory);
    let topics: Vec<TopicId> = (0..16).map(topic).collect();
    let carry = topics.iter().map(|topic| Act::carry(topic.clone(), ""));
    apply(&store, carry.collect()).await;
    // Sixteen rows for each event.
    for nth in 0..800_u32 {
        let draft = Draft::new(1, UnixSeconds(NOW.0 - i64::from(nth)));
        let draft = topics.iter().fold(draft, |draft, topic| draft.tag("t", topic));
        apply(&store, vec![Act::Publish(Author::numbered(1).admit(&draft, NOW))]).await;
    }
    assert_eq!(rows(&directory), 12_800);
    apply(&store, vec![Act::Trim(Seq(12_000))]).await;
    let (before, bounds) = (dump(&store).await, store.bounds().await.unwrap());
    assert_eq!((bounds.floor, bounds.head, rows(&directory)), (Seq(12_000), Seq(12_800), 12_800));
    assert_eq!(store.tidy().await, Ok(Tidied::More));
    assert_eq!(rows(&directory), 2_800);
    drop(store);
    let store = open(&directory);
    assert_eq!(store.bounds().await, Ok(bounds));
    assert_eq!(dump(&store).await, before);
    tidy_all(&store).await;
    assert_eq!(rows(&directory), 800);
    assert_eq!(dump(&store).await, before);
    apply(&store, vec![Act::Trim(Seq(i64::MAX))]).await;
    tidy_all(&store).await;
    assert_eq!(rows(&directory), 0);
    assert_eq!(store.bounds().await.unwrap().head, Seq(12_800));
}

fn topic(nth: u8) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", hex(nth).repeat(32))).unwrap()
}

fn hex(nth: u8) -> String {
    format!("{nth:02x}")
}
