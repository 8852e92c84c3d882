//! The suite that every back end runs.

use std::sync::Arc;

use kukuri_store::conformance::{self, Subject};
use kukuri_store_postgres::{Fsync, Options, PostgresStore};
use kukuri_testkit::postgres::{Cluster, Durability};

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    conformance::run(async || {
        let options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };
        let store = PostgresStore::open(&cluster.create_database(), options).await.unwrap();
        Subject::new(Arc::new(store))
    })
    .await;
}
