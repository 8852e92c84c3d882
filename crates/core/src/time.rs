use kukuri_event::UnixSeconds;

/// Milliseconds since the Unix epoch: every time of our own. Only events count in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The second that has begun.
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.div_euclid(1000))
    }
}

impl From<UnixSeconds> for UnixMillis {
    fn from(seconds: UnixSeconds) -> Self {
        Self(seconds.0.saturating_mul(1000))
    }
}
