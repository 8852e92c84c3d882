//! Writing a backup.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{
    AtPath, BackupError, CHUNK_BYTES, Directory, MANIFEST, Manifest, Monitor, Part, new_file, seal,
    sync_directory, unfinished,
};

/// A backup that is being made. Dropped before [`Draft::finish`], it takes away what it has written.
#[derive(Debug)]
pub struct Draft {
    directory: Directory,
    /// The names of all parts that were begun.
    begun: Vec<String>,
    parts: Vec<Part>,
    finished: bool,
}

impl Draft {
    /// Begins in a directory that is empty or not there.
    pub fn begin(directory: &Path) -> Result<Self, BackupError> {
        if directory.exists() {
            refuse_full(directory)?;
        }
        let directory = Directory::make(directory)?;
        // Who finds this finds a backup that is not whole. It also keeps a second one out.
        let marker = unfinished(&directory.path().join(MANIFEST));
        if let Err(error) = new_file(&marker).at("make", &marker) {
            directory.unmake();
            return Err(error);
        }
        Ok(Self { directory, begun: Vec::new(), parts: Vec::new(), finished: false })
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Begins a part that is written from its beginning to its end.
    pub fn part(&mut self, file: &str) -> Result<PartWriter, BackupError> {
        let (path, out) = self.create(file)?;
        let out = BufWriter::with_capacity(CHUNK_BYTES, out);
        Ok(PartWriter { file: file.to_owned(), path, out, bytes: 0, hash: Sha256::new() })
    }

    /// Takes a part that is written to its end.
    pub fn take(&mut self, part: PartWriter) -> Result<(), BackupError> {
        let PartWriter { file, path, out, bytes, hash } = part;
        let out = out.into_inner().map_err(io::IntoInnerError::into_error).at("write", &path)?;
        out.sync_all().at("sync", &path)?;
        self.keep(Part { file, bytes, sha256: hex::encode(hash.finalize()) })
    }

    /// Begins a part that is written by somebody else, such as a library, into the empty file that this
    /// names.
    pub fn place(&mut self, file: &str) -> Result<PathBuf, BackupError> {
        self.create(file).map(|(path, _)| path)
    }

    fn create(&mut self, file: &str) -> Result<(PathBuf, File), BackupError> {
        self.begun.push(file.to_owned());
        let path = unfinished(&self.path(file));
        let out = new_file(&path).at("make", &path)?;
        Ok((path, out))
    }

    /// Takes a part that somebody else has written to its [`Draft::place`].
    pub fn adopt(&mut self, file: &str, monitor: &Monitor) -> Result<(), BackupError> {
        let path = unfinished(&self.path(file));
        let mut written = File::open(&path).at("open", &path)?;
        written.sync_all().at("sync", &path)?;
        let (mut bytes, mut hash, mut chunk) = (0, Sha256::new(), vec![0; CHUNK_BYTES]);
        loop {
            let length = written.read(&mut chunk).at("read", &path)?;
            if length == 0 {
                break;
            }
            hash.update(&chunk[..length]);
            bytes += length as u64;
            monitor.advance(length as u64)?;
        }
        let sha256 = hex::encode(hash.finalize());
        self.keep(Part { file: file.to_owned(), bytes, sha256 })
    }

    fn keep(&mut self, part: Part) -> Result<(), BackupError> {
        let path = self.path(&part.file);
        fs::rename(unfinished(&path), &path).at("rename to", &path)?;
        self.parts.push(part);
        Ok(())
    }

    /// Writes the manifest, with the parts that were taken. From here on it is a backup.
    pub fn finish(mut self, manifest: Manifest) -> Result<Manifest, BackupError> {
        let manifest = Manifest { parts: std::mem::take(&mut self.parts), ..manifest };
        let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
        let path = self.path(MANIFEST);
        let marker = unfinished(&path);
        let mut out = File::create(&marker).at("open", &marker)?;
        out.write_all(seal(&text).as_bytes()).at("write", &marker)?;
        out.sync_all().at("sync", &marker)?;
        sync_directory(self.directory.path())?;
        fs::rename(&marker, &path).at("rename to", &path)?;
        self.finished = true;
        sync_directory(self.directory.path())?;
        Ok(manifest)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What cannot be removed is still no backup: it has no manifest. The marker goes last.
        for file in self.begun.iter().map(String::as_str).chain([MANIFEST]) {
            let path = self.path(file);
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(unfinished(&path));
        }
        self.directory.unmake();
    }
}

/// Refuses a directory in which there is anything.
fn refuse_full(directory: &Path) -> Result<(), BackupError> {
    let shown = directory.display();
    let entries = fs::read_dir(directory).at("look into", directory)?;
    let refused = if directory.join(MANIFEST).exists() {
        format!("{shown} holds a backup already: name another directory")
    } else if unfinished(&directory.join(MANIFEST)).exists() {
        format!(
            "{shown} holds a backup that is being made, or was cut short: name another directory, or \
             remove this one if no backup is running"
        )
    } else if entries.count() > 0 {
        format!("{shown} is not empty: name another directory")
    } else {
        return Ok(());
    };
    Err(BackupError::Refused(refused))
}

/// A part that is being written.
#[derive(Debug)]
pub struct PartWriter {
    file: String,
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
    hash: Sha256,
}

impl PartWriter {
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), BackupError> {
        self.out.write_all(chunk).at("write", &self.path)?;
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(())
    }
}
