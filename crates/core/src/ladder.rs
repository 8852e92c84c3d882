//! The ladder: what the node gives up, step by step, while it is under pressure, and takes up again
//! when it is not. It climbs and descends one step at a time. A step up takes pressure that held for
//! [`Dwell::climb`]; a step down takes the absence of it, by a margin, for the longer
//! [`Dwell::descend`]. So it never flaps, however the figures dance around a limit.

mod pressure;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::UnixMillis;
use crate::feed::coded;
pub use pressure::{
    Cause, DiskLoad, LagLimit, Limits, Load, Pressure, RELEASE_PERCENT, eviction_helps, pressure,
};

coded!(
    /// What the node has given up. Each step includes those before it.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Step {
        #[default]
        None = 0 "none",
        /// History is no longer fetched from other nodes.
        StopBackfill = 1 "stop_backfill",
        /// Topics of low priority take nothing in.
        StopLowPriority = 2 "stop_low_priority",
        /// The oldest events leave, whether their time has come or not.
        EvictOldest = 3 "evict_oldest",
    }
);

impl Step {
    fn up(self) -> Option<Self> {
        Self::from_code(self.code() + 1)
    }

    fn down(self) -> Option<Self> {
        Self::from_code(self.code() - 1)
    }
}

/// How long a condition has to hold before it moves the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dwell {
    pub climb: Duration,
    pub descend: Duration,
}

impl Dwell {
    /// Long enough for one step to show what it is good for before the next one is taken.
    pub const STANDARD: Self =
        Self { climb: Duration::from_secs(60), descend: Duration::from_secs(5 * 60) };
}

/// Why the ladder moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// This was beyond its limit, more than anything else that the step helps.
    Pressure(Cause),
    /// Everything has been below its limit by a margin.
    Relief,
}

impl Reason {
    /// A short name for counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pressure(cause) => cause.name(),
            Self::Relief => "relief",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pressure(cause) => cause.fmt(f),
            Self::Relief => f.write_str("the pressure is gone"),
        }
    }
}

/// One move of the ladder, for the log, the metrics and who asks for the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub from: Step,
    pub to: Step,
    #[serde(with = "millis")]
    pub at: UnixMillis,
    pub reason: Reason,
}

/// What is kept of the ladder while nobody runs it: the step, and the move that led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub step: Step,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_move: Option<Move>,
}

impl Standing {
    /// Where a new node stands.
    pub const GROUND: Self = Self { step: Step::None, last_move: None };
}

/// The ladder of a running node.
#[derive(Clone, Debug)]
pub struct Ladder {
    dwell: Dwell,
    top: Step,
    standing: Standing,
    held: Held,
    latest: Option<UnixMillis>,
}

/// The condition that could move the ladder, and since when it has held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Neither,
    High(UnixMillis),
    Low(UnixMillis),
}

impl Ladder {
    /// Goes on from where the node stood, or from its top if that is lower by now. How long a condition held
    /// before is not known any more, as nobody looked since, so it has to hold anew.
    pub fn resume(standing: Standing, dwell: Dwell, top: Step) -> Self {
        let standing = Standing { step: standing.step.min(top), ..standing };
        Self { dwell, top, standing, held: Held::Neither, latest: None }
    }

    pub fn step(&self) -> Step {
        self.standing.step
    }

    /// What to keep, after every move.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Takes note of the pressure at a time, and moves by one step if that is due.
    #[must_use]
    pub fn observe(&mut self, at: UnixMillis, pressure: &Pressure) -> Option<Move> {
        // A clock that was set back, or a machine that slept, says nothing about how long anything held.
        let unseen = |latest: UnixMillis| at < latest || latest.until(at) > self.dwell.climb;
        if self.latest.replace(at).is_some_and(unseen) {
            self.held = Held::Neither;
        }
        let step = self.standing.step;
        let (to, reason) = match pressure {
            Pressure::High(causes) => {
                let up = step.up().filter(|up| *up <= self.top);
                // What a step is of no help for does not keep others from it, and does not count for their time.
                let helped = up.and_then(|up| {
                    let cause = causes.iter().find(|cause| cause.moves_to(up))?;
                    Some((up, Reason::Pressure(cause.clone())))
                });
                let since = match self.held {
                    Held::High(since) if helped.is_some() => since,
                    _ => at,
                };
                self.held = Held::High(since);
                let due = since.until(at) >= self.dwell.climb;
                helped.filter(|_| due)?
            }
            Pressure::Low => {
                let since = if let Held::Low(since) = self.held { since } else { at };
                self.held = Held::Low(since);
                let due = since.until(at) >= self.dwell.descend;
                (step.down().filter(|_| due)?, Reason::Relief)
            }
            Pressure::Between => {
                self.held = Held::Neither;
                return None;
            }
        };
        // The next step needs a dwell of its own.
        self.held = match pressure {
            Pressure::High(_) => Held::High(at),
            _ => Held::Low(at),
        };
        let moved = Move { from: step, to, at, reason };
        self.standing = Standing { step: to, last_move: Some(moved.clone()) };
        Some(moved)
    }
}

/// Times as plain numbers.
mod millis {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::UnixMillis;

    pub fn serialize<S: Serializer>(time: &UnixMillis, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(time.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<UnixMillis, D::Error> {
        i64::deserialize(from).map(UnixMillis)
    }
}
