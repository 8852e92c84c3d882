use std::time::Duration;

use kukuri_event::UnixSeconds;
use serde::{Deserialize, Serialize};

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Milliseconds since the Unix epoch: every time of our own. Only events count in seconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The second that has begun.
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.div_euclid(1000))
    }

    /// How long it is until a later time; nothing if that is past.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0).try_into().unwrap_or(0))
    }

    /// So many days earlier.
    #[must_use]
    pub fn days_before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(i64::from(days).saturating_mul(MILLIS_PER_DAY)))
    }

    pub fn saturating_add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait.as_millis().try_into().unwrap_or(i64::MAX)))
    }
}

impl From<UnixSeconds> for UnixMillis {
    fn from(seconds: UnixSeconds) -> Self {
        Self(seconds.0.saturating_mul(1000))
    }
}
