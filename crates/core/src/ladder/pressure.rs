//! Whether the node is under pressure, and what from.

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
    /// Whether the disk gets the space of events that leave at once. The tables of a server keep most of theirs
    /// for what comes next: events would go on leaving until none are left.
    pub disk_shrinks: bool,
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
    pub disk_free_bytes: Option<u64>,
    /// Of the consumer that is furthest behind.
    pub lag_seconds: u64,
}

/// What is beyond its limit, and by how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Disk {
        free_bytes: u64,
        free_bytes_min: u64,
        /// Whether events that leave would not make enough room on it.
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
    /// that others fill, or that gets no space back.
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
    /// Something is beyond its limit: of several, what is furthest beyond.
    High(Cause),
}

/// Holds the loads against the limits.
pub fn pressure(limits: &Limits, load: &Load) -> Pressure {
    let gauges = gauges(limits, load);
    let worst = gauges
        .iter()
        .filter(|gauge| gauge.is_over())
        .reduce(|worst, gauge| if gauge.exceeds(worst) { gauge } else { worst });
    match worst {
        Some(gauge) => Pressure::High(gauge.cause.clone()),
        None if gauges.iter().all(Gauge::is_low) => Pressure::Low,
        None => Pressure::Between,
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
    let disk = load.disk_free_bytes.map(|free_bytes| {
        let free_bytes_min = limits.disk_free_bytes_min;
        let room_max = free_bytes.saturating_add(bytes);
        let beyond_help = !(limits.disk_shrinks && is_low(free_bytes_min, room_max));
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

    /// Whether its load is a greater part of its room.
    fn exceeds(&self, other: &Self) -> bool {
        let share = |one: &Self, of: &Self| u128::from(one.load) * u128::from(of.room);
        share(self, other) > share(other, self)
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
