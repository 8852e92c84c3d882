//! Directories and files that hold what people wrote: who makes them may read them, nobody else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{AtPath, BackupError, sync_directory};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory, and what had to be made for it to be there.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directories that were made, the innermost first.
    made: Vec<PathBuf>,
}

impl Directory {
    /// Finds it, or makes it with all it lies in, and makes the names of these durable.
    pub fn make(path: &Path) -> Result<Self, BackupError> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made: Vec<PathBuf> = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(path).at("make", path)?;
        let directory = Self { path: path.to_owned(), made };
        if let Err(error) = directory.made.iter().try_for_each(|made| sync_directory(above(made))) {
            directory.unmake();
            return Err(error);
        }
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes away what was made and is empty.
    pub fn unmake(&self) {
        for made in &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a file that is not there.
pub fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}
