//! What a backup is: a directory with the parts that a back end wrote, and a manifest, written last,
//! that says what they are. Without its manifest it is no backup, so whatever cuts one short leaves
//! nothing that could be taken for a whole one.

mod draft;
mod manifest;
mod monitor;
mod own;
mod whole;

use std::io;
use std::path::{Path, PathBuf};

use crate::StoreError;

pub use draft::{Draft, PartWriter};
pub use manifest::{BackEnd, FeedSpan, Manifest, Part, Partition, Table, seal};
pub use monitor::Monitor;
pub use own::{Directory, new_file};
pub use whole::{Backup, PartReader};

/// The name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// What is at the end of the name of a file that is not whole yet.
const UNFINISHED: &str = ".partial";

/// Bytes that are read or written at once.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Why there is no backup, or no store made from one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Whoever watches wanted it to end.
    #[error("interrupted")]
    Interrupted,
    /// A place or a backup is not fit for this. Says which, and what to do.
    #[error("{0}")]
    Refused(String),
    #[error("cannot {act} {}: {error}", path.display())]
    File { act: &'static str, path: PathBuf, error: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    /// A backup that is not as it was made.
    pub fn damaged(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Refused(format!("{} is damaged: {problem}; use another backup", path.display()))
    }
}

/// Names the file in an error.
pub trait AtPath<T> {
    fn at(self, act: &'static str, path: &Path) -> Result<T, BackupError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, act: &'static str, path: &Path) -> Result<T, BackupError> {
        self.map_err(|error| BackupError::File { act, path: path.to_owned(), error })
    }
}

/// Makes the names in a directory durable.
pub fn sync_directory(directory: &Path) -> Result<(), BackupError> {
    let opened = std::fs::File::open(directory).at("open", directory)?;
    opened.sync_all().at("sync", directory)
}

/// The name under which a file is written before it is whole.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}
