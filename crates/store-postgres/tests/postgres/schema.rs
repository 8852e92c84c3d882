//! The schema is made once, by whoever comes first, and only by programs that know it.

use kukuri_core::{Act, Seq, UnixMillis};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Store, StoreError};
use kukuri_store_postgres::{Fsync, Options, PostgresStore, Wakeup};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};

use crate::rig::{self, OPTIONS, database, enable, note, open};

/// Everything that a schema is made of, in words that do not depend on when it was made.
pub fn catalog(cluster: &Cluster, database: &str) -> String {
    let columns = "SELECT table_name, column_name, data_type, is_nullable, collation_name
        FROM information_schema.columns WHERE table_schema = 'cn_relay'
        ORDER BY table_name, ordinal_position";
    let indexes =
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'cn_relay' ORDER BY indexname";
    let views =
        "SELECT viewname, definition FROM pg_views WHERE schemaname = 'cn_relay' ORDER BY 1";
    let versions = "SELECT * FROM cn_relay.schema_version ORDER BY 1";
    [columns, indexes, views, versions].map(|sql| cluster.sql(database, sql).unwrap()).join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_again_changes_nothing() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    let first = open(&url).await;
    assert_eq!(dump(&first).await, []);
    let epoch = first.bounds().await.unwrap().epoch;
    let made = catalog(&cluster, &database(&url));
    first.close().await;
    let second = open(&url).await;
    assert_eq!(second.bounds().await.unwrap().epoch, epoch);
    assert_eq!(catalog(&cluster, &database(&url)), made);
    let other = open(&cluster.create_database()).await;
    assert_ne!(other.bounds().await.unwrap().epoch, epoch, "every feed has a life of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_programs_may_start_on_an_empty_database() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    let opened = tokio::join!(open(&url), open(&url), open(&url));
    let epochs = [&opened.0, &opened.1, &opened.2].map(|store| store.bounds());
    let [first, second, third] = epochs;
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!(first, second);
    assert_eq!(second, third);
}

/// A database at every earlier version becomes what a new one is.
#[tokio::test(flavor = "multi_thread")]
async fn upgraded_is_fresh() {
    let cluster = rig::cluster();
    let fresh = cluster.create_database();
    open(&fresh).await.close().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for version in 0..files.len() {
        let url = cluster.create_database();
        let name = database(&url);
        let table = "CREATE SCHEMA cn_relay;
            CREATE TABLE cn_relay.schema_version (version INTEGER NOT NULL PRIMARY KEY)";
        cluster.sql(&name, table).unwrap();
        for (nth, file) in files[..version].iter().enumerate() {
            let sql = std::fs::read_to_string(file).unwrap();
            let sql = format!(
                "SET search_path = cn_relay; {sql}; INSERT INTO schema_version VALUES ({})",
                nth + 1
            );
            cluster.sql(&name, &sql).unwrap();
        }
        open(&url).await.close().await;
        assert_eq!(catalog(&cluster, &name), catalog(&cluster, &database(&fresh)), "{version}");
    }
}

/// Version 6 as it was with events in it: in months, of which one was given up and not dropped yet, one was cut off
/// while it was detached, and one was detached by somebody's hand.
const BACK_TO_MONTHS: &str = "SET search_path = cn_relay;
    ALTER TABLE events DETACH PARTITION events_standard;
    ALTER TABLE events_standard RENAME TO events_by_number;
    DROP INDEX events_longer_by_seq;
    DROP INDEX events_standard_by_seq;
    CREATE INDEX events_by_seq ON events (seq);
    CREATE TABLE events_standard PARTITION OF events FOR VALUES IN (0)
        PARTITION BY RANGE (ingested_at);
    ALTER TABLE events_standard ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE TABLE events_2023_10 PARTITION OF events_standard
        FOR VALUES FROM (MINVALUE) TO ('1698796800000');
    CREATE TABLE events_2023_11 PARTITION OF events_standard
        FOR VALUES FROM ('1698796800000') TO ('1701388800000');
    CREATE TABLE events_2023_12 PARTITION OF events_standard
        FOR VALUES FROM ('1701388800000') TO (MAXVALUE);
    CREATE TABLE events_2023_09 (LIKE events);
    CREATE TABLE events_2023_08 (LIKE events);
    INSERT INTO events_standard SELECT * FROM events_by_number;
    CREATE TABLE event_months (
        month  TEXT COLLATE \"C\" NOT NULL PRIMARY KEY,
        events BIGINT NOT NULL
    ) WITH (fillfactor = 10);
    INSERT INTO event_months VALUES ('2023_08', 1), ('2023_11', 20), ('2023_12', 20);
    DROP TABLE events_by_number;
    DROP TABLE event_partitions;
    DROP TABLE tag_sweeps;
    SET allow_system_table_mods = on;
    UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'events_2023_10'::REGCLASS;
    DELETE FROM schema_version WHERE version >= 7";

#[tokio::test(flavor = "multi_thread")]
async fn events_in_months_become_events_by_number() {
    let cluster = rig::cluster();
    let (store, name) = rig::store(&cluster).await;
    let events = rig::notes(1, 40);
    let (early, late) = events.split_at(20);
    rig::publish(&store, early).await.unwrap();
    let month = UnixMillis(1000 * rig::NOW.0 + 30 * 86_400_000);
    rig::publish_at(&store, month, late).await.unwrap();
    // One that is kept for longer, and so lies elsewhere; and a feed that events have outlived.
    let request = Draft::new(5, rig::NOW).tag("t", rig::topic());
    rig::publish(&store, &[Author::numbered(1).admit(&request, rig::NOW)]).await.unwrap();
    rig::apply(&store, month, vec![Act::Trim(Seq(i64::MAX))]).await.unwrap();
    let before = (dump(&store).await, store.bounds().await.unwrap());
    store.close().await;
    cluster.sql(&name, BACK_TO_MONTHS).unwrap();
    let store = rig::open(&cluster.url(&name)).await;
    assert_eq!((dump(&store).await, store.bounds().await.unwrap()), before);
    let counted = "SELECT first_seq, end_seq, events FROM cn_relay.event_partitions ORDER BY 1";
    assert_eq!(cluster.sql(&name, counted).unwrap(), "1|42|40");
    let months = "SELECT relname FROM pg_class WHERE relname ~ '^events_2023'";
    assert_eq!(cluster.sql(&name, months).unwrap(), "events_2023_08", "what is not ours to drop");
    let outcomes = rig::publish(&store, &rig::notes(2, 3)).await.unwrap();
    assert_eq!(outcomes, [const { kukuri_core::Outcome::Accepted }; 3]);
    let filter = format!(r##"{{"#t":["{}"]}}"##, rig::topic());
    assert_eq!(rig::found(&store, &filter).await.len(), 44);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    open(&url).await.close().await;
    cluster.sql(&database(&url), "INSERT INTO cn_relay.schema_version VALUES (999)").unwrap();
    let Err(StoreError::Corrupt(why)) = PostgresStore::open(&url, OPTIONS).await else {
        panic!("it was opened");
    };
    assert!(why.contains("999") && why.contains("run the newer program"), "{why}");
}

/// Back ends decide nothing: neither by what they do on their own, nor by values nobody gave.
#[tokio::test(flavor = "multi_thread")]
async fn the_schema_decides_nothing() {
    let cluster = rig::cluster();
    let (store, name) = rig::store(&cluster).await;
    rig::publish(&store, &[note(1, 1)]).await.unwrap();
    let count = |sql: &str| cluster.sql(&name, sql).unwrap();
    let ours = "IN (SELECT oid FROM pg_class WHERE relnamespace = 'cn_relay'::REGNAMESPACE)";
    assert_eq!(count(&format!("SELECT count(*) FROM pg_trigger WHERE tgrelid {ours}")), "0");
    assert_eq!(count(&format!("SELECT count(*) FROM pg_attrdef WHERE adrelid {ours}")), "0");
    assert_eq!(
        count(&format!("SELECT count(*) FROM pg_rewrite WHERE ev_type <> '1' AND ev_class {ours}")),
        "0"
    );
    assert_eq!(count("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0"), "0");
    assert_eq!(
        count(
            "SELECT count(*) FROM pg_constraint WHERE contype NOT IN ('p', 'u') AND connamespace = 'cn_relay'::REGNAMESPACE"
        ),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_events_as_they_are_sent() {
    let cluster = rig::cluster();
    let (store, name) = rig::store(&cluster).await;
    let event = note(1, 1);
    rig::publish(&store, std::slice::from_ref(&event)).await.unwrap();
    let shown = cluster.sql(&name, "SELECT event_json FROM cn_relay.events_json").unwrap();
    assert_eq!(shown, event.body().json());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_lose_commits_is_refused() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    let required = Options { fsync: Fsync::Required, ..OPTIONS };
    let Err(StoreError::Unavailable(why)) = PostgresStore::open(&url, required).await else {
        panic!("it was opened");
    };
    assert!(why.contains("fsync=off"), "{why}");
    let store = open(&url).await;
    assert_eq!(store.warnings().len(), 3, "{:?}", store.warnings());
}

/// Where the server would acknowledge early, the lane asks for more and says so.
#[tokio::test(flavor = "multi_thread")]
async fn early_acknowledgement_is_warned_of() {
    let mut settings = Settings::new(Durability::Durable);
    settings.options.push(("synchronous_commit".into(), "off".into()));
    let cluster = Cluster::start_with(&settings).unwrap();
    let required = Options { fsync: Fsync::Required, ..OPTIONS };
    let store = PostgresStore::open(&cluster.create_database(), required).await.unwrap();
    assert!(store.warnings()[0].contains("synchronous_commit=off"), "{:?}", store.warnings());
}

/// `OK true` means synced, whatever the settings say that a session of the lane begins with, and
/// whenever they were made.
#[tokio::test(flavor = "multi_thread")]
async fn the_lane_syncs_whatever_the_default_is() {
    let mut settings = Settings::new(Durability::Durable);
    // What is not synced at a commit stays so for a while.
    settings.options.push(("wal_writer_delay".into(), "10s".into()));
    let cluster = Cluster::start_with(&settings).unwrap();
    let url = cluster.create_database();
    let name = database(&url);
    let options = Options { fsync: Fsync::Required, wakeup: Wakeup::PollOnly, ..Options::STANDARD };
    let store = PostgresStore::open(&url, options).await.unwrap();
    enable(&store).await;
    cluster.sql(&name, "ALTER ROLE postgres SET synchronous_commit = off").unwrap();
    let synced = || {
        let sql = "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()";
        cluster.sql(&name, sql).unwrap() == "t"
    };
    cluster.sql(&name, "UPDATE cn_relay.feed_meta SET floor_seq = floor_seq").unwrap();
    assert!(!synced(), "others are not synced, or this shows nothing");
    store.reopen().await.unwrap();
    rig::publish(&store, &[note(1, 1)]).await.unwrap();
    assert!(synced());
}
