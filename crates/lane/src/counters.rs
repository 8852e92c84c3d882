use std::sync::atomic::{AtomicU64, Ordering};

/// What a lane has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Batches that were committed.
    pub batches: u64,
    /// Commands in them.
    pub commands: u64,
    /// The largest of them, in commands.
    pub batch_commands_max: u64,
    /// Batches that were answered with an error.
    pub batches_failed: u64,
    /// Tries that were lost to another writer.
    pub conflicts: u64,
    /// Tries that were repeated because the store was unavailable.
    pub retries: u64,
    /// Sightings that were not written: too many ids, or the flush failed.
    pub sightings_dropped: u64,
    /// Ephemeral events that slow listeners missed.
    pub ephemerals_dropped: u64,
}

/// The live counters. They are independent of each other, so relaxed order is enough.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub commands: AtomicU64,
    pub batch_commands_max: AtomicU64,
    pub batches_failed: AtomicU64,
    pub conflicts: AtomicU64,
    pub retries: AtomicU64,
    pub sightings_dropped: AtomicU64,
    pub ephemerals_dropped: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub fn committed(&self, commands: u64) {
        add(&self.batches, 1);
        add(&self.commands, commands);
        self.batch_commands_max.fetch_max(commands, Ordering::Relaxed);
    }

    pub fn stats(&self) -> LaneStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LaneStats {
            batches: get(&self.batches),
            commands: get(&self.commands),
            batch_commands_max: get(&self.batch_commands_max),
            batches_failed: get(&self.batches_failed),
            conflicts: get(&self.conflicts),
            retries: get(&self.retries),
            sightings_dropped: get(&self.sightings_dropped),
            ephemerals_dropped: get(&self.ephemerals_dropped),
        }
    }
}
