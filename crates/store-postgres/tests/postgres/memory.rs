//! A cluster whose data lie in memory, where the system has a place for that: tests that make hundreds
//! of databases take half the time.

use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;

const MEMORY: &str = "/dev/shm";

pub struct InMemory {
    pub cluster: Cluster,
    /// Goes after the cluster.
    _home: Option<TempDir>,
}

pub fn cluster() -> InMemory {
    let home = tempfile::Builder::new().prefix("kukuri-test-").tempdir_in(MEMORY).ok();
    let mut settings = Settings::new(Durability::Fast);
    settings.home = home.as_ref().map(|home| home.path().to_owned());
    let cluster = Cluster::start_with(&settings).expect("a cluster starts");
    InMemory { cluster, _home: home }
}
