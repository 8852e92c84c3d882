//! Backups of the file: a copy of its pages as of one moment, made beside whoever writes.
//!
//! SQLite's own way of copying begins again whenever another process has committed, and beside a busy
//! writer it would never come to its end. Inside a read transaction it sees one moment only, and has
//! no reason to. Writers go on meanwhile; what they write stays in the log until the copy is done.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use kukuri_core::UnixMillis;
use kukuri_store::StoreError;
use kukuri_store::backup::{
    AtPath, BackEnd, Backup, BackupError, Draft, FeedSpan, Manifest, Monitor, Table,
    sync_directory, unfinished,
};
use rusqlite::Connection;
use rusqlite::backup::{Backup as Copy, StepResult};

use crate::error::{OrStore, corrupt};
use crate::{FILE, Sync, connection, desk, name_file, schema};

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

/// Makes a store in `data`, which must not hold one, and gives its feed the life `epoch`.
pub fn restore(
    backup: &Backup,
    data: &Path,
    epoch: i64,
    monitor: &Monitor,
) -> Result<(), BackupError> {
    backup.require(BackEnd::Sqlite, schema::newest())?;
    refuse_store(data)?;
    monitor.expect(backup.manifest().bytes());
    let found = data.exists();
    fs::create_dir_all(data).at("make", data)?;
    let target = Target { path: unfinished(&data.join(FILE)), made: (!found).then_some(data) };
    target.fill(backup, monitor)?;
    renew(&target.path, backup, epoch)?;
    target.publish(&data.join(FILE))?;
    sync_directory(data)
}

/// What SQLite keeps beside a file and takes for a part of it, whatever file that is.
fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["-wal", "-shm", "-journal"].into_iter().map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

fn refuse_store(data: &Path) -> Result<(), BackupError> {
    let path = data.join(FILE);
    if !path.exists() && !companions(&path).any(|companion| companion.exists()) {
        return Ok(());
    }
    Err(BackupError::Refused(format!(
        "there is a store in {} already: name a new directory with --data, or move the old one away",
        data.display()
    )))
}

/// A file that is no store before it has its name. Dropped before that, it goes away.
struct Target<'a> {
    path: PathBuf,
    /// The directory, if it was made for the file.
    made: Option<&'a Path>,
}

impl Target<'_> {
    fn fill(&self, backup: &Backup, monitor: &Monitor) -> Result<(), BackupError> {
        for companion in companions(&self.path).filter(|companion| companion.exists()) {
            // One that was killed has left it.
            fs::remove_file(&companion).at("remove", &companion)?;
        }
        let mut out = File::create(&self.path).at("make", &self.path)?;
        let mut part = backup.part(FILE)?;
        while let Some(chunk) = part.next_chunk()? {
            out.write_all(chunk).at("write", &self.path)?;
            monitor.advance(chunk.len() as u64)?;
        }
        Ok(())
    }

    /// Gives the file its name, unless that is taken.
    fn publish(self, path: &Path) -> Result<(), BackupError> {
        let file = File::open(&self.path).at("open", &self.path)?;
        file.sync_all().at("sync", &self.path)?;
        // A rename would take the place of a store that was made meanwhile.
        fs::hard_link(&self.path, path).at("make", path)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        for path in companions(&self.path).chain([self.path.clone()]) {
            let _ = fs::remove_file(path);
        }
        if let Some(made) = self.made {
            // Fails, as it should, where there is a store in it by now.
            let _ = fs::remove_dir(made);
        }
    }
}

/// Begins a new life of the feed, by which readers notice that it is not the one they knew.
fn renew(path: &Path, backup: &Backup, epoch: i64) -> Result<(), BackupError> {
    let span = backup.manifest().feed;
    let named = |error| name_file(path, error);
    let conn = Connection::open(path).or_store().map_err(named)?;
    // No log beside the file, which is going to have another name.
    conn.pragma_update(None, "journal_mode", "DELETE").or_store().map_err(named)?;
    let bounds = desk::bounds(&conn).map_err(named)?;
    if bounds.epoch.0 != span.epoch || !span.spans(bounds) {
        let problem = "its feed is not the one that its manifest names";
        return Err(BackupError::damaged(backup.directory(), problem));
    }
    let epoch = if epoch == span.epoch { epoch + 1 } else { epoch };
    let renewed = conn.execute("UPDATE feed_meta SET epoch = ?1", [epoch]).or_store();
    if renewed.map_err(named)? != 1 {
        return Err(named(corrupt("more than one life of the feed")).into());
    }
    conn.close().map_err(|(_, error)| error).or_store().map_err(named)?;
    Ok(())
}
