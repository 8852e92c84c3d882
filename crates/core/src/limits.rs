use kukuri_event::UnixSeconds;
use serde::{Deserialize, Serialize};

/// Longer values of single-letter tags are stored but not indexed.
pub const TAG_VALUE_INDEXED_BYTES_MAX: usize = 255;

/// No limit may let events be further ahead of the clock: by `created_at` stores find what was taken
/// in long ago, with this as the margin.
pub const FUTURE_SECONDS_BOUND: i64 = 24 * 60 * 60;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// The limits of admission. One table for every door.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The event's JSON text as it came.
    pub event_bytes_max: usize,
    pub tags_max: usize,
    /// The first value of a single-letter tag.
    pub tag_value_bytes_max: usize,
    pub topics_max: usize,
    /// `e` and `a` tags of a kind 5.
    pub deletion_targets_max: usize,
    pub future_seconds_max: i64,
    /// How long ids are remembered. Older events are refused, because they could be ones that were
    /// deleted or purged and then forgotten.
    pub dedupe_retention_days: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self::STANDARD
    }
}

impl Limits {
    pub const STANDARD: Self = Self {
        event_bytes_max: 64 * 1024,
        tags_max: 2000,
        tag_value_bytes_max: 1024,
        topics_max: 16,
        deletion_targets_max: 200,
        future_seconds_max: 15 * 60,
        dedupe_retention_days: 180,
    };

    /// The newest `created_at` that is accepted at `now`.
    pub fn newest(&self, now: UnixSeconds) -> UnixSeconds {
        now.saturating_add(self.future_seconds_max)
    }

    /// The oldest `created_at` of a regular event that is accepted at `now`.
    pub fn oldest(&self, now: UnixSeconds) -> UnixSeconds {
        now.saturating_sub((self.dedupe_retention_days - 1) * SECONDS_PER_DAY)
    }
}
