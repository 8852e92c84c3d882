//! Processes learn of each other's commits. A store that only polls, or polls hardly ever, shows
//! which way the word came.

use std::time::Duration;

use kukuri_core::Seq;
use kukuri_store::Store;
use kukuri_store_postgres::{Options, PostgresStore, Wakeup};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::Cluster;
use tokio::time::timeout;

use crate::rig::{self, LIMIT, OPTIONS, database, enable, feed, note, notes, publish};

/// Longer than any test: whoever hears of a commit in time was told.
const NEVER: Duration = Duration::from_secs(3600);

const TOLD: Options = Options { poll_interval: NEVER, ..OPTIONS };

async fn sees(store: &PostgresStore, head: Seq) {
    let mut heads = store.heads();
    timeout(LIMIT, heads.wait_for(|seen| *seen >= head)).await.unwrap().unwrap();
}

async fn pair(cluster: &Cluster, options: Options) -> (PostgresStore, PostgresStore, String) {
    let url = cluster.create_database();
    let first = PostgresStore::open(&url, options.clone()).await.unwrap();
    enable(&first).await;
    let second = PostgresStore::open(&url, options).await.unwrap();
    (first, second, database(&url))
}

/// How many sessions of this sort the server has on the database.
fn sessions(cluster: &Cluster, name: &str, which: &str) -> usize {
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = '{name}' AND application_name LIKE '{which}'"
    );
    cluster.sql("postgres", &count).unwrap().parse().unwrap()
}

fn listening(cluster: &Cluster, name: &str) {
    // The last statement of a listener that waits is the one that reads the head.
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'
         AND application_name = 'kukuri listener' AND state = 'idle' AND query LIKE '%EXECUTE%'"
    );
    wait_for("two listeners", LIMIT, || {
        (cluster.sql("postgres", &waits).unwrap() == "2").then_some(())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_told_to_other_processes() {
    let cluster = rig::cluster();
    let (first, second, name) = pair(&cluster, TOLD).await;
    listening(&cluster, &name);
    for nth in 1..=10 {
        publish(&first, &[note(1, nth)]).await.unwrap();
        assert_eq!(*first.heads().borrow(), Seq(nth), "its own at once");
    }
    sees(&second, Seq(10)).await;
    publish(&second, &notes(2, 5)).await.unwrap();
    sees(&first, Seq(15)).await;
}

/// What was said while nobody listened is found by looking.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_was_cut_begins_again() {
    let cluster = rig::cluster();
    let (first, second, name) = pair(&cluster, TOLD).await;
    listening(&cluster, &name);
    for nth in 1..=3 {
        let cut = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = '{name}' AND application_name IN ('kukuri listener', 'kukuri notifier')"
        );
        cluster.sql("postgres", &cut).unwrap();
        publish(&first, &[note(1, nth)]).await.unwrap();
        sees(&second, Seq(nth)).await;
        listening(&cluster, &name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_is_enough() {
    let cluster = rig::cluster();
    let options =
        Options { wakeup: Wakeup::PollOnly, poll_interval: Duration::from_millis(20), ..OPTIONS };
    let (first, second, name) = pair(&cluster, options).await;
    publish(&first, &notes(1, 3)).await.unwrap();
    sees(&second, Seq(3)).await;
    assert_eq!(sessions(&cluster, &name, "kukuri listener"), 0);
    assert_eq!(sessions(&cluster, &name, "kukuri notifier"), 0);
}

/// Two lanes at once: each commit has the numbers after the other's, none twice and none left out.
#[tokio::test(flavor = "multi_thread")]
async fn two_lanes_share_one_feed() {
    let cluster = rig::cluster();
    let (first, second, _) = pair(&cluster, OPTIONS).await;
    let run = async |store: &PostgresStore, author: u32| {
        for batch in notes(author, 60).chunks(3) {
            publish(store, batch).await.unwrap();
        }
    };
    tokio::join!(run(&first, 1), run(&second, 2));
    let rows = feed(&first).await;
    assert_eq!(rows.len(), 120);
    assert_eq!(rows, feed(&second).await);
    sees(&first, Seq(120)).await;
    sees(&second, Seq(120)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_store_that_went() {
    let cluster = rig::cluster();
    let (first, second, name) = pair(&cluster, TOLD).await;
    publish(&first, &notes(1, 3)).await.unwrap();
    feed(&second).await;
    assert!(sessions(&cluster, &name, "kukuri%") >= 4);
    first.close().await;
    drop(second);
    wait_for("the end of all sessions", LIMIT, || {
        (sessions(&cluster, &name, "kukuri%") == 0).then_some(())
    })
    .unwrap();
}
