//! The disk that the store lies on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kukuri_core::{Act, Storage, Task};
use kukuri_feed::Obstacle;
use kukuri_lane::Lane;
use kukuri_store::{Clock, Store, node_state};
use tokio::time::{MissedTickBehavior, interval};

use super::{ROUND_INTERVAL, UpkeepError, percent_of};

/// A full disk counts as open again when so much more than the reserve is free, in percent of it: the
/// space that one purge gives back must not let in what fills it at once.
const RELEASE_PERCENT: u32 = 125;

/// Deletions are taken in until no more than this part of the reserve is free. What is left is enough for
/// purging.
const LAST_PARTS: u64 = 4;

/// A directory on a disk of this machine's.
#[derive(Clone, Debug)]
pub struct Disk {
    directory: PathBuf,
    /// Whether the log says that it cannot be looked at. All clones know.
    told: Arc<AtomicBool>,
}

impl Disk {
    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), told: Arc::default() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What programs may still write.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn look(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.directory)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The same; `None` if the system does not tell, which the log says once.
    pub fn free_bytes(&self) -> Option<u64> {
        let looked = self.look();
        let was_told = self.told.swap(looked.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&looked, was_told) {
            let directory = self.directory.display();
            tracing::error!(%directory, %error, "the disk cannot be looked at: what was seen of it last holds until it can be again");
        }
        looked.ok()
    }
}

/// What keeps consumers of the feed from writing: their tables lie on the same disk, and its reserve is for
/// deleting and purging. They wait, and lose nothing.
pub fn obstacle(disk: Disk, reserve_bytes: u64) -> Obstacle {
    let before = Mutex::new(Storage::Open);
    Arc::new(move || {
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        *before = seen(Some(&disk), *before, reserve_bytes);
        (*before != Storage::Open)
            .then(|| format!("the disk has less than its reserve of {reserve_bytes} bytes free"))
    })
}

/// Looks at the disk for who opens a store while no node runs: events are taken in by what is free now, and
/// not by what somebody found when a node ran last. A node that runs looks by itself.
pub struct Lookout<'a> {
    pub store: &'a dyn Store,
    pub lane: &'a Lane,
    pub clock: &'a Clock,
    pub disk: Option<Disk>,
    pub reserve_bytes: u64,
}

impl Lookout<'_> {
    /// # Errors
    /// The store or the lane does not answer; what was said before holds on.
    pub async fn look(&self) -> Result<(), UpkeepError> {
        let node = node_state(self.store).await?;
        if node.leases.held_until(Task::Upkeep, (self.clock)()).is_some() {
            return Ok(());
        }
        let before = node.allowance.storage;
        let storage = seen(self.disk.as_ref(), before, self.reserve_bytes);
        if storage != before {
            let _ = self.lane.run(Act::SetStorage(storage)).await?;
        }
        Ok(())
    }

    /// Looks again and again, as often as a node that runs. Never ends by itself.
    pub async fn run(&self) {
        let mut looks = interval(ROUND_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // Whatever is the matter with the store, those who write to it will be told.
            let _ = self.look().await;
        }
    }
}

/// Whether there is room, by what is seen of the disk and what was said before. A disk that nobody has named has
/// room; of one that cannot be looked at what was said before holds.
pub(super) fn seen(disk: Option<&Disk>, before: Storage, reserve_bytes: u64) -> Storage {
    let Some(disk) = disk else { return Storage::Open };
    disk.free_bytes().map_or(before, |free_bytes| storage(before, free_bytes, reserve_bytes))
}

/// Whether there is room, by what is free and what was said before.
fn storage(before: Storage, free_bytes: u64, reserve_bytes: u64) -> Storage {
    let last_bytes = reserve_bytes / LAST_PARTS;
    let released = |bytes: u64| percent_of(bytes, RELEASE_PERCENT);
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

/// Says in the log what has become of the disk.
pub(super) fn tell(storage: Storage) {
    match storage {
        Storage::Open => tracing::info!("the disk has room again: events are taken in"),
        Storage::Full { reserve_bytes } => tracing::error!(
            reserve_bytes,
            "less is free on the disk than its reserve: nothing but deletions is taken in until there is room"
        ),
        Storage::Spent { reserve_bytes } => tracing::error!(
            reserve_bytes,
            "less is free on the disk than the last of its reserve: nothing is taken in until there is room"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_looked_at_by_a_directory_that_is_there() {
        let (there, nowhere) = (Disk::of(Path::new("/")), Disk::of(Path::new("/no/such/path")));
        assert!(there.look().is_ok() && there.free_bytes().is_some());
        assert!(nowhere.look().is_err() && nowhere.free_bytes().is_none());
    }

    #[test]
    fn a_full_disk_opens_with_a_margin() {
        let (open, full) = (Storage::Open, Storage::Full { reserve_bytes: 1000 });
        for (before, free, after) in
            [(open, 1000, open), (open, 999, full), (full, 1249, full), (full, 1250, open)]
        {
            assert_eq!(storage(before, free, 1000), after, "{free}");
        }
    }

    /// A disk that could not be looked at for a moment was taken for one with room.
    #[test]
    fn what_cannot_be_looked_at_stays_as_it_was() {
        let full = Storage::Full { reserve_bytes: 1000 };
        let nowhere = Disk::of(Path::new("/no/such/path"));
        for before in [Storage::Open, full] {
            assert_eq!(seen(Some(&nowhere), before, 1000), before);
            assert_eq!(seen(None, before, 1000), Storage::Open, "a disk of somebody else's");
        }
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
            assert_eq!(storage(before, free, 1000), after, "{before:?} {free}");
        }
    }
}
