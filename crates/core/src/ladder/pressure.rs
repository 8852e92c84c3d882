//! Whether the node is under pressure, and what from.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Step;
use crate::{TopicId, Usage};

/// Pressure is gone when every load is at most so much of its limit.
pub const RELEASE_PERCENT: u32 = 90;

/// Where pressure begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What the node may hold; `None` where it may hold anything.
    pub soft_bytes_max: Option<u64>,
    pub soft_events_max: Option<u64>,
    /// What has to stay free on the disk.
    pub disk_free_bytes_min: u64,
    pub lags: Vec<LagLimit>,
}

/// How far behind the feed a consumer may be before it counts for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagLimit {
    pub topic: TopicId,
    pub lag_seconds_max: u64,
}

/// How the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub usage: Usage,
    /// `None` where the disk is somebody else's, such as that of a database server.
    pub disk: Option<DiskLoad>,
    /// Of the consumer that is furthest behind.
    pub lag_seconds: u64,
}

/// What is free on a disk, and what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLoad {
    pub free_bytes: u64,
    /// What it gets without that anything leaves, as soon as space is given back.
    pub vacant_bytes: u64,
    /// What it gets at most if events leave.
    pub held_bytes: u64,
}

/// What is beyond its limit, and by how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Disk {
        free_bytes: u64,
        free_bytes_min: u64,
        /// Whether no event has to leave for it: all of them would not make enough room, or there will be enough
        /// in a moment.
        #[serde(default, skip_serializing_if = "is_false")]
        beyond_help: bool,
    },
    Bytes {
        bytes: u64,
        bytes_max: u64,
    },
    Events {
        events: u64,
        events_max: u64,
    },
    Lag {
        #[serde(with = "text")]
        topic: TopicId,
        lag_seconds: u64,
        lag_seconds_max: u64,
    },
}

impl Cause {
    /// A short name for counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "disk",
            Self::Bytes { .. } => "bytes",
            Self::Events { .. } => "events",
            Self::Lag { .. } => "lag",
        }
    }
}

impl Cause {
    /// Whether a step can be of help.
    pub(super) fn moves_to(&self, step: Step) -> bool {
        step < Step::EvictOldest || self.is_helped_by_eviction()
    }

    /// Not a consumer that is behind, to which each event that leaves is one more row to read, and not a disk
    /// that others fill, or that is about to get space back.
    fn is_helped_by_eviction(&self) -> bool {
        match self {
            Self::Bytes { .. } | Self::Events { .. } => true,
            Self::Disk { beyond_help, .. } => !beyond_help,
            Self::Lag { .. } => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { free_bytes, free_bytes_min, .. } => {
                write!(f, "{free_bytes} bytes are free on the disk, fewer than {free_bytes_min}")
            }
            Self::Bytes { bytes, bytes_max } => {
                write!(f, "{bytes} bytes are stored, more than {bytes_max}")
            }
            Self::Events { events, events_max } => {
                write!(f, "{events} events are stored, more than {events_max}")
            }
            Self::Lag { topic, lag_seconds, lag_seconds_max } => write!(
                f,
                "a consumer is {lag_seconds} seconds behind, more than the {lag_seconds_max} of {topic}"
            ),
        }
    }
}

/// How the loads stand to their limits. Between the two that count there is a margin, in which the
/// ladder stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Everything is below [`RELEASE_PERCENT`] of its limit, or at it.
    Low,
    Between,
    /// Something is beyond its limit. Never empty; of several, what is furthest beyond comes first.
    High(Vec<Cause>),
}

/// Holds the loads against the limits.
pub fn pressure(limits: &Limits, load: &Load) -> Pressure {
    let gauges = gauges(limits, load);
    let is_low = gauges.iter().all(Gauge::is_low);
    let mut over: Vec<Gauge> = gauges.into_iter().filter(Gauge::is_over).collect();
    over.sort_by(|one, other| other.share_cmp(one));
    match over.is_empty() {
        false => Pressure::High(over.into_iter().map(|gauge| gauge.cause).collect()),
        true if is_low => Pressure::Low,
        true => Pressure::Between,
    }
}

/// Whether it helps that events leave: what they take is beyond its limit; or it is not below it by the margin
/// yet, and nothing else keeps the ladder from coming down, which would stay where it is for ever.
pub fn eviction_helps(limits: &Limits, load: &Load) -> bool {
    let gauges = gauges(limits, load);
    let (helped, others): (Vec<&Gauge>, Vec<&Gauge>) = gauges
        .iter()
        .filter(|gauge| !gauge.is_low())
        .partition(|gauge| gauge.cause.is_helped_by_eviction());
    helped.iter().any(|gauge| gauge.is_over() || others.is_empty())
}

fn gauges(limits: &Limits, load: &Load) -> Vec<Gauge> {
    let Usage { events, bytes } = load.usage;
    let disk = load.disk.map(|DiskLoad { free_bytes, vacant_bytes, held_bytes }| {
        let free_bytes_min = limits.disk_free_bytes_min;
        let soon = free_bytes.saturating_add(vacant_bytes);
        let at_most = soon.saturating_add(held_bytes);
        let beyond_help = is_low(free_bytes_min, soon) || !is_low(free_bytes_min, at_most);
        let cause = Cause::Disk { free_bytes, free_bytes_min, beyond_help };
        Gauge { load: free_bytes_min, room: free_bytes, cause }
    });
    let bytes = limits.soft_bytes_max.map(|bytes_max| Gauge {
        load: bytes,
        room: bytes_max,
        cause: Cause::Bytes { bytes, bytes_max },
    });
    let events = limits.soft_events_max.map(|events_max| Gauge {
        load: events,
        room: events_max,
        cause: Cause::Events { events, events_max },
    });
    let lags = limits.lags.iter().map(|LagLimit { topic, lag_seconds_max }| Gauge {
        load: load.lag_seconds,
        room: *lag_seconds_max,
        cause: Cause::Lag {
            topic: topic.clone(),
            lag_seconds: load.lag_seconds,
            lag_seconds_max: *lag_seconds_max,
        },
    });
    disk.into_iter().chain(bytes).chain(events).chain(lags).collect()
}

/// A load and the room there is for it.
struct Gauge {
    load: u64,
    room: u64,
    cause: Cause,
}

impl Gauge {
    fn is_over(&self) -> bool {
        self.load > self.room
    }

    fn is_low(&self) -> bool {
        is_low(self.load, self.room)
    }

    /// By which part of its room its load is.
    fn share_cmp(&self, other: &Self) -> Ordering {
        let share = |one: &Self, of: &Self| u128::from(one.load) * u128::from(of.room);
        share(self, other).cmp(&share(other, self))
    }
}

fn is_low(load: u64, room: u64) -> bool {
    u128::from(load) * 100 <= u128::from(room) * u128::from(RELEASE_PERCENT)
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Topics as their ids.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::TopicId;

    pub fn serialize<S: Serializer>(topic: &TopicId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(topic.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TopicId, D::Error> {
        TopicId::parse(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}
