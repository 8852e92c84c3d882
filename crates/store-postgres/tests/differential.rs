//! L2: PostgreSQL does what the model does, on any commands and any questions.

use std::sync::Arc;

use kukuri_store::Store;
use kukuri_store_postgres::{Fsync, Options, PostgresStore};
use kukuri_testkit::differential;
use kukuri_testkit::generate::Seed;

#[path = "postgres/memory.rs"]
mod memory;

const SEQUENCES: u64 = 200;

/// So few that most batches reach into another partition.
const PARTITION_ROWS_MIN: u32 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_the_model() {
    let seed = Seed::of_run("postgres_is_the_model");
    let home = memory::cluster();
    let report = differential::run(seed, 0..SEQUENCES, async |_| {
        let options = Options {
            fsync: Fsync::AnyForTests,
            partition_rows_min: PARTITION_ROWS_MIN,
            ..Options::STANDARD
        };
        let store = PostgresStore::open(&home.cluster.create_database(), options).await.unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
    println!("{:?}", report.unwrap_or_else(|difference| panic!("{difference}")));
}
