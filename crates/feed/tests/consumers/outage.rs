//! What is away comes back: nothing is parked, and nothing is done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use kukuri_core::{Cursor, Facts, FeedRow, ReadSet};
use kukuri_feed::{FeedError, Home, RunnerConfig};
use kukuri_store::conformance::double::Double;
use kukuri_store::{Model, Store, StoreError};
use kukuri_testkit::postgres::{Cluster, Durability};

use crate::notes::{AWAY, Notes};
use crate::rig::{Ground, Running, config, model, nothing_parked, post, posts, runner};

/// More often than a row that is tried alone may end its worker.
const ABSENCES: u64 = 6;

/// A store that is away now and then.
struct Flaky {
    model: Arc<Model>,
    away: AtomicBool,
}

#[async_trait]
impl Double for Flaky {
    fn behind(&self) -> &dyn Store {
        &*self.model
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        self.check()?;
        self.model.feed(after, rows_max).await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.check()?;
        self.model.facts(needs).await
    }
}

impl Flaky {
    fn check(&self) -> Result<(), StoreError> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("as the test wants it".into())),
            false => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_store_that_is_away_parks_nothing() {
    for ground in Ground::both() {
        let ground = ground();
        let flaky = Arc::new(Flaky { model: model().await, away: AtomicBool::new(false) });
        let store: Arc<dyn Store> = flaky.clone();
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        running.caught_up().await;
        flaky.away.store(true, Ordering::Relaxed);
        posts(&*store, 0..50).await;
        let behind = |report: &kukuri_feed::Report| report.active().unwrap().lag_rows == 50;
        running.until("the consumer to be behind", behind).await;
        flaky.away.store(false, Ordering::Relaxed);
        nothing_parked(running, &*store, &ground.home().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_in_the_way_is_waited_for() {
    for ground in Ground::both() {
        let ground = ground();
        let (full, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let obstacle = {
            let (full, asked) = (Arc::clone(&full), Arc::clone(&asked));
            move || {
                asked.fetch_add(1, Ordering::Relaxed);
                full.load(Ordering::Relaxed).then(|| "the disk is full".to_owned())
            }
        };
        let config = RunnerConfig { obstacle: Some(Arc::new(obstacle)), ..config() };
        let store: Arc<dyn Store> = model().await;
        let running = Running::start(runner(&store, &ground, &Notes::default(), config).await);
        running.caught_up().await;
        full.store(true, Ordering::Relaxed);
        let before = asked.load(Ordering::Relaxed);
        posts(&*store, 0..50).await;
        // It was asked again and again, and has written nothing.
        let waits = |report: &kukuri_feed::Report| {
            let behind = report.active().unwrap().lag_rows == 50;
            asked.load(Ordering::Relaxed) > before + 3 && behind
        };
        running.until("the consumer to wait", waits).await;
        full.store(false, Ordering::Relaxed);
        nothing_parked(running, &*store, &ground.home().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_crashes_parks_nothing() {
    let mut cluster = Cluster::start(Durability::Durable).unwrap();
    let url = cluster.create_database();
    let ground = Ground::at(url);
    let store: Arc<dyn Store> = model().await;
    let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
    running.caught_up().await;
    for nth in 0..4 {
        posts(&*store, nth * 100..nth * 100 + 50).await;
        cluster.stop_immediate().unwrap();
        posts(&*store, nth * 100 + 50..nth * 100 + 60).await;
        cluster.start_again().unwrap();
    }
    nothing_parked(running, &*store, &ground.home().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_another_process_writes_to_parks_nothing() {
    let (ground, store): (_, Arc<dyn Store>) = (Ground::sqlite(), model().await);
    let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
    running.caught_up().await;
    let other = ground.home().await;
    let writing = other.write().await.unwrap();
    posts(&*store, 0..50).await;
    // Longer than a writer waits for another.
    let failed = |report: &kukuri_feed::Report| report.failures > 0;
    running.until("a write to fail", failed).await;
    writing.roll_back().await.unwrap();
    nothing_parked(running, &*store, &other).await;
}

/// Whether the next row may be what has ended somebody. Whoever comes next finds one more who ended.
async fn is_suspect(home: &Home) -> bool {
    let mut snapshot = home.read().await.unwrap();
    let sql = "SELECT COUNT(*) FROM consumer_offsets WHERE kills >= 1 AND suspect_until > last_seq";
    let suspects = snapshot.desk().row(sql, vec![]).await.unwrap().unwrap().int(0).unwrap();
    snapshot.end().await.unwrap();
    suspects == 1
}

/// A row that is tried alone is counted before it is tried, for it may end its worker. It had been parked for
/// tables that were away as often.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tables_that_are_away_while_a_row_is_tried_alone_park_nothing() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.caught_up().await;
        running.kill().await;
        // Who is killed now and then makes others careful, and then very careful.
        for nth in 0..2 {
            let running = Running::start(runner(&store, &ground, &notes, config()).await);
            post(&*store, &format!("{nth}")).await;
            running.caught_up().await;
            running.kill().await;
        }
        let home = ground.home().await;
        assert!(is_suspect(&home).await, "whoever comes next tries the next row alone");
        notes.absences.store(ABSENCES, Ordering::Relaxed);
        post(&*store, AWAY).await;
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        nothing_parked(running, &*store, &home).await;
        assert_eq!(notes.absences.load(Ordering::Relaxed), 0);
    }
}
