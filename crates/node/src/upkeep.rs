//! Upkeep of a running node: what has expired or aged leaves, what is over its limit makes room, and the
//! ladder follows the pressure. One instance does it for all, under a lease in the store; what it sends
//! is fenced, so that whoever has lost the lease changes nothing more.

mod aging;
mod beat;
mod doubt;
mod felt;
mod ladder;
mod round;
mod space;
mod sweep;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::ladder::Ladder;
use kukuri_core::{
    Capacity, Holder, Keeping, Lease, Look, NodeState, NodeTopic, OnFull, Retention, Storage, Task,
    UnixMillis, Usage,
};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::{Clock, Scope, Store, StoreError, node_state};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::clock::Steady;
use crate::tenure::{Tenure, release};
pub use aging::{Aging, cutoffs_before};
pub use beat::{Beat, CHUNK_EVENTS_MAX, Pace};
use doubt::Doubt;
pub use doubt::belief_at_start;
use felt::percent_of;
pub use round::TIDY_INTERVAL;
pub use space::{Disk, Lookout, obstacle};
pub use sweep::{Ended, Sweep, SweepError};

/// How often expired events are looked for, and pressure is felt.
const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// How much time one round takes. What is left waits for the next one, so that expired events, the disk and
/// the ladder are looked after in time, however much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `None` where it may take any.
    pub round: Option<Duration>,
    /// The part of it that what is urgent may take at once: of several topics over their limits, each gets
    /// its turn. Rounds follow each other for as long as that is not enough.
    pub urgent: Option<Duration>,
    /// How long space is given back at a time: other work of the round waits for it.
    pub tidy: Option<Duration>,
}

impl Budget {
    pub const STANDARD: Self = Self {
        round: Some(Duration::from_secs(4)),
        urgent: Some(Duration::from_secs(1)),
        tidy: Some(Duration::from_secs(2)),
    };
    /// What a round does depends on nothing but the store and its clock.
    pub const UNBOUNDED: Self = Self { round: None, urgent: None, tidy: None };
}

/// What the operator wants of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpkeepSettings {
    pub retention: Retention,
    pub keeping: Keeping,
    pub capacity: Capacity,
    pub on_full: OnFull,
    /// From this part of the capacity on the node is under pressure.
    pub soft_percent: u32,
    /// With less than this free on the disk, nothing is taken in.
    pub disk_reserve_bytes: u64,
}

/// What upkeep has done so far in this process, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkept {
    pub rounds: u64,
    pub rounds_failed: u64,
    pub expired_events: u64,
    pub removed_links: u64,
    pub forgotten: u64,
    /// Whether this process does it.
    pub holds: bool,
    /// How much further ahead the clock is than can be; nothing if it is plausible.
    pub clock_ahead: Duration,
}

/// Does upkeep, round by round.
pub struct Keeper {
    store: Arc<dyn Store>,
    lane: Arc<Lane>,
    clock: Clock,
    settings: UpkeepSettings,
    budget: Budget,
    disk: Option<Disk>,
    doubt: Option<Doubt>,
    tenure: Tenure,
    ladder: Option<Ladder>,
    /// What the log says of the disk, last.
    told: Storage,
    full_round_at: Option<UnixMillis>,
    /// What is left of the last full round: what has aged, and what comes after that.
    aging: Option<Aging>,
    pending: VecDeque<Look>,
    /// Whether what leaves at once, expired or for want of room, was more than the last round had time for.
    urgent_is_left: bool,
    /// Where room was made last. Whoever comes after it has the next turn.
    made_room: Option<Scope>,
    beat: Beat,
    tidied_at: Option<Instant>,
    upkept: watch::Sender<Upkept>,
    /// How many seconds the consumers of the feed are behind.
    lag_seconds: watch::Receiver<u64>,
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    #[error("the store cannot be read: {0}")]
    Store(#[from] StoreError),
    #[error("the lane does not answer: {0}")]
    Lane(#[from] LaneError),
}

impl From<SweepError> for UpkeepError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Store(error) => Self::Store(error),
            SweepError::Lane(error) => Self::Lane(error),
        }
    }
}

impl Keeper {
    /// `disk` is where the store is, if that is a disk of this machine's that it shares.
    pub fn new(
        store: Arc<dyn Store>,
        lane: Arc<Lane>,
        clock: Clock,
        settings: UpkeepSettings,
        disk: Option<Disk>,
    ) -> Self {
        Self {
            store,
            lane,
            clock,
            settings,
            budget: Budget::STANDARD,
            disk,
            doubt: None,
            tenure: Tenure::new(Task::Upkeep),
            ladder: None,
            told: Storage::Open,
            full_round_at: None,
            aging: None,
            pending: VecDeque::new(),
            urgent_is_left: false,
            made_room: None,
            beat: Beat::new(Pace::BESIDE_INGEST),
            tidied_at: None,
            upkept: watch::Sender::new(Upkept::default()),
            lag_seconds: watch::Sender::new(0).subscribe(),
        }
    }

    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Lets the ladder hear of consumers that are behind.
    #[must_use]
    pub fn hearing(mut self, lag_seconds: watch::Receiver<u64>) -> Self {
        self.lag_seconds = lag_seconds;
        self
    }

    /// Does nothing that cannot be undone by a clock that is further ahead than can be.
    #[must_use]
    pub fn doubting(self, steady: Steady) -> Self {
        Self { doubt: Some(Doubt::new(steady)), ..self }
    }

    pub fn upkept(&self) -> watch::Receiver<Upkept> {
        self.upkept.subscribe()
    }

    /// Never ends by itself: what fails is tried again in the next round.
    pub async fn run(mut self) {
        let mut rounds = interval(ROUND_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let ended = self.round().await;
            if ended.is_ok() && self.tenure.is_held() && self.has_more_to_do() {
                // What is left has waited long enough.
                rounds.reset_immediately();
            } else {
                // Until the next round nothing is late, and a store that has just failed gets no rush.
                self.beat.begin_anew();
            }
            self.upkept.send_modify(|upkept| {
                upkept.rounds += 1;
                upkept.rounds_failed += u64::from(ended.is_err());
            });
            if let Err(error) = ended {
                tracing::warn!(%error, "upkeep waits for its next round");
            }
        }
    }

    /// Takes or keeps the task; `None` if another instance has it.
    async fn hold(&mut self) -> Result<Option<Lease>, LaneError> {
        self.tenure.hold(&self.lane, &self.clock).await
    }

    /// Lets another instance go on at once.
    pub async fn release(lane: &Lane, holder: Holder) {
        release(lane, Task::Upkeep, holder).await;
    }

    pub fn holder(&self) -> Holder {
        self.tenure.holder()
    }

    async fn stats(&self) -> Result<(Vec<(NodeTopic, Usage)>, NodeState), StoreError> {
        Ok((self.store.topics().await?, node_state(&*self.store).await?))
    }
}
