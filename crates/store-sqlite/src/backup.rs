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
    copy(&moment, &draft.place(FILE)?, monitor)?;
    draft.adopt(FILE, monitor)?;
    draft.finish(manifest)
}

/// What the file holds. Reading it is what fixes the moment.
fn describe(moment: &Connection, made_at: UnixMillis) -> Result<Manifest, StoreError> {
    let bounds = desk::bounds(moment)?;
    let schema_version = schema::version(moment)?;
    let select = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
        ORDER BY name";
    let names: Vec<String> = crate::page::collect(moment, select, [], |row| row.get(0).or_store())?;
    let tables = names.into_iter().map(|name| {
        let count = format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\""));
        let rows: i64 = moment.query_row(&count, [], |row| row.get(0)).or_store()?;
        let rows = u64::try_from(rows).expect("a count is not negative");
        Ok(Table { name, rows, columns: Vec::new(), file: None, partition: None })
    });
    Ok(Manifest {
        format: Manifest::FORMAT,
        back_end: BackEnd::Sqlite,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: made_at.0,
        schema_version,
        feed: FeedSpan::from(bounds),
        tables: tables.collect::<Result<_, StoreError>>()?,
        parts: Vec::new(),
    })
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
