use std::sync::Arc;
use std::time::Duration;

use crate::POLL_INTERVAL;
use crate::ledger::FEED_WINDOW;

/// How a consumer is run.
#[derive(Clone)]
pub struct RunnerConfig {
    /// How many rows of the feed, or events of the state, a batch has at most.
    pub batch_rows_max: usize,
    /// How many bytes of events a batch has at most, but for the last few of them.
    pub batch_bytes_max: usize,
    /// How long nobody else works on a generation after the last word of who does, on the clock of the
    /// consumer's database. It is renewed three times as often.
    pub lease: Duration,
    pub wakeup: Wakeup,
    /// How long a worker that has read everything waits before it looks for itself.
    pub poll_interval: Duration,
    pub on_loss: OnLoss,
    /// The pauses before the tries of a row that fails, after which it is parked.
    pub try_pauses: Vec<Duration>,
    /// The pauses between tries of a database that is away.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How many times in a row a generation that is built may differ from the active one while rows come in, so
    /// that either may have seen more than the other. The last time, it halts.
    pub differences_max: u32,
    /// How long a retired generation stays for those who are reading it.
    pub retired_keep: Duration,
    /// Asked before every batch: why nothing may be written now, if that is so. The line stops meanwhile.
    pub obstacle: Option<Obstacle>,
    /// What is told of every step, for tests that end at one.
    pub probe: Option<Probe>,
}

pub type Obstacle = Arc<dyn Fn() -> Option<String> + Send + Sync>;

pub type Probe = Arc<dyn Fn(Step) + Send + Sync>;

impl RunnerConfig {
    pub fn standard() -> Self {
        Self {
            batch_rows_max: FEED_WINDOW as usize,
            batch_bytes_max: 4 * 1024 * 1024,
            lease: Duration::from_secs(30),
            wakeup: Wakeup::Watch,
            poll_interval: POLL_INTERVAL,
            on_loss: OnLoss::Rebuild,
            try_pauses: [0, 50, 200, 800, 3000].map(Duration::from_millis).to_vec(),
            backoff_min: Duration::from_millis(250),
            backoff_max: Duration::from_secs(30),
            // They take half a minute at least.
            differences_max: 24,
            retired_keep: Duration::from_secs(60),
            obstacle: None,
            probe: None,
        }
    }
}

/// How a worker learns that there are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The store tells it, and it looks for itself now and then.
    Watch,
    /// It only looks for itself.
    PollOnly,
}

/// What is done when the feed no longer holds the rows that come next, or is another feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// A new generation is built from the state, while the old one is read.
    Rebuild,
    /// The consumer halts until an operator decides.
    Halt,
}

/// The steps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Acquired,
    Read,
    Projected,
    Begun,
    Advanced,
    Applied,
    Committed,
    Parked,
    Scanned,
    Compared,
    Switched,
}

impl Step {
    pub const ALL: [Self; 11] = [
        Self::Acquired,
        Self::Read,
        Self::Projected,
        Self::Begun,
        Self::Advanced,
        Self::Applied,
        Self::Committed,
        Self::Parked,
        Self::Scanned,
        Self::Compared,
        Self::Switched,
    ];
}
