//! A backup of the schema is one moment of it, partitions included, whoever writes or drops meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kukuri_core::{Act, Cursor, CursorError, UnixMillis};
use kukuri_store::backup::{Backup, BackupError, Manifest, Monitor, seal};
use kukuri_store::conformance::dump;
use kukuri_store::{FeedError, Store};
use kukuri_store_postgres::backup::{back_up, restore};
use kukuri_store_postgres::{Fsync, Options, PostgresStore};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::generate::{Seed, World, script};
use kukuri_testkit::postgres::Cluster;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::rig::{
    self, LIMIT, NOW, OPTIONS, database, enable, feed, found, jsons, notes, open, publish,
    store_with, topic,
};
use crate::schema::catalog;

/// Partitions of the feed that fill within a test.
const SMALL: Options = Options { partition_rows_min: 40, ..OPTIONS };

pub async fn save(url: &str, to: &Path) -> Result<Manifest, BackupError> {
    timeout(LIMIT, back_up(url, to, UnixMillis(5), &Monitor::default())).await.unwrap()
}

pub async fn bring_back(from: &Path, url: &str) -> Result<Vec<String>, BackupError> {
    let (backup, monitor) = (Arc::new(Backup::open(from)?), Arc::new(Monitor::default()));
    let restored = restore(backup, url, Fsync::AnyForTests, monitor);
    timeout(LIMIT, restored).await.unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, BackupError>, words: &str) {
    let error = result.expect_err(words).to_string();
    assert!(error.contains(words), "{words:?} is not in: {error}");
}

/// Which table is a partition of which, and for what.
fn partitions(cluster: &Cluster, database: &str) -> String {
    let sql = "SELECT i.inhparent::REGCLASS, c.relname, pg_get_expr(c.relpartbound, c.oid),
            (SELECT string_agg(a.attname::TEXT || a.attstorage::TEXT, ' ' ORDER BY a.attname)
                FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relkind IN ('r', 'p')
        ORDER BY 2";
    cluster.sql(database, sql).unwrap()
}

fn tables(cluster: &Cluster, database: &str) -> String {
    let sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'cn_relay'";
    cluster.sql(database, sql).unwrap()
}

/// Whatever the rules left in the tables is in the restored ones, and the store goes on from there.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_is_restored_in_a_new_life() {
    let seed = Seed::of_run("-p kukuri-store-postgres -E 'test(backup)'");
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (url, new) = (cluster.create_database(), cluster.create_database());
    let saved = home.path().join("saved");
    let store = PostgresStore::open(&url, SMALL).await.unwrap();
    let world = World::new(seed, 0, 60);
    let commands = script(&world, &mut seed.dice(), 400);
    for commands in commands[..300].chunks(17) {
        store.apply(commands.into()).await.unwrap();
    }
    let bounds = store.bounds().await.unwrap();
    let manifest = save(&url, &saved).await.unwrap();
    // Rows below the floor may not have been given back yet.
    assert!(manifest.rows("events_outbox") as i64 >= bounds.head.0 - bounds.floor.0);
    assert!(manifest.tables.iter().filter(|table| table.partition.is_some()).count() > 5);
    assert_eq!(bring_back(&saved, &new).await.unwrap(), Vec::<String>::new());
    let restored = PostgresStore::open(&new, SMALL).await.unwrap();
    assert_eq!(dump(&restored).await, dump(&store).await);
    for describe in [catalog, partitions] {
        assert_eq!(describe(&cluster, &database(&new)), describe(&cluster, &database(&url)));
    }
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
    // A backup of the restored store is as good as one of the first.
    let again = home.path().join("again");
    save(&new, &again).await.unwrap();
    let third = cluster.create_database();
    bring_back(&again, &third).await.unwrap();
    assert_eq!(dump(&open(&third).await).await, dump(&store).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_beside_a_busy_writer_is_one_moment() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    let (url, new) = (cluster.url(&name), cluster.create_database());
    let events = notes(1, 6000);
    publish(&store, &events[..1000]).await.unwrap();
    let stop = AtomicBool::new(false);
    let writing = async {
        // One by one, so that they last. Partitions are made meanwhile, too.
        for event in events[1000..].chunks(1) {
            publish(&store, event).await.unwrap();
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    // A copy may be over before the next event is in: then it is no copy beside a writer, and another one is made.
    let copying = async {
        let mut nth = 0;
        loop {
            nth += 1;
            let saved = home.path().join(format!("saved-{nth}"));
            let manifest = save(&url, &saved).await.unwrap();
            let head = store.bounds().await.unwrap().head.0;
            let during = head - manifest.feed.head_seq;
            println!("{during} rows were written while {} bytes were copied", manifest.bytes());
            if during > 0 && manifest.feed.head_seq > 1000 {
                stop.store(true, Ordering::Relaxed);
                return (saved, manifest);
            }
            assert!(head < 6000, "nothing was written during {nth} backups");
        }
    };
    let ((saved, manifest), ()) = tokio::join!(copying, writing);
    bring_back(&saved, &new).await.unwrap();
    let restored = open(&new).await;
    let head = usize::try_from(manifest.feed.head_seq).unwrap();
    assert_eq!(feed(&restored).await, feed(&store).await[..head]);
    let filter = format!(r##"{{"#t":["{}"]}}"##, topic());
    assert_eq!(found(&restored, &filter).await, jsons(&events[..head]));
    publish(&restored, &events).await.unwrap();
    assert_eq!(found(&restored, &filter).await, jsons(&events));
}

/// Retention drops partitions. One that goes while the backup waits for it is not missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_goes_away_is_not_missed() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    publish(&store, &notes(1, 100)).await.unwrap();
    let url = cluster.url(&name);
    let drop_first = async {
        use sqlx::{Connection, Row, raw_sql};
        let mut holding = sqlx::PgConnection::connect(&url).await.unwrap();
        raw_sql(
            "SET search_path = cn_relay; BEGIN; UPDATE feed_meta SET floor_seq = 40;
             LOCK TABLE events_outbox_1 IN ACCESS EXCLUSIVE MODE",
        )
        .execute(&mut holding)
        .await
        .unwrap();
        let mut looking = sqlx::PgConnection::connect(&url).await.unwrap();
        let saved = home.path().join("saved");
        let backup = tokio::spawn({
            let url = url.clone();
            async move { save(&url, &saved).await }
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND application_name = 'kukuri backup'";
        while raw_sql(waiting).fetch_one(&mut looking).await.unwrap().get::<i64, _>(0) == 0 {
            tokio::task::yield_now().await;
        }
        raw_sql("DROP TABLE events_outbox_1; COMMIT").execute(&mut holding).await.unwrap();
        backup.await.unwrap().unwrap()
    };
    let manifest = timeout(LIMIT, drop_first).await.unwrap();
    assert_eq!((manifest.feed.floor_seq, manifest.feed.head_seq), (40, 100));
    let new = cluster.create_database();
    bring_back(&home.path().join("saved"), &new).await.unwrap();
    let rows = feed(&open(&new).await).await;
    assert_eq!((rows.len(), rows[0].seq.0), (60, 41));
}

/// A table that no migration made, such as one that left its parent and was not dropped yet.
#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_no_store_is_left_out_by_name() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    publish(&store, &notes(1, 100)).await.unwrap();
    let sql = "SET search_path = cn_relay; UPDATE feed_meta SET floor_seq = 40;
        ALTER TABLE events_outbox DETACH PARTITION events_outbox_1";
    cluster.sql(&name, sql).unwrap();
    save(&cluster.url(&name), &home.path().join("saved")).await.unwrap();
    let new = cluster.create_database();
    let left_out = bring_back(&home.path().join("saved"), &new).await.unwrap();
    assert_eq!(left_out, ["events_outbox_1"]);
    assert_eq!(feed(&open(&new).await).await.len(), 60);
    cluster.sql(&name, "CREATE TABLE cn_relay.\"no name\" ()").unwrap();
    refused(save(&cluster.url(&name), &home.path().join("strange")).await, "no name");
}

/// A backup of an older version is restored at that version, and then brought up to date.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_backup_is_brought_up_to_date() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (fresh, old, new) =
        (cluster.create_database(), cluster.create_database(), cluster.create_database());
    open(&fresh).await.close().await;
    let first = include_str!("../../migrations/0001_event_store.sql");
    let sql = format!(
        "CREATE SCHEMA cn_relay; SET search_path = cn_relay; {first};
         CREATE TABLE schema_version (version INTEGER NOT NULL PRIMARY KEY);
         INSERT INTO schema_version VALUES (1); INSERT INTO feed_meta VALUES (7, 0, 0)"
    );
    cluster.sql(&database(&old), &sql).unwrap();
    let manifest = save(&old, &home.path().join("saved")).await.unwrap();
    assert_eq!((manifest.schema_version, manifest.feed.epoch), (1, 7));
    bring_back(&home.path().join("saved"), &new).await.unwrap();
    assert_eq!(catalog(&cluster, &database(&new)), catalog(&cluster, &database(&fresh)));
    let restored = open(&new).await;
    enable(&restored).await;
    publish(&restored, &notes(1, 3)).await.unwrap();
    let unknown = "UPDATE cn_relay.schema_version SET version = 999";
    cluster.sql(&database(&old), unknown).unwrap();
    refused(save(&old, &home.path().join("newer")).await, "run the newer program");
    assert!(!home.path().join("newer").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_or_interrupted_changes_nothing() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    publish(&store, &notes(1, 100)).await.unwrap();
    let (url, new, saved) =
        (cluster.url(&name), cluster.create_database(), home.path().join("saved"));
    let ended = Arc::new(Monitor::default());
    ended.end();
    let interrupted = back_up(&url, &saved, UnixMillis(5), &ended).await;
    assert!(matches!(interrupted, Err(BackupError::Interrupted)));
    assert!(!saved.exists());
    save(&url, &saved).await.unwrap();
    refused(bring_back(&saved, &url).await, "the database holds a store already");
    let backup = Arc::new(Backup::open(&saved).unwrap());
    let interrupted = restore(Arc::clone(&backup), &new, Fsync::AnyForTests, ended).await;
    assert!(matches!(interrupted, Err(BackupError::Interrupted)));
    let manifest = saved.join("manifest.json");
    let text = serde_json::to_string_pretty(backup.manifest()).unwrap();
    let spoiled = [
        ("\"rows\": 20", "\"rows\": 21", "has 20 rows, its manifest says 21"),
        ("\"head_seq\": 100", "\"head_seq\": 101", "its feed is not the one"),
        ("\"schema_version\": ", "\"schema_version\": 99", "this program knows up to"),
        ("FOR VALUES FROM ('1')", "FOR VALUES FROM (f())", "are no bounds"),
        ("\"events_outbox\"\n", "\"events_outbox; DROP\"\n", "is no name"),
        ("\"seq\"", "\"seq\\\"\"", "is no name"),
        ("\"created_at\",", "", "storage is corrupt"),
    ];
    for (good, bad, words) in spoiled {
        assert!(text.contains(good), "{good} is not in {text}");
        fs::write(&manifest, seal(&text.replace(good, bad))).unwrap();
        refused(bring_back(&saved, &new).await, words);
        assert_eq!(tables(&cluster, &database(&new)), "0", "{bad}");
    }
    fs::write(&manifest, seal(&text)).unwrap();
    let part = saved.join("events_outbox_1.copy");
    let bytes = fs::read(&part).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&part, flipped).unwrap();
    refused(bring_back(&saved, &new).await, "events_outbox_1.copy is damaged: its checksum");
    assert_eq!(tables(&cluster, &database(&new)), "0");
    fs::write(&part, bytes).unwrap();
    bring_back(&saved, &new).await.unwrap();
    assert_eq!(dump(&open(&new).await).await, dump(&store).await);
}

/// A manifest without a table was taken for a whole one, and the table stayed empty.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_and_every_part_is_wanted_once() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    publish(&store, &notes(1, 100)).await.unwrap();
    let (new, saved) = (cluster.create_database(), home.path().join("saved"));
    let made = save(&cluster.url(&name), &saved).await.unwrap();
    let spoil = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = made.clone();
        change(&mut manifest);
        let text = seal(&serde_json::to_string(&manifest).unwrap());
        fs::write(saved.join("manifest.json"), text).unwrap();
    };
    // Tables that migrations make, a partition among them.
    for gone in ["events_longer", "expirations", "node_subscriptions"] {
        let file = format!("{gone}.copy");
        spoil(&|manifest| manifest.tables.retain(|table| table.name != gone));
        refused(bring_back(&saved, &new).await, &format!("{file} belongs to no table"));
        spoil(&|manifest| {
            manifest.tables.retain(|table| table.name != gone);
            manifest.parts.retain(|part| part.file != file);
        });
        refused(bring_back(&saved, &new).await, &format!("it has no table {gone}"));
    }
    spoil(&|manifest| manifest.tables[1].file = manifest.tables[0].file.clone());
    refused(bring_back(&saved, &new).await, "has no part of its own");
    spoil(&|manifest| manifest.tables[1].file = None);
    refused(bring_back(&saved, &new).await, "has no part of its own");
    spoil(&|manifest| manifest.tables.push(manifest.tables[0].clone()));
    refused(bring_back(&saved, &new).await, "is named twice");
    assert_eq!(tables(&cluster, &database(&new)), "0");
    spoil(&|_| {});
    bring_back(&saved, &new).await.unwrap();
}

/// A connection was kept while all parts were read, and a server or proxy that ends silent ones made
/// long restores impossible.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_connected_while_parts_are_read() {
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (_store, name) = store_with(&cluster, SMALL).await;
    // A part that is not restored, and is read only as long as the test lets it.
    cluster.sql(&name, "CREATE TABLE cn_relay.later (n INTEGER)").unwrap();
    let (new, saved) = (cluster.create_database(), home.path().join("saved"));
    let mut manifest = save(&cluster.url(&name), &saved).await.unwrap();
    let later = manifest.parts.iter_mut().find(|part| part.file == "later.copy").unwrap();
    later.bytes = 0;
    later.sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
    let text = seal(&serde_json::to_string(&manifest).unwrap());
    fs::write(saved.join("manifest.json"), text).unwrap();
    let pipe = saved.join("later.copy");
    fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let restoring = tokio::spawn({
        let (saved, new) = (saved.clone(), new.clone());
        async move { bring_back(&saved, &new).await }
    });
    // Opens when the other end is opened, and keeps the reader waiting.
    let opened = tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(pipe));
    let writer = timeout(LIMIT, opened).await.unwrap().unwrap().unwrap();
    let connected = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'
            AND application_name LIKE 'kukuri%'",
        database(&new)
    );
    let alone = || (cluster.sql(&name, &connected).unwrap() == "0").then_some(());
    // Well before the restore itself is given up, which would end a connection, too.
    wait_for("the connection to end", LIMIT / 2, alone).unwrap();
    drop(writer);
    assert_eq!(restoring.await.unwrap().unwrap(), ["later"]);
}

/// A backup in the middle of a table is given up at once, whatever the server does.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_holds_nobody() {
    use sqlx::{Connection, raw_sql};
    let (cluster, home) = (rig::cluster(), TempDir::new().unwrap());
    let (store, name) = store_with(&cluster, SMALL).await;
    rig::apply(&store, NOW.into(), vec![Act::carry(topic(), "again")]).await.unwrap();
    let url = cluster.url(&name);
    let mut holding = sqlx::PgConnection::connect(&url).await.unwrap();
    let lock = "BEGIN; LOCK TABLE cn_relay.events IN ACCESS EXCLUSIVE MODE";
    raw_sql(lock).execute(&mut holding).await.unwrap();
    let (monitor, saved) = (Monitor::default(), home.path().join("saved"));
    let backup = back_up(&url, &saved, UnixMillis(5), &monitor);
    let ending = async {
        let begun = saved.clone();
        let begins =
            move || wait_for("the backup to begin", LIMIT, || begun.exists().then_some(()));
        tokio::task::spawn_blocking(begins).await.unwrap().unwrap();
        monitor.end();
    };
    let (ended, ()) = timeout(LIMIT, async { tokio::join!(backup, ending) }).await.unwrap();
    assert!(matches!(ended, Err(BackupError::Interrupted)));
    assert!(!saved.exists());
}
