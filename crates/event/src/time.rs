use std::fmt;

/// Seconds since the Unix epoch, as Nostr writes them. The range is that of a JSON integer which a
/// signed 64-bit column can hold; negative times are refused when an event is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub i64);

impl UnixSeconds {
    pub fn saturating_add(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    pub fn saturating_sub(self, seconds: i64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
