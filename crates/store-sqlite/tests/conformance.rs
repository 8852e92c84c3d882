//! SQLite passes what every back end must pass, whatever the length of its runs.

use std::sync::Arc;

use kukuri_store::Store;
use kukuri_store::conformance::{Subject, run};
use kukuri_store_sqlite::{Options, SqliteStore, Sync};
use tempfile::TempDir;

fn quick(run_events: usize) -> Options {
    Options { sync: Sync::OffForTests, readers: 2, run_events, epoch: 1 }
}

fn open(directory: &TempDir, run_events: usize) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(directory.path(), quick(run_events)).expect("a fresh store opens"))
}

/// Events are indexed at once, after a few, or long after: nobody can tell.
#[tokio::test]
async fn sqlite_conforms() {
    for run_events in [1, 3, 16 * 1024] {
        run(|| async {
            let directory = TempDir::new().expect("a temporary directory");
            let store = open(&directory, run_events);
            Subject { store, home: Box::new(directory) }
        })
        .await;
    }
}
