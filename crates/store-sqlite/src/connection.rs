//! Opening the file, and the settings every connection has.

use std::path::Path;
use std::time::Duration;

use kukuri_store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::Sync;
use crate::error::OrStore;

/// How long a writer waits for another process to finish its batch.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Pages of the write-ahead log before who writes moves what is left of them into the file: 128 MiB, a quarter of
/// the reserve that a disk has by default. Most were moved before, by who watches.
const CHECKPOINT_PAGES: i64 = 32 * 1024;
/// The log is cut to this size after a checkpoint. What is there need not be made longer by the next
/// batches, which takes more than to write over it.
const JOURNAL_BYTES_MAX: i64 = 128 * 1024 * 1024;
const WRITER_CACHE_KIB: i64 = 128 * 1024;
const READER_CACHE_KIB: i64 = 16 * 1024;
/// How much of the file is mapped: the page cache of the system then serves reads without copies.
const MAP_BYTES: i64 = 2 * 1024 * 1024 * 1024;
/// Every statement of the store is kept prepared.
const STATEMENTS_MAX: usize = 64;

pub(crate) fn open_writer(path: &Path, sync: Sync) -> Result<Connection, StoreError> {
    let conn = Connection::open(path).or_store()?;
    conn.busy_timeout(BUSY_WAIT).or_store()?;
    // Before the first table exists: it cannot be changed later without rewriting the file. Setting
    // what is set would write to the file all the same, and a full disk could not even be read.
    let unset = conn.pragma_query_value(None, "auto_vacuum", |row| Ok(row.get::<_, i64>(0)? == 0));
    if unset.or_store()? {
        pragma(&conn, "auto_vacuum", "INCREMENTAL")?;
    }
    pragma(&conn, "journal_mode", "WAL")?;
    set_sync(&conn, sync)?;
    pragma(&conn, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    pragma(&conn, "journal_size_limit", JOURNAL_BYTES_MAX)?;
    pragma(&conn, "cache_size", -WRITER_CACHE_KIB)?;
    pragma(&conn, "mmap_size", MAP_BYTES)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(conn)
}

pub(crate) fn open_reader(path: &Path, sync: Sync) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).or_store()?;
    conn.busy_timeout(BUSY_WAIT).or_store()?;
    pragma(&conn, "query_only", "ON")?;
    // It may move the log into the file all the same.
    set_sync(&conn, sync)?;
    pragma(&conn, "cache_size", -READER_CACHE_KIB)?;
    pragma(&conn, "mmap_size", MAP_BYTES)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    rusqlite::vtab::array::load_module(&conn).or_store()?;
    Ok(conn)
}

fn set_sync(conn: &Connection, sync: Sync) -> Result<(), StoreError> {
    let level = match sync {
        Sync::Full => "FULL",
        Sync::OffForTests => "OFF",
    };
    pragma(conn, "synchronous", level)
}

fn pragma(conn: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<(), StoreError> {
    conn.pragma_update(None, name, value).or_store()
}
