//! The suite that every back end runs.

use std::sync::Arc;

use kukuri_store::conformance::{self, Subject};
use kukuri_store_postgres::{Fsync, Options, PostgresStore};
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};

#[path = "postgres/memory.rs"]
mod memory;

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    let home = memory::cluster();
    conformance::run(async || {
        let options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };
        let url = home.cluster.create_database();
        let store = PostgresStore::open(&url, options).await.unwrap();
        Subject {
            store: Arc::new(store),
            truncate: Some(Box::new(move |floor| Box::pin(truncate(url.clone(), floor.0)))),
        }
    })
    .await;
}

async fn truncate(url: String, floor: i64) {
    let mut connection = PgConnection::connect(&url).await.expect("the server is there");
    let sql = format!(
        "BEGIN; UPDATE cn_relay.feed_meta SET floor_seq = {floor};
         DELETE FROM cn_relay.events_outbox WHERE seq <= {floor}; COMMIT"
    );
    raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("the feed can be cut");
}
