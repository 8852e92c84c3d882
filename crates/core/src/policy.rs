//! What topics ask of ingest and retention, and how long events are kept for it.

use kukuri_event::{Class, Kind};
use serde::{Deserialize, Serialize};

use crate::{Record, State, UnixMillis, Usage};

/// What a topic asks of ingest and retention, where it differs from the node's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// Stored bodies, hidden ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// How far a consumer of the feed may be behind before the node takes in less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lag_seconds: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub backfill: Backfill,
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Priority,
    #[serde(skip_serializing_if = "is_default")]
    pub on_full: OnFull,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl IngestPolicy {
    pub fn capacity(&self) -> Capacity {
        Capacity { max_events: self.max_events, max_bytes: self.max_bytes }
    }
}

/// Whether a topic's history may be asked for at other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backfill {
    #[default]
    On,
    Off,
}

/// Which topics the node stops first when it is short of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
}

/// What happens at the limit: the oldest events leave, or new ones are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    #[default]
    Evict,
    Refuse,
}

/// How much may be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Capacity {
    /// Whether one more body of so many bytes fits beside what is there.
    pub fn has_room(&self, usage: Usage, bytes: u64) -> bool {
        self.max_events.is_none_or(|max| usage.events < max)
            && self.max_bytes.is_none_or(|max| usage.bytes.saturating_add(bytes) <= max)
    }

    /// Whether there is more than there may be.
    pub fn is_exceeded(&self, usage: Usage) -> bool {
        self.max_events.is_some_and(|max| usage.events > max)
            || self.max_bytes.is_some_and(|max| usage.bytes > max)
    }
}

/// How an event ages. What it is decides how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shelf {
    Regular,
    /// Kind 5.
    Deletion,
    /// The effective version of its key.
    Current,
    /// A version that is effective no longer.
    History,
}

impl Shelf {
    pub fn of(record: &Record) -> Self {
        Self::of_kind(record.event().kind(), record.state)
    }

    pub fn of_kind(kind: Kind, state: State) -> Self {
        match kind.class() {
            Class::Replaceable | Class::Addressable if state == State::Effective => Self::Current,
            Class::Replaceable | Class::Addressable => Self::History,
            Class::Regular | Class::Ephemeral if kind == Kind::DELETION => Self::Deletion,
            Class::Regular | Class::Ephemeral => Self::Regular,
        }
    }
}

/// How long the node keeps events whose topics do not say otherwise, counted from when they were
/// taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    pub regular_days: u32,
    /// Versions that are effective no longer. A topic can shorten it.
    pub history_days: u32,
    /// Kind 5. A topic can lengthen it.
    pub deletion_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self::STANDARD
    }
}

impl Retention {
    pub const STANDARD: Self = Self { regular_days: 30, history_days: 7, deletion_days: 180 };

    /// What is taken in by these times has aged in a topic at `now`.
    pub fn cutoffs(&self, policy: &IngestPolicy, now: UnixMillis) -> Cutoffs {
        let topic = policy.retention_days;
        let regular = topic.unwrap_or(self.regular_days);
        Cutoffs {
            regular: Some(now.days_before(regular)),
            deletion: Some(now.days_before(topic.unwrap_or(0).max(self.deletion_days))),
            history: Some(now.days_before(regular.min(self.history_days))),
            current: None,
        }
    }
}

/// For each shelf, the time by which what has aged was taken in; `None` where nothing ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoffs {
    pub regular: Option<UnixMillis>,
    pub deletion: Option<UnixMillis>,
    pub history: Option<UnixMillis>,
    pub current: Option<UnixMillis>,
}

impl Cutoffs {
    /// One time for all shelves.
    pub fn all(cutoff: UnixMillis) -> Self {
        let cutoff = Some(cutoff);
        Self { regular: cutoff, deletion: cutoff, history: cutoff, current: cutoff }
    }

    pub fn of(&self, shelf: Shelf) -> Option<UnixMillis> {
        match shelf {
            Shelf::Regular => self.regular,
            Shelf::Deletion => self.deletion,
            Shelf::Current => self.current,
            Shelf::History => self.history,
        }
    }

    /// The time after which nothing visible that was taken in has aged.
    pub fn latest_visible(&self) -> Option<UnixMillis> {
        [self.regular, self.deletion, self.current].into_iter().flatten().max()
    }

    /// The same for what is hidden.
    pub fn latest_hidden(&self) -> Option<UnixMillis> {
        [self.regular, self.deletion, self.history].into_iter().flatten().max()
    }

    /// The same for either.
    pub fn latest(&self) -> Option<UnixMillis> {
        [self.regular, self.deletion, self.history, self.current].into_iter().flatten().max()
    }

    /// Whether the record has aged.
    pub fn take(&self, record: &Record) -> bool {
        self.of(Shelf::of(record)).is_some_and(|cutoff| record.ingested_at <= cutoff)
    }
}
