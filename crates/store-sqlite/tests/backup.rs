//! A backup of the file is one moment of it, whoever writes meanwhile, and what is restored is that
//! moment in a new life.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use kukuri_core::{Act, Command, Cursor, CursorError, Outcome, TopicId, UnixMillis};
use kukuri_event::{Filter, UnixSeconds};
use kukuri_store::backup::{Backup, BackupError, Manifest, Monitor, seal};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Entry, FeedError, Query, Store};
use kukuri_store_sqlite::backup::{back_up, restore};
use kukuri_store_sqlite::{FILE, Options, SqliteStore, Sync};
use kukuri_testkit::generate::{Seed, World, script};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const EPOCH: i64 = 1;
/// How often something is tried that has to hit the middle of a short work.
const TRIES_MAX: u32 = 20;

fn open(directory: &Path) -> SqliteStore {
    // Runs are rare, so that the newest events are indexed in memory alone.
    let options =
        Options { sync: Sync::OffForTests, readers: 2, run_events: 1_000_000, epoch: EPOCH };
    SqliteStore::open(directory, options).unwrap()
}

fn batch(acts: impl IntoIterator<Item = Act>) -> Arc<[Command]> {
    acts.into_iter().map(|act| Command { at: NOW.into(), act }).collect()
}

fn notes(from: i64, count: i64, content_bytes: usize) -> Vec<Act> {
    let author = Author::numbered(1);
    let note = |nth| {
        let draft = Draft::new(1, UnixSeconds(NOW.0 - 100_000 + nth)).tag("t", TopicId::global());
        Act::Publish(author.admit(&draft.content("x".repeat(content_bytes)), NOW))
    };
    (from..from + count).map(note).collect()
}

fn save(data: &Path, to: &Path) -> Result<Manifest, BackupError> {
    back_up(data, to, UnixMillis(5), &Monitor::default())
}

fn bring_back(from: &Path, data: &Path) -> Result<(), BackupError> {
    restore(&Backup::open(from)?, data, 2, &Monitor::default())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, BackupError>, words: &str) {
    let error = result.expect_err(words).to_string();
    assert!(error.contains(words), "{words:?} is not in: {error}");
}

/// SQLite's own way of copying began again with every commit of somebody else, and beside a busy
/// writer it did not come to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_beside_a_busy_writer_is_one_moment() {
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    let store = Arc::new(open(&data));
    store.apply(batch([Act::carry(TopicId::global(), "")])).await.unwrap();
    // Several times what is copied at once.
    for acts in notes(0, 1500, 20_000).chunks(100) {
        store.apply(batch(acts.to_vec())).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        let more = notes(10_000, 4000, 10);
        async move {
            for acts in more.chunks(2) {
                store.apply(batch(acts.to_vec())).await.unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let (from, to) = (data.clone(), saved.clone());
    let copied = tokio::task::spawn_blocking(move || save(&from, &to)).await.unwrap();
    let manifest = copied.unwrap();
    let during = store.bounds().await.unwrap().head.0 - manifest.feed.head_seq;
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    println!("{during} rows were written while {} bytes were copied", manifest.bytes());
    assert!(during > 0, "nothing was written during the backup");
    bring_back(&saved, &new).unwrap();
    let restored = open(&new);
    let head = restored.bounds().await.unwrap().head;
    assert_eq!(head.0, manifest.feed.head_seq);
    let early = |entry: &Entry| match entry {
        Entry::Record(record) => record.seq <= head,
        Entry::Row(row) => row.seq <= head,
        // Sums, which went on.
        Entry::Dedupe(..) | Entry::Topic(..) | Entry::Node(..) => false,
        _ => true,
    };
    let entries = |entries: Vec<Entry>| entries.into_iter().filter(early).collect::<Vec<_>>();
    assert_eq!(entries(dump(&restored).await), entries(dump(&*store).await));
    let filters = vec![Filter::parse(r##"{"#t":["kukuri:global"]}"##).unwrap()];
    let query =
        Query { filters, after: None, now: NOW, limit_max: 9000, rows_max: 90_000, bodies_max: 0 };
    assert_eq!(restored.query(query).await.unwrap().hits.len() as i64, head.0);
}

/// Whatever the rules left in the tables is in the restored ones, and the store goes on from there.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_is_restored_in_a_new_life() {
    let seed = Seed::of_run("-p kukuri-store-sqlite -E 'binary(backup)'");
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    let store = open(&data);
    let world = World::new(seed, 0, 60);
    let commands = script(&world, &mut seed.dice(), 400);
    for commands in commands[..300].chunks(17) {
        store.apply(commands.into()).await.unwrap();
    }
    // A table of a later version.
    let file = Connection::open(data.join(FILE)).unwrap();
    file.execute_batch("CREATE TABLE later (n INTEGER); INSERT INTO later VALUES (1), (2)")
        .unwrap();
    let bounds = store.bounds().await.unwrap();
    let manifest = save(&data, &saved).unwrap();
    assert_eq!((manifest.made_at, manifest.rows("later")), (5, 2));
    assert_eq!(fs::read_dir(&saved).unwrap().count(), 2, "the data and its manifest");
    assert_eq!(manifest.rows("events_outbox") as i64, bounds.head.0);
    bring_back(&saved, &new).unwrap();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1, "nothing lies beside the file");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&new), mode(&new.join(FILE))), (0o700, 0o600));
    let restored = open(&new);
    assert_eq!(dump(&restored).await, dump(&store).await);
    let later = Connection::open(new.join(FILE)).unwrap();
    assert_eq!(later.query_row("SELECT sum(n) FROM later", [], |row| row.get::<_, i64>(0)), Ok(3));
    let now = restored.bounds().await.unwrap();
    assert_eq!((now.floor, now.head), (bounds.floor, bounds.head));
    let old = Cursor { epoch: bounds.epoch, seq: bounds.floor };
    let diverged = FeedError::Cursor(CursorError::Diverged { head: now.head });
    assert_eq!(restored.feed(old, 10).await, Err(diverged));
    for commands in commands[300..].chunks(17) {
        let one = store.apply(commands.into()).await.unwrap();
        let two = restored.apply(commands.into()).await.unwrap();
        assert_eq!((one.outcomes, one.rows), (two.outcomes, two.rows));
    }
    assert_eq!(dump(&restored).await, dump(&store).await);
}

/// A new life even where the clock says the same as when the old one began.
#[tokio::test]
async fn an_epoch_is_never_given_twice() {
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    drop(open(&data));
    save(&data, &saved).unwrap();
    restore(&Backup::open(&saved).unwrap(), &new, EPOCH, &Monitor::default()).unwrap();
    assert_ne!(open(&new).bounds().await.unwrap().epoch.0, EPOCH);
}

#[test]
fn a_place_that_holds_a_store_is_refused() {
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    drop(open(&data));
    save(&data, &saved).unwrap();
    refused(bring_back(&saved, &data), "there is a store in");
    // A log without its file would be taken for a part of the new one.
    fs::create_dir(&new).unwrap();
    fs::write(new.join("events.db-wal"), "").unwrap();
    refused(bring_back(&saved, &new), "there is a store in");
    fs::remove_file(new.join("events.db-wal")).unwrap();
    // What a restore that was killed has left is in nobody's way.
    for file in ["events.db.partial", "events.db.partial-wal"] {
        fs::write(new.join(file), "remains").unwrap();
    }
    bring_back(&saved, &new).unwrap();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
}

/// A second restore emptied the file that the first was filling or had just made the store of, and the
/// first said that it was done.
#[test]
fn two_restores_at_once_make_one_store() {
    let home = TempDir::new().unwrap();
    let (data, saved) = (home.path().join("data"), home.path().join("saved"));
    drop(open(&data));
    let file = Connection::open(data.join(FILE)).unwrap();
    file.execute_batch("CREATE TABLE bulk (b); INSERT INTO bulk VALUES (zeroblob(8 << 20))")
        .unwrap();
    drop(file);
    save(&data, &saved).unwrap();
    let hit = (0..TRIES_MAX).find(|nth| {
        let new = home.path().join(format!("new{nth}"));
        let together = Barrier::new(2);
        let run = || {
            together.wait();
            bring_back(&saved, &new)
        };
        let ended = std::thread::scope(|scope| {
            let both = [scope.spawn(run), scope.spawn(run)];
            both.map(|one| one.join().unwrap())
        });
        let (made, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{refused:?}");
        let file = Connection::open(new.join(FILE)).unwrap();
        let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        drop(file);
        assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
        refused[0].as_ref().unwrap_err().to_string().contains("a restore is running in")
    });
    println!("the restores met in try {hit:?}");
    assert!(hit.is_some(), "the two never met");
}

#[test]
fn a_restore_that_runs_is_left_alone() {
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    drop(open(&data));
    save(&data, &saved).unwrap();
    fs::create_dir(&new).unwrap();
    let partial = new.join("events.db.partial");
    fs::write(&partial, "another's").unwrap();
    let lock = File::open(&new).unwrap();
    lock.lock().unwrap();
    refused(bring_back(&saved, &new), "a restore is running in");
    assert_eq!(fs::read(&partial).unwrap(), b"another's");
    // It was killed after its file had become a store, which was moved away since.
    let moved = home.path().join("moved.db");
    fs::hard_link(&partial, &moved).unwrap();
    drop(lock);
    bring_back(&saved, &new).unwrap();
    assert_eq!(fs::read(&moved).unwrap(), b"another's");
}

#[tokio::test]
async fn who_is_interrupted_or_finds_damage_leaves_nothing() {
    let home = TempDir::new().unwrap();
    let (data, saved, new) =
        (home.path().join("data"), home.path().join("saved"), home.path().join("new"));
    let store = open(&data);
    store.apply(batch([Act::carry(TopicId::global(), "")])).await.unwrap();
    let ended = Monitor::default();
    ended.end();
    let backup = back_up(&data, &saved, UnixMillis(5), &ended);
    assert!(matches!(backup, Err(BackupError::Interrupted)));
    assert!(!saved.exists());
    save(&data, &saved).unwrap();
    let backup = Backup::open(&saved).unwrap();
    assert!(matches!(restore(&backup, &new, 2, &ended), Err(BackupError::Interrupted)));
    assert!(!new.exists());
    let file = saved.join(FILE);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    refused(bring_back(&saved, &new), "events.db is damaged: its checksum");
    assert!(!new.exists());
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let manifest = saved.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let mut other = Backup::open(&saved).unwrap().manifest().clone();
    other.feed.head_seq += 1;
    fs::write(&manifest, seal(&serde_json::to_string(&other).unwrap())).unwrap();
    refused(bring_back(&saved, &new), "its feed is not the one that its manifest names");
    assert!(!new.exists());
    fs::write(&manifest, text).unwrap();
    bring_back(&saved, &new).unwrap();
    let restored = open(&new);
    let outcomes = restored.apply(batch(notes(1, 1, 1))).await.unwrap().outcomes;
    assert_eq!(outcomes, [Outcome::Accepted]);
}

#[test]
fn a_newer_file_is_refused() {
    let home = TempDir::new().unwrap();
    let (data, saved) = (home.path().join("data"), home.path().join("saved"));
    drop(open(&data));
    let file = Connection::open(data.join(FILE)).unwrap();
    file.pragma_update(None, "user_version", 999).unwrap();
    refused(save(&data, &saved), "run the newer program");
    assert!(!saved.exists());
}
