use std::time::Duration;

use crate::BatchLimits;

/// The sizes and waits of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// How many commands may wait for a batch.
    pub queue_commands_max: u32,
    /// How many bytes of bodies may wait for a batch.
    pub queue_bytes_max: u32,
    pub batch: BatchLimits,
    /// How long a sender waits for room before it is told `error: overloaded`.
    pub submit_wait_max: Duration,
    /// How long one try of a batch may take. A store has shorter limits of its own; this one is for
    /// a store that is stuck.
    pub apply_wait_max: Duration,
    /// How long a batch is tried again while the store is unavailable.
    pub unavailable_wait_max: Duration,
    /// The pause after the first failed try; it doubles with each further one.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How often in a row another writer may get in before a batch.
    pub conflicts_max: u32,
    /// How many different ids are counted between two flushes of sightings.
    pub sightings_max: usize,
    pub sightings_flush_interval: Duration,
    /// How many ephemeral events a slow listener may be behind.
    pub ephemerals_max: usize,
    /// How many ids of ephemeral events are remembered.
    pub ephemeral_ids_max: usize,
}

impl LaneConfig {
    /// What the node runs with: room for four full batches, and sightings that fit into one.
    pub const STANDARD: Self = Self {
        queue_commands_max: 4096,
        queue_bytes_max: 32 * 1024 * 1024,
        batch: BatchLimits::STANDARD,
        submit_wait_max: Duration::from_secs(5),
        apply_wait_max: Duration::from_secs(30),
        unavailable_wait_max: Duration::from_secs(10),
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_secs(2),
        conflicts_max: 64,
        sightings_max: 8192,
        sightings_flush_interval: Duration::from_secs(10),
        ephemerals_max: 4096,
        ephemeral_ids_max: 16_384,
    };
}
