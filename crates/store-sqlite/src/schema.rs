//! The schema and its history. Migrations are only ever added.

use kukuri_store::StoreError;
use rusqlite::{Connection, TransactionBehavior};

use crate::error::OrStore;

const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_events_and_feed.sql"),
    include_str!("../migrations/0002_upkeep.sql"),
    include_str!("../migrations/0003_departed.sql"),
    include_str!("../migrations/0004_past.sql"),
    include_str!("../migrations/0005_remembered.sql"),
];

/// Brings the file to the newest schema, each step in a transaction of its own. A file that a newer
/// program wrote is refused: we would not know what its columns mean.
pub(crate) fn migrate(conn: &mut Connection, epoch: i64) -> Result<(), StoreError> {
    loop {
        // The version is read under the write lock, so that of two processes one waits and sees.
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
        let version = version(&tx)?;
        let Some(migration) = MIGRATIONS.get(version as usize) else {
            return Ok(());
        };
        tx.execute_batch(migration).or_store()?;
        if version == 0 {
            tx.execute("INSERT INTO feed_meta (epoch, floor_seq) VALUES (?1, 0)", [epoch])
                .or_store()?;
            tx.execute("INSERT INTO indexed (up_to_seq) VALUES (0)", []).or_store()?;
        }
        tx.pragma_update(None, "user_version", version + 1).or_store()?;
        tx.commit().or_store()?;
    }
}

/// The schema that this program brings a file to.
pub(crate) fn newest() -> u32 {
    MIGRATIONS.len() as u32
}

/// A program that runs while a newer one changes the schema neither reads nor writes any more: it does not
/// know what it would read, or would have to write. Looked at in every transaction, which costs a microsecond.
pub(crate) fn check_newest(
    conn: &Connection,
    fault: fn(String) -> StoreError,
) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached("PRAGMA user_version").or_store()?;
    let version: u32 = select.query_row([], |row| row.get(0)).or_store()?;
    if version == newest() {
        return Ok(());
    }
    Err(fault(format!(
        "another program has changed the schema of events.db to {version} while this one, which knows {}, \
         was running: stop it and run the newer program",
        newest()
    )))
}

/// The schema of a file, which this program must know.
pub(crate) fn version(conn: &Connection) -> Result<u32, StoreError> {
    let version: u32 =
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).or_store()?;
    let known = newest();
    if version > known {
        return Err(StoreError::Corrupt(format!(
            "events.db has schema {version}, this program knows up to {known}; run the newer program"
        )));
    }
    Ok(version)
}
