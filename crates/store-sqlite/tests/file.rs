//! The file itself: made once, upgraded by steps, refused when it is newer than the program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Command, TopicId, UnixMillis};
use kukuri_store::{Store, StoreError};
use kukuri_store_sqlite::{FILE, Options, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn schema(directory: &TempDir) -> Vec<(String, Option<String>)> {
    let conn = Connection::open(directory.path().join(FILE)).expect("the file opens");
    let mut select =
        conn.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").expect("sql");
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

fn open(directory: &TempDir, epoch: i64) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(directory.path(), Options::standard(epoch))
}

#[tokio::test]
async fn migrations_applied_twice_are_applied_once() {
    let directory = TempDir::new().unwrap();
    drop(open(&directory, 7).unwrap());
    let first = schema(&directory);
    let again = open(&directory, 8).unwrap();
    assert_eq!(again.bounds().await.unwrap().epoch.0, 7, "an epoch is for life");
    drop(again);
    assert_eq!(schema(&directory), first);
}

/// What people wrote is nobody else's to read, whatever the system lets programs do by default.
#[tokio::test]
async fn only_the_owner_may_read_the_files() {
    let root = TempDir::new().unwrap();
    let directory = root.path().join("some/where");
    let store = SqliteStore::open(&directory, Options::standard(1)).unwrap();
    let act = Act::carry(TopicId::global(), "");
    store.apply([Command { at: UnixMillis(0), act }].into()).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&root.path().join("some"))), (0o700, 0o700));
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap()).collect();
    assert!(files.len() > 1, "the file and its log: {files:?}");
    for file in files {
        assert_eq!(mode(&file.path()), 0o600, "{file:?}");
    }
}

/// An older program that ran on while a newer one changed the file wrote to it as it always had.
#[tokio::test]
async fn a_file_that_became_newer_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory, 1).unwrap();
    let set = |at| {
        let act = Act::carry(TopicId::global(), "");
        store.apply([Command { at: UnixMillis(at), act }].into())
    };
    set(0).await.unwrap();
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    let stops = |error: StoreError| {
        let text = error.to_string();
        assert!(text.contains("999") && text.contains("run the newer program"), "{text}");
    };
    stops(set(1).await.unwrap_err());
    stops(store.tidy().await.unwrap_err());
    stops(store.bounds().await.unwrap_err());
    stops(store.topics().await.unwrap_err());
    drop(store);
    let updated = "SELECT updated_at FROM node_subscriptions";
    assert_eq!(conn.query_row(updated, [], |row| row.get::<_, i64>(0)), Ok(0));
}

#[test]
fn a_newer_file_is_refused_by_name_and_number() {
    let directory = TempDir::new().unwrap();
    drop(open(&directory, 1).unwrap());
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    let Err(StoreError::Corrupt(message)) = open(&directory, 1) else {
        panic!("a newer schema was opened");
    };
    for part in [FILE, "schema 999", "run the newer program"] {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_by_name() {
    let directory = TempDir::new().unwrap();
    std::fs::write(
        directory.path().join(FILE),
        "not a database, and long enough to be read as one".repeat(99),
    )
    .unwrap();
    let Err(StoreError::Corrupt(message)) = open(&directory, 1) else {
        panic!("something else than a database was opened");
    };
    assert!(message.contains(FILE), "{message}");
}

#[tokio::test]
async fn the_settings_that_durability_rests_on_are_set() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory, 1).unwrap();
    let topic = Act::carry(TopicId::global(), "");
    let batch: Arc<[Command]> = Arc::new([Command { at: UnixMillis(1), act: topic }]);
    store.apply(batch).await.unwrap();
    let conn = Connection::open(directory.path().join(FILE)).unwrap();
    let text = |name| conn.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
    let number = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(text("journal_mode"), "wal");
    assert_eq!(number("auto_vacuum"), 2, "incremental");
}

/// Who only reads needs no space: a store that is there is opened without a commit.
#[test]
fn opening_what_is_there_writes_nothing() {
    let directory = TempDir::new().unwrap();
    let first = open(&directory, 1).unwrap();
    let watching = Connection::open(directory.path().join(FILE)).unwrap();
    let commits = || watching.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0));
    let before = commits().unwrap();
    drop(open(&directory, 1).unwrap());
    assert_eq!(commits().unwrap(), before);
    drop(first);
}

/// Reads are quicker without a log to look into, so it is moved when nobody writes.
#[tokio::test]
async fn the_log_is_moved_into_the_file_in_a_quiet_moment() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory, 1).unwrap();
    let topic = Act::carry(TopicId::global(), "");
    let batch: Arc<[Command]> = Arc::new([Command { at: UnixMillis(1), act: topic }]);
    store.apply(batch).await.unwrap();
    // The file alone, without its log.
    let alone = TempDir::new().unwrap();
    let topics = || {
        let copy = alone.path().join(FILE);
        std::fs::copy(directory.path().join(FILE), &copy).unwrap();
        let conn = Connection::open(copy).unwrap();
        conn.query_row("SELECT count(*) FROM node_subscriptions", [], |row| row.get::<_, i64>(0))
    };
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let moved = async {
        // A copy made in the middle of it is none.
        while topics() != Ok(1) {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), moved).await.expect("the log is moved");
    drop(store);
}
