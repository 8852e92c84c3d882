//! What the feed is made of: numbered rows, and cursors into them.

use std::fmt;

use kukuri_event::{EventId, Kind, Pubkey, UnixSeconds};

use crate::{TopicId, UnixMillis, VersionKey};

/// The number of a feed row. Gapless: the row after n is n + 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl Seq {
    /// Before the first row.
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one life of a feed. A restored or newly made feed has another, so that a reader whose
/// numbers belong to an earlier life notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(pub i64);

/// The rows a feed holds: `floor + 1 ..= head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedBounds {
    pub epoch: Epoch,
    pub floor: Seq,
    pub head: Seq,
}

/// How far a reader has read, and in which life of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub epoch: Epoch,
    pub seq: Seq,
}

/// Why a cursor cannot be read from. Neither is ever a short read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error(
        "rows up to {floor} are no longer kept: rebuild from the state, or start after {floor}"
    )]
    Truncated { floor: Seq },
    #[error(
        "the cursor belongs to another life of the feed, or lies beyond its head {head}: rebuild"
    )]
    Diverged { head: Seq },
}

impl FeedBounds {
    pub fn check(&self, cursor: Cursor) -> Result<(), CursorError> {
        if cursor.epoch != self.epoch || cursor.seq > self.head {
            return Err(CursorError::Diverged { head: self.head });
        }
        if cursor.seq < self.floor {
            return Err(CursorError::Truncated { floor: self.floor });
        }
        Ok(())
    }

    /// Before the oldest row that is kept.
    pub fn start(&self) -> Cursor {
        Cursor { epoch: self.epoch, seq: self.floor }
    }
}

/// Defines an enum that is stored as a small number and written as a word.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The number in the column.
            pub const fn code(self) -> i16 {
                match self { $(Self::$variant => $code,)+ }
            }

            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// The word in messages and JSON lines.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}
pub(crate) use coded;

coded!(
    /// What happened to an event in a topic.
    Op {
        /// It became visible there.
        Upsert = 1 "upsert",
        /// It stopped being visible there.
        Delete = 2 "delete",
    }
);

coded!(
    /// Why an event stopped being visible.
    Reason {
        Nip09 = 1 "nip09",
        Expiration = 2 "expiration",
        Superseded = 3 "superseded",
        Retention = 4 "retention",
        Capacity = 5 "capacity",
        Takedown = 6 "takedown",
        Topic = 7 "topic",
    }
);

coded!(
    /// The door through which the cause of a row came.
    Source {
        Ws = 1 "ws",
        Gossip = 2 "gossip",
        Backfill = 3 "backfill",
        Import = 4 "import",
        Paid = 5 "paid",
        /// The node itself: sweeps, retention, operators.
        Node = 6 "node",
    }
);

/// One change of one event in one topic. A delete says all a reader needs, since the body may be
/// gone when a slow reader arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRow {
    pub seq: Seq,
    pub op: Op,
    pub event_id: EventId,
    pub topic_id: TopicId,
    /// The other topics the event is linked to at this row, sorted: for an upsert those linked
    /// before it, for a delete those that remain.
    pub prior: Vec<TopicId>,
    pub kind: Kind,
    pub pubkey: Pubkey,
    pub created_at: UnixSeconds,
    /// When the change was taken in.
    pub ingested_at: UnixMillis,
    /// The key of a replaceable or addressable event.
    pub effective_key: Option<VersionKey>,
    pub reason: Option<Reason>,
    pub source: Source,
    /// The topic of the swarm the cause came through.
    pub via: Option<TopicId>,
}
