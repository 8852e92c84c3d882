//! Whoever works on a generation ends at every step of the loop, many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kukuri_feed::{RunnerConfig, Step};
use kukuri_store::Store;
use kukuri_testkit::generate::Seed;
use tokio::sync::Notify;

use crate::notes::{Notes, POISON};
use crate::rig::{
    Ground, History, Running, check_notes, check_offset, config, model, post, runner, welcome,
    within,
};

/// Histories, each with a seed and a store of its own, and the crashes in each at every step.
const SEEDS: u64 = 5;
const CRASHES_PER_STEP: usize = 3;
const NTH_MAX: usize = 3;

/// The steps of every batch.
const BATCH: [Step; 8] = [
    Step::Acquired,
    Step::Read,
    Step::Projected,
    Step::Begun,
    Step::Advanced,
    Step::Applied,
    Step::Committed,
    Step::Parked,
];

/// The steps of a rebuild that no batch has.
const REBUILD: [Step; 3] = [Step::Scanned, Step::Compared, Step::Switched];

/// Ends the work at the nth time that a step is reached.
fn crashing(at: Step, nth: usize, crashed: &Arc<Notify>) -> RunnerConfig {
    let (crashed, reached) = (Arc::clone(crashed), AtomicUsize::new(0));
    let probe = move |step: Step| {
        if step == at && reached.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            crashed.notify_one();
            panic!("a crash at {at:?}, as the test wants it");
        }
    };
    RunnerConfig { probe: Some(Arc::new(probe)), batch_rows_max: 4, ..config() }
}

/// A consumer that has begun with an empty store.
async fn begun(store: &Arc<dyn Store>, ground: &Ground) -> Notes {
    let notes = Notes::default();
    let running = Running::start(runner(store, ground, &notes, config()).await);
    running.caught_up().await;
    running.stop().await;
    notes
}

async fn crash_at(step: Step, nth: usize, store: &Arc<dyn Store>, ground: &Ground, notes: &Notes) {
    let crashed = Arc::new(Notify::new());
    let config = crashing(step, nth, &crashed);
    let running = Running::start(runner(store, ground, notes, config).await);
    within(&format!("a crash at {step:?}"), crashed.notified()).await;
    running.kill().await;
}

async fn crash_in_batches(ground: fn() -> Ground, test: &str) {
    let (seed, first) = (Seed::of_run(test), ground());
    for nth in 0..SEEDS {
        batches_of(seed.part(100 + nth), &first).await;
    }
}

async fn batches_of(seed: Seed, first: &Ground) {
    for step in BATCH {
        let (ground, store): (_, Arc<dyn Store>) = (first.fresh(), model().await);
        let notes = begun(&store, &ground).await;
        let home = ground.home().await;
        let seed = seed.part(step as u64);
        let (mut history, mut dice) = (History::new(seed), seed.part(1).dice());
        for nth in 0..CRASHES_PER_STEP {
            welcome(&*store).await;
            // Enough for a step to be reached a few times, however the history goes on.
            for nth in 0..4 * NTH_MAX {
                post(&*store, &format!("{} {nth}", dice.below(usize::MAX))).await;
            }
            post(&*store, &format!("{POISON} {nth}")).await;
            history.go_on(&*store).await;
            let often = !matches!(step, Step::Acquired | Step::Parked);
            let nth = if often { 1 + dice.below(NTH_MAX) } else { 1 };
            crash_at(step, nth, &store, &ground, &notes).await;
            check_offset(&*store, &home).await.unwrap_or_else(|why| panic!("{step:?}: {why}"));
            let running = Running::start(runner(&store, &ground, &notes, config()).await);
            running.caught_up().await;
            running.stop().await;
            check_offset(&*store, &home).await.unwrap_or_else(|why| panic!("{step:?}: {why}"));
            check_notes(&*store, &home).await.unwrap_or_else(|why| panic!("{step:?}: {why}"));
        }
    }
}

async fn crash_in_rebuilds(ground: fn() -> Ground, test: &str) {
    let (seed, first) = (Seed::of_run(test), ground());
    for nth in 0..SEEDS {
        rebuilds_of(seed.part(100 + nth), &first).await;
    }
}

async fn rebuilds_of(seed: Seed, first: &Ground) {
    for step in REBUILD {
        let (ground, store): (_, Arc<dyn Store>) = (first.fresh(), model().await);
        let notes = begun(&store, &ground).await;
        let home = ground.home().await;
        let mut history = History::new(seed.part(step as u64));
        for nth in 0..CRASHES_PER_STEP {
            history.go_on(&*store).await;
            welcome(&*store).await;
            post(&*store, &nth.to_string()).await;
            let rebuilt = runner(&store, &ground, &notes, config()).await;
            rebuilt.begin_rebuild().await.unwrap().expect("nothing else is built");
            crash_at(step, 1, &store, &ground, &notes).await;
            history.go_on(&*store).await;
            let running = Running::start(rebuilt);
            running.caught_up().await;
            running.stop().await;
            check_notes(&*store, &home).await.unwrap_or_else(|why| panic!("{step:?}: {why}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g6_effectively_once_on_sqlite() {
    crash_in_batches(Ground::sqlite, "g6_effectively_once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g6_effectively_once_on_postgres() {
    crash_in_batches(Ground::postgres, "g6_effectively_once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crashes_in_rebuilds_cost_nothing_on_sqlite() {
    crash_in_rebuilds(Ground::sqlite, "crashes_in_rebuilds").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crashes_in_rebuilds_cost_nothing_on_postgres() {
    crash_in_rebuilds(Ground::postgres, "crashes_in_rebuilds").await;
}
