//! Backups of the file: a copy of its pages as of one moment, made beside whoever writes.
//!
//! SQLite's own way of copying begins again whenever another process has committed, and beside a busy
//! writer it would never come to its end. Inside a read transaction it sees one moment only, and has
//! no reason to. Writers go on meanwhile; what they write stays in the log until the copy is done.

mod naming;
mod restore;

use std::path::Path;

use kukuri_core::UnixMillis;
use kukuri_store::StoreError;
use kukuri_store::backup::{BackEnd, BackupError, Draft, FeedSpan, Manifest, Monitor, Table};
use rusqlite::Connection;
use rusqlite::backup::{Backup as Copy, StepResult};

use crate::error::{OrStore, corrupt};
use crate::{FILE, Sync, connection, desk, name_file, schema};

pub use restore::restore;

/// Pages that are copied at once: 4 MiB of the usual ones.
const STEP_PAGES: i32 = 1024;
/// Rows that are counted before the next look at whether to go on: some milliseconds.
const LOOK_ROWS: u64 = 16 * 1024;

/// Copies the store in `data` into the directory `to`, which must be empty or not there.
pub fn back_up(
    data: &Path,
    to: &Path,
    made_at: UnixMillis,
    monitor: &Monitor,
) -> Result<Manifest, BackupError> {
    let path = data.join(FILE);
    let named = |error| name_file(&path, error);
    let source = connection::open_reader(&path, Sync::Full).map_err(named)?;
    let mut draft = Draft::begin(to)?;
    // Nothing else uses the connection. It ends without a commit, as nothing was changed.
    let moment = source.unchecked_transaction().or_store().map_err(named)?;
    let manifest = describe(&moment, made_at).map_err(named)?;
    let place = draft.place(FILE)?;
    copy(&moment, &place, monitor)?;
    drop(moment);
    let tables = count(&place, monitor)?;
    draft.adopt(FILE, monitor)?;
    draft.finish(Manifest { tables, ..manifest })
}

/// What the file holds, but for its tables. Reading it is what fixes the moment.
fn describe(moment: &Connection, made_at: UnixMillis) -> Result<Manifest, StoreError> {
    let bounds = desk::bounds(moment)?;
    Ok(Manifest {
        back_end: BackEnd::Sqlite,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: made_at.0,
        schema_version: schema::version(moment)?,
        feed: FeedSpan::from(bounds),
        tables: Vec::new(),
        parts: Vec::new(),
    })
}

/// The tables of a finished copy, and how many rows are in each. Nobody's log grows meanwhile.
fn count(copy: &Path, monitor: &Monitor) -> Result<Vec<Table>, BackupError> {
    let named = |error| name_file(copy, error);
    let copy = Connection::open(copy).or_store().map_err(named)?;
    let select = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
        ORDER BY name";
    let names = crate::page::collect(&copy, select, [], |row| row.get(0).or_store());
    let names: Vec<String> = names.map_err(named)?;
    let tables = names.into_iter().map(|name| {
        let rows = count_rows(&copy, &name, monitor)?;
        Ok(Table { name, rows, columns: Vec::new(), file: None, partition: None })
    });
    tables.collect()
}

/// `count(*)` would not return before its end, however long a table is.
fn count_rows(copy: &Connection, table: &str, monitor: &Monitor) -> Result<u64, BackupError> {
    let select = format!("SELECT 1 FROM \"{}\"", table.replace('"', "\"\""));
    let mut select = copy.prepare(&select).or_store()?;
    let mut found = select.query([]).or_store()?;
    let mut rows = 0;
    while found.next().or_store()?.is_some() {
        rows += 1;
        if rows % LOOK_ROWS == 0 {
            monitor.advance(0)?;
        }
    }
    Ok(rows)
}

fn copy(moment: &Connection, to: &Path, monitor: &Monitor) -> Result<(), BackupError> {
    let named = |error| name_file(to, error);
    let page_bytes: i64 =
        moment.pragma_query_value(None, "page_size", |row| row.get(0)).or_store()?;
    let page_bytes = u64::try_from(page_bytes).map_err(|_| corrupt("pages of no size"))?;
    let mut target = Connection::open(to).or_store().map_err(named)?;
    // Nobody reads the copy before it was synced as a whole.
    target.pragma_update(None, "journal_mode", "OFF").or_store().map_err(named)?;
    target.pragma_update(None, "synchronous", "OFF").or_store().map_err(named)?;
    let copy = Copy::new(moment, &mut target).or_store().map_err(named)?;
    let mut done_pages = 0;
    loop {
        let step = copy.step(STEP_PAGES).or_store().map_err(named)?;
        let progress = copy.progress();
        let pages = |count: i32| u64::try_from(count).unwrap_or_default();
        let (total, left) = (pages(progress.pagecount), pages(progress.remaining));
        if done_pages == 0 {
            // Every page is written, and read again for its checksum.
            monitor.expect(2 * total * page_bytes);
        }
        monitor.advance((total - left - done_pages) * page_bytes)?;
        done_pages = total - left;
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Busy, or locked: by somebody who has nothing to do with this file.
            _ => {
                let used = StoreError::Unavailable("another program uses it".to_owned());
                return Err(named(used).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows were counted before the first look at whether somebody wants it to end.
    #[test]
    fn who_counts_can_be_interrupted() {
        let file = Connection::open_in_memory().unwrap();
        let fill = |rows: u64| {
            let sql = format!(
                "DROP TABLE IF EXISTS t; CREATE TABLE t (n);
                 WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows})
                 INSERT INTO t SELECT n FROM c"
            );
            file.execute_batch(&sql).unwrap();
        };
        let (going, ended) = (Monitor::default(), Monitor::default());
        ended.end();
        fill(LOOK_ROWS - 1);
        assert_eq!(count_rows(&file, "t", &ended).unwrap(), LOOK_ROWS - 1);
        fill(LOOK_ROWS);
        assert_eq!(count_rows(&file, "t", &going).unwrap(), LOOK_ROWS);
        assert!(matches!(count_rows(&file, "t", &ended), Err(BackupError::Interrupted)));
    }
}
