//! Partitions are there before they are needed, whatever the clock does, and come back when they
//! were taken away.

use kukuri_core::{Act, Outcome, UnixMillis};
use kukuri_store::{Store, Tidied};
use kukuri_store_postgres::Options;
use kukuri_testkit::condition::until;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};

use crate::rig::{
    self, NOW, OPTIONS, apply, feed, found, jsons, note, notes, publish, publish_at, store,
    store_with, topic,
};

const FOUR_ROWS: Options = Options { partition_rows_min: 4, ..OPTIONS };

const DAY: i64 = 24 * 60 * 60 * 1000;

fn filter() -> String {
    format!(r##"{{"#t":["{}"]}}"##, topic())
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_and_events_cross_partitions() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, FOUR_ROWS).await;
    let events = notes(1, 40);
    // Some batches end within a partition, some fill several.
    for batch in events.chunks(9) {
        publish(&store, batch).await.unwrap();
    }
    assert_eq!(feed(&store).await.len(), events.len());
    assert_eq!(found(&store, &filter()).await, jsons(&events));
    for parent in ["events_outbox", "events_standard"] {
        let count = format!(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'cn_relay.{parent}'::REGCLASS"
        );
        let count: i64 = cluster.sql(&name, &count).unwrap().parse().unwrap();
        assert!(count >= 12, "40 rows in partitions of 4, and two ahead, are {count} of {parent}");
    }
}

/// A store that is opened with another size goes on where the last partition ends.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_another_size_follow() {
    let cluster = rig::cluster();
    let url = cluster.create_database();
    let mut events = Vec::new();
    for (author, rows) in [(1, 3), (2, 50), (3, 1)] {
        let options = Options { partition_rows_min: rows, ..OPTIONS };
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
    let (store, _) = store(&cluster).await;
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
}

/// What is long gets longer partitions, so that there are never many of them.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_grow_with_the_feed() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, FOUR_ROWS).await;
    let events = notes(1, 400);
    for batch in events.chunks(7) {
        publish(&store, batch).await.unwrap();
        // Events may be kept for longer than the feed.
        let trim = Act::Trim(store.bounds().await.unwrap().head);
        apply(&store, NOW.into(), vec![trim]).await.unwrap();
    }
    let sizes = "SELECT end_seq - first_seq FROM cn_relay.event_partitions ORDER BY first_seq";
    let sizes = cluster.sql(&name, sizes).unwrap();
    let sizes: Vec<i64> = sizes.lines().map(|size| size.parse().unwrap()).collect();
    assert_eq!(sizes[0], 4);
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert!(sizes.last().is_some_and(|size| (35..=400 / 8).contains(size)), "{sizes:?}");
    assert!(sizes.len() <= 40, "where a hundred of the least size would be: {sizes:?}");
    assert_eq!(found(&store, &filter()).await, jsons(&events));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_dropped_is_made_again() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    publish(&store, &[note(1, 1)]).await.unwrap();
    cluster.sql(&name, "DROP TABLE cn_relay.events_standard_1").unwrap();
    let outcomes = publish(&store, &[note(1, 2)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Accepted]);
    let left = "SELECT first_seq, end_seq, events FROM cn_relay.event_partitions ORDER BY 1";
    let left = cluster.sql(&name, left).unwrap();
    assert!(left.starts_with("2|131073|1\n"), "the place of the lost one is counted anew: {left}");
}

/// What an operator has taken out of the store is the operator's, and there is a place for what comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_detached_by_hand_is_not_dropped() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, FOUR_ROWS).await;
    publish(&store, &notes(1, 2)).await.unwrap();
    let detach = "ALTER TABLE cn_relay.events_standard DETACH PARTITION cn_relay.events_standard_1";
    cluster.sql(&name, detach).unwrap();
    let outcomes = publish(&store, &notes(2, 9)).await.unwrap();
    assert_eq!(outcomes, [const { Outcome::Accepted }; 9]);
    while store.tidy().await.unwrap() == Tidied::More {}
    let kept = "SELECT count(*) FROM cn_relay.events_standard_1";
    assert_eq!(cluster.sql(&name, kept).unwrap(), "2");
}

/// An operator's lock holds up what is for later, not what is for now.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_later_does_not_hold_up_what_is_for_now() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, FOUR_ROWS).await;
    publish(&store, &notes(1, 4)).await.unwrap();
    let mut operator = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let lock = "BEGIN; LOCK TABLE cn_relay.events_standard IN SHARE UPDATE EXCLUSIVE MODE";
    raw_sql(lock).execute(&mut operator).await.unwrap();
    // The partition of 5 to 8 is there since the first batch, that of 13 to 16 is not.
    let outcomes = publish(&store, &[note(2, 1)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Accepted]);
    let later = "SELECT to_regclass('cn_relay.events_standard_13') IS NULL";
    assert_eq!(cluster.sql(&name, later).unwrap(), "t");
    raw_sql("COMMIT").execute(&mut operator).await.unwrap();
    store.reopen().await.unwrap();
    publish(&store, &[note(2, 2)]).await.unwrap();
    assert_eq!(cluster.sql(&name, later).unwrap(), "f");
}

/// Making a partition for later waited for a backup that hung, and the batch that was to be written
/// with it. (The lock is the one that a backup holds until it has locked all tables.)
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_hangs_holds_up_only_who_needs_a_partition() {
    let mut settings = Settings::new(Durability::Fast);
    for (option, value) in [("log_lock_waits", "on"), ("deadlock_timeout", "1ms")] {
        settings.options.push((option.into(), value.into()));
    }
    let cluster = Cluster::start_with(&settings).unwrap();
    let (store, name) = store_with(&cluster, FOUR_ROWS).await;
    publish(&store, &notes(1, 4)).await.unwrap();
    let waited = || cluster.log().unwrap().contains("on advisory lock");
    let mut backup = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let key = i64::from_be_bytes(*b"cn_relay");
    let hold = format!("SELECT pg_advisory_lock_shared({key})");
    raw_sql(AssertSqlSafe(hold)).execute(&mut backup).await.unwrap();
    // The partition of 5 to 8 is there since the first batch, that of 13 to 16 is not.
    for nth in 1..4 {
        let outcomes = publish(&store, &[note(2, nth)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Accepted]);
    }
    assert!(!waited(), "{}", cluster.log().unwrap());
    // The control: a partition that is needed is waited for.
    let events = notes(3, 20);
    let publishing = publish(&store, &events);
    let releasing = async {
        until("the batch to wait", waited).await;
        backup.close().await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(publishing, releasing);
    assert_eq!(outcomes.unwrap(), [const { Outcome::Accepted }; 20]);
}
