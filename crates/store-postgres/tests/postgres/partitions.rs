//! Partitions are there before they are needed, whatever the clock does, and come back when they
//! were taken away.

use kukuri_core::{Outcome, UnixMillis};
use kukuri_store::Store;
use kukuri_store_postgres::Options;
use kukuri_testkit::condition::until;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};

use crate::rig::{
    self, NOW, OPTIONS, feed, found, jsons, note, notes, publish, publish_at, store, store_with,
    topic,
};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn filter() -> String {
    format!(r##"{{"#t":["{}"]}}"##, topic())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_crosses_partitions() {
    let cluster = rig::cluster();
    let options = Options { outbox_partition_rows: 4, ..OPTIONS };
    let (store, name) = store_with(&cluster, options).await;
    let events = notes(1, 40);
    // Some batches end within a partition, some fill several.
    for batch in events.chunks(9) {
        publish(&store, batch).await.unwrap();
    }
    assert_eq!(feed(&store).await.len(), events.len());
    assert_eq!(found(&store, &filter()).await, jsons(&events));
    let count =
        "SELECT count(*) FROM pg_inherits WHERE inhparent = 'cn_relay.events_outbox'::REGCLASS";
    let count: i64 = cluster.sql(&name, count).unwrap().parse().unwrap();
    assert!(count >= 12, "40 rows in partitions of 4, and two ahead, are {count}");
}

/// A store that is opened with another size goes on where the last partition ends.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_another_size_follow() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    let mut events = Vec::new();
    for (author, rows) in [(1, 3), (2, 50), (3, 1)] {
        let options = Options { outbox_partition_rows: rows, ..OPTIONS };
        let store = kukuri_store_postgres::PostgresStore::open(&url, options).await.unwrap();
        rig::enable(&store).await;
        let more = notes(author, 20);
        publish(&store, &more).await.unwrap();
        events.extend(more);
        assert_eq!(feed(&store).await.len(), events.len());
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_leap_and_go_back() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    let now = UnixMillis::from(NOW).0;
    let times =
        [now, now + 70 * DAY, now - 400 * DAY, 0, -1, now + 20_000 * DAY, i64::MAX, i64::MIN];
    let events = notes(1, times.len() as i64);
    for (at, event) in times.iter().zip(&events) {
        let outcomes = publish_at(&store, UnixMillis(*at), std::slice::from_ref(event)).await;
        assert_eq!(outcomes.unwrap(), [Outcome::Accepted], "at {at}");
    }
    assert_eq!(found(&store, &filter()).await, jsons(&events));
    for event in &events {
        let by_id = format!(r#"{{"ids":["{}"]}}"#, event.event().id());
        assert_eq!(found(&store, &by_id).await, [event.body().json()]);
    }
    let months = cluster
        .sql(
            &name,
            "SELECT relname FROM pg_class WHERE relname ~ '^events_(2023|2024)_[0-9]+$' ORDER BY 1",
        )
        .unwrap();
    let expected = ["2023_11", "2023_12", "2024_01", "2024_02", "2024_03"];
    assert_eq!(months, expected.map(|month| format!("events_{month}")).join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_dropped_is_made_again() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    publish(&store, &[note(1, 1)]).await.unwrap();
    cluster.sql(&name, "DROP TABLE cn_relay.events_2023_11").unwrap();
    let outcomes = publish(&store, &[note(1, 2)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Accepted]);
}

/// An operator's lock holds up what is for later, not what is for now.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_later_does_not_hold_up_what_is_for_now() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    let mut operator = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let lock = "BEGIN; LOCK TABLE cn_relay.events_standard IN SHARE UPDATE EXCLUSIVE MODE";
    raw_sql(lock).execute(&mut operator).await.unwrap();
    // December is there since November, February is not.
    let december = UnixMillis(UnixMillis::from(NOW).0 + 30 * DAY);
    let outcomes = publish_at(&store, december, &[note(1, 1)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Accepted]);
    let february = "SELECT to_regclass('cn_relay.events_2024_02') IS NULL";
    assert_eq!(cluster.sql(&name, february).unwrap(), "t");
    raw_sql("COMMIT").execute(&mut operator).await.unwrap();
    store.reopen().await.unwrap();
    publish_at(&store, december, &[note(1, 2)]).await.unwrap();
    assert_eq!(cluster.sql(&name, february).unwrap(), "f");
}

/// Making a partition for a month to come waited for a backup that hung, and the batch that was to be written
/// with it. (The lock is the one that a backup holds until it has locked all tables.)
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_hangs_holds_up_only_who_needs_a_partition() {
    let mut settings = Settings::new(Durability::Fast);
    for (option, value) in [("log_lock_waits", "on"), ("deadlock_timeout", "1ms")] {
        settings.options.push((option.into(), value.into()));
    }
    let cluster = Cluster::start_with(&settings).unwrap();
    let (store, name) = store(&cluster).await;
    let waited = || cluster.log().unwrap().contains("on advisory lock");
    let mut backup = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let key = i64::from_be_bytes(*b"cn_relay");
    let hold = format!("SELECT pg_advisory_lock_shared({key})");
    raw_sql(AssertSqlSafe(hold)).execute(&mut backup).await.unwrap();
    // December is there since November, February is not.
    let december = UnixMillis(UnixMillis::from(NOW).0 + 30 * DAY);
    for nth in 1..4 {
        let outcomes = publish_at(&store, december, &[note(1, nth)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Accepted]);
    }
    assert!(!waited(), "{}", cluster.log().unwrap());
    // The control: a month that is needed is waited for.
    let february = UnixMillis(UnixMillis::from(NOW).0 + 90 * DAY);
    let event = [note(1, 4)];
    let publishing = publish_at(&store, february, &event);
    let releasing = async {
        until("the batch to wait", waited).await;
        backup.close().await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(publishing, releasing);
    assert_eq!(outcomes.unwrap(), [Outcome::Accepted]);
}
