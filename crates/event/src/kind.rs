use std::fmt;

/// The kind number of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u16);

/// What NIP-01 says happens to an event of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Kept by id.
    Regular,
    /// One current version per author and kind.
    Replaceable,
    /// One current version per author, kind and `d` tag.
    Addressable,
    /// Sent to who listens now, never stored.
    Ephemeral,
}

impl Kind {
    pub const DELETION: Self = Self(5);
    pub const AUTH: Self = Self(22242);

    pub const fn class(self) -> Class {
        match self.0 {
            0 | 3 | 10_000..=19_999 => Class::Replaceable,
            20_000..=29_999 => Class::Ephemeral,
            30_000..=39_999 => Class::Addressable,
            // Every number no class names is regular, so that new kinds work before we know them.
            _ => Class::Regular,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
