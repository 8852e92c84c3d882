//! Writing behind a store's back.

use std::path::PathBuf;
use std::time::Duration;

use kukuri_core::Seq;
use sqlx::{Connection, PgConnection};

const BUSY_WAIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Database {
    /// # Panics
    /// When it cannot: a fault that does not happen must not look like one that was noticed.
    pub async fn remove_row(&self, seq: Seq) {
        let removed = match self {
            Self::Sqlite(file) => {
                let connection = rusqlite::Connection::open(file).expect("the file is there");
                connection.busy_timeout(BUSY_WAIT).expect("a timeout can be set");
                let sql = "DELETE FROM events_outbox WHERE seq = ?1";
                connection.execute(sql, [seq.0]).expect("the row can be removed") as u64
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.expect("the server runs");
                let sql = "DELETE FROM cn_relay.events_outbox WHERE seq = $1";
                let done = sqlx::query(sql).bind(seq.0).execute(&mut connection).await;
                done.expect("the row can be removed").rows_affected()
            }
        };
        assert_eq!(removed, 1, "row {seq} was there");
    }
}
