//! Giving space back while the store is in use: rows of the feed that nobody can read any more, index
//! rows of events that have left, and pages that hold nothing.

use kukuri_store::{Extent, StoreError, Tidied};
use rusqlite::{Connection, TransactionBehavior};

use crate::departed::{self, Pass};
use crate::desk::moment;
use crate::error::OrStore;

/// Rows of the feed that one step deletes: a few milliseconds for whoever waits to write.
const ROWS_PER_STEP: i64 = 10_000;

/// Pages that one step gives back: 4 MiB.
const PAGES_PER_STEP: i64 = 1024;

/// So many free pages stay for what is written next.
const FREE_PAGES_KEPT: i64 = 1024;

/// One step. Each commits by itself, and what one did not do the next one does.
pub(crate) fn step(conn: &mut Connection, pass: &mut Pass) -> Result<Tidied, StoreError> {
    if cut_feed(conn)? || departed::sweep(conn, pass)? {
        return Ok(Tidied::More);
    }
    let free = free_pages(conn)?;
    if free <= FREE_PAGES_KEPT {
        return Ok(Tidied::Done);
    }
    let pages = PAGES_PER_STEP.min(free - FREE_PAGES_KEPT);
    let sql = format!("PRAGMA incremental_vacuum({pages})");
    let mut vacuum = conn.prepare(&sql).or_store()?;
    let mut freed = vacuum.query([]).or_store()?;
    // It frees a page for each row that is asked for.
    while freed.next().or_store()?.is_some() {}
    drop(freed);
    drop(vacuum);
    // A file that was made without `auto_vacuum` keeps all its pages, and writes to them again.
    Ok(if free_pages(conn)? < free { Tidied::More } else { Tidied::Done })
}

fn free_pages(conn: &Connection) -> Result<i64, StoreError> {
    conn.pragma_query_value(None, "freelist_count", |row| row.get(0)).or_store()
}

/// What is still to be given back: of the pages that hold nothing, and of those that have been given back and that the
/// file keeps for as long as somebody reads what was there before.
pub(crate) fn vacant_bytes(conn: &Connection) -> Result<u64, StoreError> {
    let number =
        |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).or_store();
    let (page_bytes, pages) = (number("page_size")?, number("page_count")?);
    let vacant = (free_pages(conn)? - FREE_PAGES_KEPT).max(0) * page_bytes;
    let file = conn.path().and_then(|path| std::fs::metadata(path).ok());
    let beyond = file.map_or(0, |file| file.len().saturating_sub((pages * page_bytes) as u64));
    Ok(vacant.cast_unsigned() + beyond)
}

/// Deletes rows that lie below the floor. Says whether there were any.
fn cut_feed(conn: &mut Connection) -> Result<bool, StoreError> {
    let first = |conn: &Connection| {
        let sql = "SELECT min(seq) FROM events_outbox";
        conn.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).or_store()
    };
    let floor = moment(conn)?.floor.0;
    if first(conn)?.is_none_or(|first| first > floor) {
        return Ok(false);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).or_store()?;
    if let Some(first) = first(&tx)? {
        let last = floor.min(first.saturating_add(ROWS_PER_STEP - 1));
        tx.execute("DELETE FROM events_outbox WHERE seq <= ?1", [last]).or_store()?;
    }
    tx.commit().or_store()?;
    Ok(true)
}

/// The file, and how much of it is free to be written to.
pub(crate) fn extents(conn: &Connection) -> Result<Vec<Extent>, StoreError> {
    let number =
        |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).or_store();
    let page_bytes = number("page_size")?;
    let (pages, free) = (number("page_count")?, number("freelist_count")?);
    let extent = |name: &str, pages: i64| Extent {
        name: name.to_owned(),
        bytes: (pages * page_bytes).cast_unsigned(),
    };
    Ok(vec![extent(crate::FILE, pages), extent("of which free", free)])
}
