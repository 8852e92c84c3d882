//! Reading a backup.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::{Unread, unseal};
use super::{
    AtPath, BackEnd, BackupError, CHUNK_BYTES, MANIFEST, Manifest, Monitor, Part, unfinished,
};

/// A backup that was made to its end.
#[derive(Debug)]
pub struct Backup {
    directory: PathBuf,
    manifest: Manifest,
}

impl Backup {
    pub fn open(directory: &Path) -> Result<Self, BackupError> {
        let path = directory.join(MANIFEST);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(absent(directory)),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(BackupError::damaged(&path, "it is no text"));
            }
            text => text.at("read", &path)?,
        };
        let manifest = unseal(&text).map_err(|unread| match unread {
            Unread::Damaged(problem) => BackupError::damaged(&path, problem),
            Unread::Newer => BackupError::Refused(format!(
                "{} was made by a newer program: restore it with that one",
                directory.display()
            )),
        })?;
        Ok(Self { directory: directory.to_owned(), manifest })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Refuses what another back end wrote, and what a newer schema is needed for.
    pub fn require(&self, back_end: BackEnd, schema_max: u32) -> Result<(), BackupError> {
        let (shown, manifest) = (self.directory.display(), &self.manifest);
        let (found, version) = (manifest.back_end, manifest.schema_version);
        if found != back_end {
            let option = match found {
                BackEnd::Sqlite => "--data NEW and without a database",
                BackEnd::Postgres => "--database URL",
            };
            return Err(BackupError::Refused(format!(
                "{shown} is a backup of a {found} store and can only be restored to {found}: restore \
                 it with {option}; to move to {back_end}, use `export` and `import`"
            )));
        }
        if version > schema_max {
            return Err(BackupError::Refused(format!(
                "{shown} has schema {version}, this program knows up to {schema_max}: restore it with \
                 the newer program"
            )));
        }
        Ok(())
    }

    /// The part of a name.
    pub fn part(&self, file: &str) -> Result<PartReader<'_>, BackupError> {
        let part = self.manifest.parts.iter().find(|part| part.file == file).ok_or_else(|| {
            BackupError::damaged(&self.directory.join(MANIFEST), format!("it has no part {file}"))
        })?;
        let path = self.directory.join(file);
        let input = File::open(&path).at("open", &path)?;
        let found = input.metadata().at("look at", &path)?.len();
        if found != part.bytes {
            let problem = format!("it has {found} bytes and was made with {}", part.bytes);
            return Err(BackupError::damaged(&path, problem));
        }
        let chunk = vec![0; CHUNK_BYTES];
        Ok(PartReader { part, path, input, chunk, bytes: 0, hash: Sha256::new() })
    }

    /// Reads every part and compares it with its checksum.
    pub fn verify(&self, monitor: &Monitor) -> Result<(), BackupError> {
        for part in &self.manifest.parts {
            let mut reader = self.part(&part.file)?;
            while let Some(chunk) = reader.next_chunk()? {
                monitor.advance(chunk.len() as u64)?;
            }
        }
        Ok(())
    }
}

fn absent(directory: &Path) -> BackupError {
    let shown = directory.display();
    BackupError::Refused(if unfinished(&directory.join(MANIFEST)).exists() {
        format!("the backup in {shown} was cut short or is still being made: use another one")
    } else {
        format!("there is no backup in {shown}: name the directory that `backup` has filled")
    })
}

/// A part that is being read. Its end is only reached if all of it was as it was written.
#[derive(Debug)]
pub struct PartReader<'a> {
    part: &'a Part,
    path: PathBuf,
    input: File,
    chunk: Vec<u8>,
    bytes: u64,
    hash: Sha256,
}

impl PartReader<'_> {
    /// `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, BackupError> {
        let length = self.input.read(&mut self.chunk).at("read", &self.path)?;
        if length == 0 {
            let sha256 = hex::encode(std::mem::take(&mut self.hash).finalize());
            if (self.bytes, &sha256) != (self.part.bytes, &self.part.sha256) {
                let problem = "its checksum is not the one it was made with";
                return Err(BackupError::damaged(&self.path, problem));
            }
            return Ok(None);
        }
        let chunk = &self.chunk[..length];
        self.hash.update(chunk);
        self.bytes += length as u64;
        Ok(Some(chunk))
    }
}
