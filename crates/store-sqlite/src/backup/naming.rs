//! Giving a file its name without taking the place of another: a store may have been made meanwhile.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// One way to do it. Either may be unknown to a file system: FAT has no second names for a file, and
/// those across a network often cannot rename with a condition.
type Way = fn(&Path, &Path) -> io::Result<()>;

const WAYS: [Way; 2] = [rename, link];

/// Gives `file` the name `to`. It may keep the one that it has. It is an error of the kind
/// `AlreadyExists` if the name is taken.
pub(super) fn give(file: &Path, to: &Path) -> io::Result<()> {
    give_by(&WAYS, file, to)
}

fn give_by(ways: &[Way], file: &Path, to: &Path) -> io::Result<()> {
    let mut given = Err(Errno::NOTSUP.into());
    for way in ways {
        given = way(file, to);
        match &given {
            Err(error) if is_unknown(error) => {}
            _ => return given,
        }
    }
    given
}

fn rename(file: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, file, CWD, to, RenameFlags::NOREPLACE)?)
}

fn link(file: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(file, to)
}

/// What systems say where a file system does not know a way.
fn is_unknown(error: &io::Error) -> bool {
    let unknown = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| unknown.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Way = |_, _| Err(Errno::PERM.into());
    const BROKEN: Way = |_, _| Err(Errno::IO.into());

    fn files() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let home = tempfile::TempDir::new().unwrap();
        let (file, to) = (home.path().join("file"), home.path().join("to"));
        fs::write(&file, "new").unwrap();
        (home, file, to)
    }

    /// A restore ended by a second name for the file alone, which not every file system has.
    #[test]
    fn a_way_that_is_unknown_is_not_the_last() {
        for ways in [&[rename as Way][..], &[link], &[UNKNOWN, link], &[UNKNOWN, rename]] {
            let (_home, file, to) = files();
            give_by(ways, &file, &to).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"new");
        }
        let (_home, file, to) = files();
        assert!(give_by(&[UNKNOWN, UNKNOWN], &file, &to).is_err());
        assert!(give_by(&[BROKEN, link], &file, &to).is_err());
        assert!(!to.exists());
    }

    #[test]
    fn no_way_takes_the_place_of_another_file() {
        for way in WAYS {
            let (_home, file, to) = files();
            fs::write(&to, "old").unwrap();
            let error = give_by(&[way, UNKNOWN], &file, &to).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"old");
        }
    }
}
