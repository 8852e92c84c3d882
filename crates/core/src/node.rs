//! The state of the node as a whole: what it holds, what it allows, and who looks after it. It is
//! one row, so that every process goes by the same.

use std::collections::BTreeMap;
use std::time::Duration;

use kukuri_event::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::ladder::{Move, Step};
use crate::{Capacity, FUTURE_SECONDS_BOUND, OnFull, Retention, UnixMillis, Usage};

/// The key of the one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// What stored bodies add up to, each counted once, however many topics it has.
    pub usage: Usage,
    pub allowance: Allowance,
    pub leases: Leases,
    pub past: Past,
}

impl NodeState {
    /// What a node is before anything was said or stored.
    pub const FRESH: Self = Self {
        usage: Usage { events: 0, bytes: 0 },
        allowance: Allowance::STANDARD,
        leases: Leases(BTreeMap::new()),
        past: Past { forgotten_until: None, last_move: None },
    };
}

/// What is kept of what has been: what has to be known of what is not known any more, and how the node came
/// to allow what it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Past {
    /// The latest of all times from which an id or a deletion was forgotten. It only ever rises, whatever
    /// becomes of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgotten_until: Option<UnixMillis>,
    /// Of the ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_move: Option<Move>,
}

impl Past {
    /// Whether a regular event of that date may be one that was here, or was deleted, and was forgotten:
    /// nothing is dated more than a day after it comes.
    pub fn may_have_held(&self, created_at: UnixSeconds) -> bool {
        let reach = |until: UnixMillis| until.seconds().saturating_add(FUTURE_SECONDS_BOUND);
        self.forgotten_until.is_some_and(|until| created_at <= reach(until))
    }

    pub(crate) fn forget(&mut self, from: UnixMillis) {
        self.forgotten_until = self.forgotten_until.max(Some(from));
    }
}

/// What the node takes in and keeps: its settings, and what it had to give up of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowance {
    pub capacity: Capacity,
    pub on_full: OnFull,
    pub retention: Retention,
    pub step: Step,
    pub storage: Storage,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::STANDARD
    }
}

impl Allowance {
    pub const STANDARD: Self = Self {
        capacity: Capacity { max_events: None, max_bytes: None },
        on_full: OnFull::Evict,
        retention: Retention::STANDARD,
        step: Step::None,
        storage: Storage::Open,
    };

    /// Whether events may leave for the room they take in the node.
    pub fn evicts(&self, usage: Usage) -> bool {
        let is_pressed = self.capacity.is_exceeded(usage) || self.step >= Step::EvictOldest;
        self.on_full == OnFull::Evict && is_pressed
    }
}

/// Whether the disk has room for more events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    #[default]
    Open,
    /// Less is free than the node keeps in reserve for deleting and purging.
    Full { reserve_bytes: u64 },
    /// Less is free than the last part of the reserve: deletions are events as well, and what is left is
    /// for purging alone.
    Spent { reserve_bytes: u64 },
}

/// Work that one instance does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The sweep of expired events, retention, capacity and the ladder.
    Upkeep,
    /// Asking other nodes for what is missing.
    Backfill,
    /// Being in the swarms of the topics.
    Gossip,
}

/// An instance of the program, named by a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holder(pub u64);

/// Grows with every change of hands: what an earlier holder still sends is not done.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// No lease is longer.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(10 * 60);

/// Who does a task, and until when nobody else may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub fence: Fence,
    /// Nobody, once it was released.
    pub holder: Option<Holder>,
    pub until: UnixMillis,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Leases(BTreeMap<Task, Lease>);

impl Lease {
    /// Whether it is somebody's at a time. One that reaches further than any can was given by a clock that
    /// was ahead: it counts no more.
    pub(crate) fn is_held(&self, at: UnixMillis) -> bool {
        let runs = self.until > at && at.until(self.until) <= LEASE_MAX;
        runs && self.holder.is_some()
    }
}

impl Leases {
    pub fn get(&self, task: Task) -> Option<Lease> {
        self.0.get(&task).copied()
    }

    /// Until when an instance does a task, if one does now.
    pub fn held_until(&self, task: Task, now: UnixMillis) -> Option<UnixMillis> {
        let lease = self.get(task).filter(|lease| lease.is_held(now));
        lease.map(|lease| lease.until)
    }

    pub(crate) fn set(&mut self, task: Task, lease: Lease) {
        self.0.insert(task, lease);
    }
}
