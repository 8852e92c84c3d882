//! The key by which other nodes know this one. It is made once, and never shown.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use iroh::{EndpointId, SecretKey};

const FILE: &str = "key";
const MODE: u32 = 0o600;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read or make {}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{} holds no key: put back the one that was there, or remove it and be another node", path.display())]
    Damaged { path: PathBuf },
    #[error("{} can be read by others: chmod 600 it, or remove it and be another node", path.display())]
    Open { path: PathBuf },
}

/// The secret of a node.
#[derive(Clone)]
pub struct NodeKey(SecretKey);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeKey({})", self.id())
    }
}

impl NodeKey {
    /// Reads the key in a directory, or makes one there.
    pub fn in_directory(directory: &Path) -> Result<Self, KeyError> {
        let path = directory.join(FILE);
        let io = |error| KeyError::Io { path: path.clone(), error };
        match fs::read_to_string(&path) {
            Ok(text) => Self::read(&path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(directory).map_err(io)?;
                // Whoever makes one at the same moment may come first: theirs is the key then.
                match make(directory, &path) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(io(error));
                    }
                    _ => {}
                }
                Self::read(&path, &fs::read_to_string(&path).map_err(io)?)
            }
            Err(error) => Err(io(error)),
        }
    }

    fn read(path: &Path, text: &str) -> Result<Self, KeyError> {
        let path = path.to_owned();
        let mode = fs::metadata(&path).map(|meta| meta.permissions().mode());
        match mode {
            Ok(mode) if mode & 0o077 != 0 => return Err(KeyError::Open { path }),
            Ok(_) => {}
            Err(error) => return Err(KeyError::Io { path, error }),
        }
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text.trim_end(), &mut bytes) {
            Ok(()) => Ok(Self(SecretKey::from_bytes(&bytes))),
            Err(_) => Err(KeyError::Damaged { path }),
        }
    }

    pub fn id(&self) -> EndpointId {
        self.0.public()
    }

    pub(crate) fn secret(&self) -> SecretKey {
        self.0.clone()
    }
}

/// Under another name first: a file that is there is a whole key. Never in place of one.
fn make(directory: &Path, path: &Path) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".key").tempfile_in(directory)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(MODE))?;
    writeln!(file, "{}", hex::encode(SecretKey::generate().to_bytes()))?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_nobody_else() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("data/gossip");
        let made = NodeKey::in_directory(&directory).unwrap();
        let mode = fs::metadata(directory.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(NodeKey::in_directory(&directory).unwrap().id(), made.id());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
        let text = format!("{made:?}");
        assert!(!text.contains(fs::read_to_string(directory.join(FILE)).unwrap().trim()));
    }

    #[test]
    fn whoever_makes_one_at_the_same_moment_gets_the_same() {
        let home = tempfile::tempdir().unwrap();
        let ids = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| NodeKey::in_directory(home.path()).unwrap().id()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
    }

    #[test]
    fn a_key_that_is_damaged_or_open_is_refused() {
        let home = tempfile::tempdir().unwrap();
        NodeKey::in_directory(home.path()).unwrap();
        let path = home.path().join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(NodeKey::in_directory(home.path()), Err(KeyError::Open { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        fs::write(&path, "abc").unwrap();
        assert!(matches!(NodeKey::in_directory(home.path()), Err(KeyError::Damaged { .. })));
    }
}
