//! What breaks says what it is, and what was not acknowledged can be done again.

use kukuri_core::{Admitted, Duplicate, Outcome, Seq};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{FeedError, Place, QueryError, Store, StoreError};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::proxy::{Cut, Proxy};
use sqlx::{Connection, PgConnection, raw_sql};

use crate::rig::{self, LIMIT, database, enable, feed, note, notes, open, publish, query, store};

/// A cut at COMMIT leaves the outcome unknown; the event's id tells when the batch is run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_unknown_outcome_is_run_again() {
    let cluster = rig::cluster();
    let name = database(&cluster.create_database());
    let proxy = Proxy::start(cluster.port()).unwrap();
    let store = open(&proxy.url(&name)).await;
    enable(&store).await;
    let known = Outcome::Duplicate(Duplicate::Known);
    for (nth, cut, again) in [
        (1, Cut::BeforeCommit, Outcome::Accepted),
        (2, Cut::AfterCommit, known),
        (3, Cut::BeforeCommit, Outcome::Accepted),
    ] {
        let event = [note(1, nth)];
        let cuts = proxy.cuts();
        proxy.cut(cut);
        let failed = publish(&store, &event).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(proxy.cuts(), cuts + 1, "the cut met the commit");
        assert_eq!(publish(&store, &event).await.unwrap(), [again], "{cut:?}");
        assert_eq!(feed(&store).await.len(), nth as usize, "once, and without a hole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_used_again() {
    let mut cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    publish(&store, &notes(1, 5)).await.unwrap();
    feed(&store).await;
    cluster.stop_fast().unwrap();
    let failed = publish(&store, &[note(2, 1)]).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    let failed = store.bounds().await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    cluster.start_again().unwrap();
    assert_eq!(publish(&store, &[note(2, 1)]).await.unwrap(), [Outcome::Accepted]);
    assert_eq!(feed(&store).await.len(), 6);
}

/// Whoever writes past the lane is met by the number that both want to use: nothing is lost or doubled.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_row_is_a_fence() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    publish(&store, &[note(1, 1)]).await.unwrap();
    let mut other = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let row = "BEGIN; SET search_path = cn_relay;
        INSERT INTO events_outbox SELECT 2, created_at, ingested_at, topic_no, kind, via_topic_no,
            op, source, reason, event_id, pubkey, effective_d, prior FROM events_outbox WHERE seq = 1";
    raw_sql(row).execute(&mut other).await.unwrap();
    let lane = tokio::spawn(async move {
        let published = publish(&store, &[note(1, 2)]).await;
        (published, feed(&store).await.iter().map(|row| row.seq.0).collect::<Vec<i64>>())
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'kukuri lane' AND wait_event = 'transactionid'";
    wait_for("the lane to wait", LIMIT, || {
        (cluster.sql(&name, waiting).unwrap() == "1").then_some(())
    })
    .unwrap();
    raw_sql("COMMIT").execute(&mut other).await.unwrap();
    assert_eq!(lane.await.unwrap(), (Ok(vec![Outcome::Accepted]), vec![1, 2, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_sorted_by_what_to_do() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    publish(&store, &notes(1, 3)).await.unwrap();
    let change = |sql: &str| cluster.sql(&name, &format!("SET search_path = cn_relay; {sql}"));

    // The server of a standby, or one that an operator has closed.
    let alter = |how: &str| cluster.sql("postgres", &format!("ALTER DATABASE {name} {how}"));
    alter("SET default_transaction_read_only = on").unwrap();
    store.reopen().await.unwrap();
    let failed = publish(&store, &[note(2, 1)]).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    alter("RESET default_transaction_read_only").unwrap();
    publish(&store, &[note(2, 1)]).await.unwrap();

    // Somebody else holds the lane for longer than one waits.
    let mut other = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let hold = "BEGIN; SELECT revision FROM cn_relay.lane FOR UPDATE";
    raw_sql(hold).execute(&mut other).await.unwrap();
    let failed = publish(&store, &[note(2, 2)]).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    drop(other);

    // Rows that cannot be.
    change("UPDATE events SET state = 9 WHERE seq = 1").unwrap();
    let failed = store.page(Place::Records(None), 10).await;
    assert!(matches!(failed, Err(StoreError::Corrupt(_))), "{failed:?}");
    let start = store.bounds().await.unwrap().start();
    change("DELETE FROM events_outbox WHERE seq = 2").unwrap();
    let failed = store.feed(start, 10).await;
    assert!(matches!(failed, Err(FeedError::Hole { after: Seq(1) })), "{failed:?}");

    // A table is gone.
    change("DROP TABLE deletion_tombstones").unwrap();
    let failed = publish(&store, &[note(2, 3)]).await;
    assert!(matches!(failed, Err(StoreError::Corrupt(_))), "{failed:?}");
}

/// A program that runs on while a newer one changes the schema must not write what that one would not.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_was_changed_is_noticed() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    publish(&store, &notes(1, 3)).await.unwrap();
    // Every migration counts as a batch, so that nobody goes on by what it knew before.
    let migration = "SET search_path = cn_relay; INSERT INTO schema_version VALUES (999);
        UPDATE lane SET revision = revision + 1";
    cluster.sql(&name, migration).unwrap();
    let failed = publish(&store, &[note(2, 1)]).await;
    let told = "another program has changed the schema cn_relay to version 999";
    assert!(matches!(&failed, Err(StoreError::Corrupt(why)) if why.contains(told)), "{failed:?}");
}

/// A store that was open while its database was replaced must not answer from the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_was_replaced_is_noticed() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    let event = note(1, 1);
    publish(&store, std::slice::from_ref(&event)).await.unwrap();
    let filters = [
        format!(r##"{{"#t":["{}"]}}"##, rig::topic()),
        format!(r#"{{"ids":["{}"]}}"#, event.event().id()),
    ];
    for (replace, restore) in [
        ("UPDATE feed_meta SET epoch = epoch + 1", "UPDATE feed_meta SET epoch = epoch - 1"),
        ("DELETE FROM events_outbox", "SELECT"),
    ] {
        let change = |sql| cluster.sql(&name, &format!("SET search_path = cn_relay; {sql}"));
        for filter in &filters {
            assert_eq!(store.query(query(filter, 100)).await.unwrap().hits.len(), 1);
        }
        change(replace).unwrap();
        for filter in &filters {
            let failed = store.query(query(filter, 100)).await;
            assert!(matches!(failed, Err(QueryError::Store(StoreError::Corrupt(_)))), "{failed:?}");
        }
        change(restore).unwrap();
    }
}

/// Rows that a statement means to change and does not find, or finds too many of, are never passed over.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_missing_or_too_many_are_noticed() {
    let cluster = rig::cluster();
    for fault in [
        "DELETE FROM cn_relay.event_topics WHERE seq = 2",
        "DELETE FROM cn_relay.event_tags WHERE seq = 2",
        "INSERT INTO cn_relay.event_tags
            SELECT key, created_at, tie, seq, tag, value || '0' FROM cn_relay.event_tags WHERE seq = 2",
    ] {
        let (store, name) = store(&cluster).await;
        // Their tags go with them, as those of events that leave by the partition do not.
        let draft = |nth| Draft::new(30_023, rig::NOW).tag("t", rig::topic()).tag("d", nth);
        let tagged: Vec<Admitted> =
            (0..3).map(|nth| Author::numbered(1).admit(&draft(nth), rig::NOW)).collect();
        publish(&store, &tagged).await.unwrap();
        cluster.sql(&name, fault).unwrap();
        let unlink = kukuri_core::Act::Unlink {
            topic: rig::topic(),
            events: tagged.iter().map(|event| event.event().id()).collect(),
            reason: kukuri_core::UnlinkReason::Topic,
        };
        let failed = rig::apply(&store, rig::NOW.into(), vec![unlink]).await;
        assert!(matches!(failed, Err(StoreError::Corrupt(_))), "{fault}: {failed:?}");
        assert_eq!(feed(&store).await.len(), 3, "{fault}: nothing of it was written");
    }
}
