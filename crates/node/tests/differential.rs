//! L2: SQLite and PostgreSQL are the model, on any sequence of commands and for any question; and L4,
//! seen through their own queries. That the comparisons find faults is shown in `crates/store/tests`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kukuri_store::Store;
use kukuri_store_postgres::{Fsync, PostgresStore, Wakeup};
use kukuri_store_sqlite::{SqliteStore, Sync};
use kukuri_testkit::convergence::random_set;
use kukuri_testkit::differential::{Report, Several, run};
use kukuri_testkit::generate::Seed;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Through one handle.
const SEQUENCES: u64 = 2_000;

/// Through two handles in turn, as if two processes had the store open.
const SEQUENCES_SHARED: u64 = 400;

/// Random sets of events in random orders, and their size.
const SETS: u32 = 40;
const EVENTS_PER_SET: usize = 60;

/// Runs share the sequences.
const RUNS: u64 = 2;

/// SQLite writes index rows at once, after a few events, or long after: no answer may depend on it.
const RUN_EVENTS: [usize; 4] = [1, 5, 40, 16 * 1024];

/// So few rows per partition of the feed that a sequence may well need the next one.
const ROWS_PER_PARTITION: u32 = 64;

/// Compares so many sequences, on as many runs side by side as there may be.
async fn compare<F, Made>(seed: Seed, sequences: u64, make: F)
where
    F: Fn(u64) -> Made + Clone + Send + std::marker::Sync + 'static,
    Made: Future<Output = Arc<dyn Store>> + Send,
{
    let mut runs = JoinSet::new();
    let share = sequences / RUNS;
    for nth in 0..RUNS {
        let make = make.clone();
        runs.spawn(async move { run(seed, nth * share..(nth + 1) * share, make).await });
    }
    let mut reports: Vec<Report> = Vec::new();
    while let Some(report) = runs.join_next().await {
        match report.expect("a run does not panic") {
            Ok(report) => reports.push(report),
            Err(mismatch) => panic!("run seed {seed}: {mismatch}"),
        }
    }
    let total: u64 = reports.iter().map(|report| report.sequences).sum();
    assert_eq!(total, sequences);
    println!("{reports:?}");
}

/// A directory in memory if there is one, since these tests are not about the disk.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn sqlite(directory: &Path, run_events: usize) -> Arc<dyn Store> {
    let sync = Sync::OffForTests;
    let options = kukuri_store_sqlite::Options { sync, readers: 1, run_events, epoch: 7 };
    Arc::new(SqliteStore::open(directory, options).expect("the store opens"))
}

async fn compare_sqlite(seed: Seed, sequences: u64, handles: usize) {
    let root = Arc::new(directory());
    let make = move |first: u64| {
        let directory = root.path().join(first.to_string());
        let run_events = *seed.part(first).dice().pick(&RUN_EVENTS);
        async move { several((0..handles).map(|_| sqlite(&directory, run_events)).collect()) }
    };
    compare(seed, sequences, make).await;
}

fn several(mut handles: Vec<Arc<dyn Store>>) -> Arc<dyn Store> {
    match handles.len() {
        1 => handles.remove(0),
        _ => Arc::new(Several::new(handles)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_is_the_model() {
    let seed = Seed::of_run("-p kukuri-node sqlite_is_the_model");
    compare_sqlite(seed, SEQUENCES, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_is_the_model_through_two_handles() {
    let seed = Seed::of_run("-p kukuri-node sqlite_is_the_model_through");
    compare_sqlite(seed, SEQUENCES_SHARED, 2).await;
}

/// L4 on one store, one lot after the other.
async fn converge(seed: Seed, store: Arc<dyn Store>) {
    for set in 0..SETS {
        let shown = random_set(&*store, seed.part(u64::from(set)), set, EVENTS_PER_SET).await;
        shown.unwrap_or_else(|objection| panic!("run seed {seed}, set {set}: {objection}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_converges() {
    let directory = directory();
    let seed = Seed::of_run("-p kukuri-node sqlite_converges");
    converge(seed, sqlite(directory.path(), 100)).await;
}

async fn postgres(url: &str) -> Arc<dyn Store> {
    let options = kukuri_store_postgres::Options {
        fsync: Fsync::AnyForTests,
        wakeup: Wakeup::PollOnly,
        readers_max: 2,
        acquire_timeout: Duration::from_secs(60),
        partition_rows_min: ROWS_PER_PARTITION,
        ..kukuri_store_postgres::Options::STANDARD
    };
    Arc::new(PostgresStore::open(url, options).await.expect("the store opens"))
}

/// A cluster that keeps nothing on the disk.
fn cluster(home: &TempDir) -> Cluster {
    let settings =
        Settings { home: Some(home.path().to_owned()), ..Settings::new(Durability::Fast) };
    Cluster::start_with(&settings).expect("PostgreSQL starts")
}

async fn compare_postgres(seed: Seed, sequences: u64, handles: usize) {
    let home = directory();
    let cluster = Arc::new(cluster(&home));
    let make = move |_| {
        let cluster = cluster.clone();
        async move {
            let url = cluster.create_database();
            let mut stores = Vec::new();
            for _ in 0..handles {
                stores.push(postgres(&url).await);
            }
            several(stores)
        }
    };
    compare(seed, sequences, make).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_the_model() {
    let seed = Seed::of_run("-p kukuri-node postgres_is_the_model");
    compare_postgres(seed, SEQUENCES, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_the_model_through_two_handles() {
    let seed = Seed::of_run("-p kukuri-node postgres_is_the_model_through");
    compare_postgres(seed, SEQUENCES_SHARED, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_converges() {
    let home = directory();
    let cluster = cluster(&home);
    let seed = Seed::of_run("-p kukuri-node postgres_converges");
    converge(seed, postgres(&cluster.create_database()).await).await;
}
