//! Making a store from a backup.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kukuri_store::backup::{
    AtPath, BackEnd, Backup, BackupError, Directory, Monitor, new_file, sync_directory, unfinished,
};
use rusqlite::Connection;

use super::naming;
use crate::error::{OrStore, corrupt};
use crate::{FILE, desk, name_file, schema};

/// Makes a store in `data`, which must not hold one, and gives its feed the life `epoch`.
pub fn restore(
    backup: &Backup,
    data: &Path,
    epoch: i64,
    monitor: &Monitor,
) -> Result<(), BackupError> {
    backup.require(BackEnd::Sqlite, schema::newest())?;
    monitor.expect(backup.manifest().bytes());
    let target = Target::claim(data)?;
    target.fill(backup, monitor)?;
    renew(&target.path, backup, epoch)?;
    target.publish()?;
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
    Err(taken(data))
}

fn taken(data: &Path) -> BackupError {
    BackupError::Refused(format!(
        "there is a store in {} already: name a new directory with --data, or move the old one away",
        data.display()
    ))
}

/// A file that is no store before it has its name. Dropped before that, it goes away.
struct Target {
    path: PathBuf,
    directory: Directory,
    /// Keeps other restores out. The system lets go of it when the process ends, however it does.
    _lock: File,
}

impl Target {
    /// Takes a directory without a store for this restore alone.
    fn claim(data: &Path) -> Result<Self, BackupError> {
        let directory = Directory::make(data)?;
        // Who does not get it takes nothing away: the directory is another's by now.
        let lock = lock(data)?;
        let target = Self { path: unfinished(&data.join(FILE)), directory, _lock: lock };
        refuse_store(data)?;
        Ok(target)
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        companions(&self.path).chain([self.path.clone()])
    }

    fn fill(&self, backup: &Backup, monitor: &Monitor) -> Result<(), BackupError> {
        for file in self.files().filter(|file| file.exists()) {
            // One that was killed has left it: nobody else can be at work here. What it wrote may have
            // another name, too, so it is not written over.
            fs::remove_file(&file).at("remove", &file)?;
        }
        let mut out = new_file(&self.path).at("make", &self.path)?;
        let mut part = backup.part(FILE)?;
        while let Some(chunk) = part.next_chunk()? {
            out.write_all(chunk).at("write", &self.path)?;
            monitor.advance(chunk.len() as u64)?;
        }
        Ok(())
    }

    /// Gives the file its name, unless that is taken.
    fn publish(self) -> Result<(), BackupError> {
        let file = File::open(&self.path).at("open", &self.path)?;
        file.sync_all().at("sync", &self.path)?;
        let path = self.directory.path().join(FILE);
        match naming::give(&self.path, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(taken(self.directory.path()))
            }
            given => given.at("make", &path),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for file in self.files() {
            let _ = fs::remove_file(file);
        }
        // Takes nothing away where there is a store by now.
        self.directory.unmake();
    }
}

/// Locks a directory against other restores. It is the directory that is locked because no file in it
/// stays: one that is made for the lock would have to be removed, and somebody could hold the removed
/// one while the next is made.
fn lock(data: &Path) -> Result<File, BackupError> {
    let running = || {
        BackupError::Refused(format!(
            "a restore is running in {}: wait until it ends, or name a new directory with --data",
            data.display()
        ))
    };
    let directory = File::open(data).at("open", data)?;
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(running()),
        Err(TryLockError::Error(error)) => return Err(error).at("lock", data),
    }
    // Who held the lock before may have removed the directory, and somebody may have made it again.
    let held = directory.metadata().at("look at", data)?;
    match fs::metadata(data) {
        Ok(named) if (named.dev(), named.ino()) == (held.dev(), held.ino()) => Ok(directory),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).at("look at", data),
        _ => Err(running()),
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
