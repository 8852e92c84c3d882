//! The disk that the store lies on.

use std::path::{Path, PathBuf};

use kukuri_core::Storage;

/// A full disk counts as open again when so much more than the reserve is free, in percent of it: the
/// space that one purge gives back must not let in what fills it at once.
const RELEASE_PERCENT: u64 = 125;

/// Deletions are taken in until no more than this part of the reserve is free. What is left is enough for
/// purging.
const LAST_PARTS: u64 = 4;

/// A directory on a disk of this machine's.
#[derive(Clone, Debug)]
pub struct Disk(PathBuf);

impl Disk {
    pub fn of(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// What programs may still write; `None` if the system does not tell.
    pub fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.0).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Whether there is room, by what is free and what was said before.
pub(super) fn storage(before: Storage, free_bytes: Option<u64>, reserve_bytes: u64) -> Storage {
    let Some(free_bytes) = free_bytes else { return Storage::Open };
    let last_bytes = reserve_bytes / LAST_PARTS;
    let released = |bytes: u64| bytes.saturating_mul(RELEASE_PERCENT) / 100;
    let (full_below, spent_below) = match before {
        Storage::Open => (reserve_bytes, last_bytes),
        Storage::Full { .. } => (released(reserve_bytes), last_bytes),
        Storage::Spent { .. } => (released(reserve_bytes), released(last_bytes)),
    };
    if free_bytes < spent_below {
        Storage::Spent { reserve_bytes: last_bytes }
    } else if free_bytes < full_below {
        Storage::Full { reserve_bytes }
    } else {
        Storage::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_opens_with_a_margin() {
        let (open, full) = (Storage::Open, Storage::Full { reserve_bytes: 1000 });
        for (before, free, after) in
            [(open, 1000, open), (open, 999, full), (full, 1249, full), (full, 1250, open)]
        {
            assert_eq!(storage(before, Some(free), 1000), after, "{free}");
        }
        assert_eq!(storage(full, None, 1000), open, "a disk of somebody else's");
    }

    #[test]
    fn the_last_of_the_reserve_is_left_with_a_margin() {
        let (open, full) = (Storage::Open, Storage::Full { reserve_bytes: 1000 });
        let spent = Storage::Spent { reserve_bytes: 250 };
        for (before, free, after) in [
            (open, 250, full),
            (open, 249, spent),
            (full, 250, full),
            (full, 249, spent),
            (spent, 311, spent),
            (spent, 312, full),
            (spent, 1249, full),
            (spent, 1250, open),
        ] {
            assert_eq!(storage(before, Some(free), 1000), after, "{before:?} {free}");
        }
    }
}
