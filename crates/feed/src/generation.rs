use std::fmt;

use kukuri_event::EventId;

/// One complete set of a consumer's tables. A rebuild makes a new one beside the old one; whoever reads
/// asks which one is active, request by request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

impl Generation {
    /// The name of a table of this generation, such as `documents_g3`.
    pub fn table(self, base: &str) -> String {
        format!("{base}_g{}", self.0)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which of its rows a consumer hashes to show what it holds: those of events whose id begins with this
/// byte, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    All,
    FirstByte(u8),
}

impl Sample {
    pub fn takes(self, event: &EventId) -> bool {
        match self {
            Self::All => true,
            Self::FirstByte(byte) => event.as_bytes()[0] == byte,
        }
    }
}

/// What a generation holds, in short. Two generations of the same version of a consumer at the same seq
/// have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// All rows that were made from events.
    pub rows: u64,
    /// Of the sampled ones, in the order of their keys.
    pub hash: u64,
}
