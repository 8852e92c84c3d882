//! The suite that every back end runs.

use std::sync::Arc;

use kukuri_store::conformance::{self, Subject};
use kukuri_store_postgres::{Fsync, Options, PostgresStore};

#[path = "postgres/memory.rs"]
mod memory;

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    let home = memory::cluster();
    conformance::run(async || {
        let options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };
        let url = home.cluster.create_database();
        let store = PostgresStore::open(&url, options).await.unwrap();
        Subject::new(Arc::new(store))
    })
    .await;
}
