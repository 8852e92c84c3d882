//! Upkeep of a running node: what has expired or aged leaves, what is over its limit makes room, and the
//! ladder follows the pressure. One instance does it for all, under a lease in the store; what it sends
//! is fenced, so that whoever has lost the lease changes nothing more.

mod aging;
mod felt;
mod space;
mod sweep;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::ladder::{Cause, Dwell, Ladder, Load, Pressure, Standing, Step};
use kukuri_core::{
    Act, Allowance, Capacity, Fence, Holder, Keeping, Lease, Look, NodeState, NodeTopic, OnFull,
    Outcome, Removed, Retention, Stats, Task, UnixMillis, Usage, plan,
};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::{Clock, Store, StoreError, Tidied, node_state};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use aging::{Aging, cutoffs_before};
use felt::{is_of_use, percent_of};
pub use space::{Disk, Lookout};
pub use sweep::{CHUNK_EVENTS_MAX, Ended, Pace, Sweep, SweepError};

/// How often expired events are looked for, and pressure is felt.
const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// How often what has aged is looked for, in every topic.
const FULL_ROUND_INTERVAL: Duration = Duration::from_secs(60);
/// How long nobody else does upkeep after the last word of who does.
const LEASE_MS: u32 = 30_000;
const LEASE_RENEW_BEFORE: Duration = Duration::from_secs(20);
/// How often space is given back while events leave: the more of it at once, the less it costs.
const TIDY_INTERVAL: Duration = Duration::from_secs(20);
/// How much space is given back between two rounds, in steps of the store.
const TIDY_STEPS_MAX: usize = 64;

/// How much time one round takes. What is left waits for the next one, so that expired events, the disk and
/// the ladder are looked after in time, however much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `None` where it may take any.
    pub round: Option<Duration>,
    /// The part of it that what is urgent may take at once: of several topics over their limits, each gets
    /// its turn.
    pub urgent: Option<Duration>,
}

impl Budget {
    pub const STANDARD: Self =
        Self { round: Some(Duration::from_secs(4)), urgent: Some(Duration::from_secs(1)) };
    /// What a round does depends on nothing but the store and its clock.
    pub const UNBOUNDED: Self = Self { round: None, urgent: None };
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
}

/// Does upkeep, round by round.
pub struct Keeper {
    store: Arc<dyn Store>,
    lane: Arc<Lane>,
    clock: Clock,
    settings: UpkeepSettings,
    budget: Budget,
    disk: Option<Disk>,
    holder: Holder,
    held: Option<Lease>,
    ladder: Option<Ladder>,
    full_round_at: Option<UnixMillis>,
    /// What is left of the last full round: what has aged, and what comes after that.
    aging: Option<Aging>,
    pending: VecDeque<Look>,
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
            holder: Holder(rand::random()),
            held: None,
            ladder: None,
            full_round_at: None,
            aging: None,
            pending: VecDeque::new(),
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
            if ended.is_ok() && self.held.is_some() && self.is_under_way() {
                // What is left has waited long enough.
                rounds.reset_immediately();
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

    /// One round, unless another instance does them.
    pub async fn round(&mut self) -> Result<(), UpkeepError> {
        let held = self.hold().await?;
        self.upkept.send_modify(|upkept| upkept.holds = held.is_some());
        let Some(lease) = held else {
            self.ladder = None;
            return Ok(());
        };
        let end = self.budget.round.map(|time| Instant::now() + time);
        // What fails does not keep the others from their turn.
        let mut failed = Failed::default();
        let felt = failed.unless(self.feel(lease.fence).await).unwrap_or(Pressure::Between);
        let now = (self.clock)();
        let (topics, node) = self.stats().await?;
        let looks = plan(Stats { topics: &topics, node: &node }, self.settings.keeping, now);
        let (now_due, mut rest): (Vec<Look>, Vec<Look>) =
            looks.into_iter().partition(|look| *look == Look::Expired);
        for look in &now_due {
            failed.unless(self.sweep(look, lease.fence, now, self.urgent_end()).await);
        }
        if !self.is_under_way() && self.is_time_for_all(now) {
            self.full_round_at = Some(now);
            self.aging = Some(Aging::planned(&rest));
            rest.retain(|look| !makes_room(look) && !matches!(look, Look::Aged { .. }));
            self.pending.extend(rest);
        }
        // What has aged leaves first, then what has to make room, and then what was remembered of either.
        self.age(end, &mut failed).await?;
        self.make_room(&felt, now, &mut failed).await?;
        if self.aging.is_none() {
            self.sweep_pending(now, end, &mut failed).await?;
        }
        if self.is_time_to_tidy(&felt) {
            failed.unless(self.tidy().await);
        }
        failed.into_result()
    }

    /// A disk that is short of space gets it at once.
    fn is_time_to_tidy(&self, felt: &Pressure) -> bool {
        let due = self.tidied_at.is_none_or(|last| last.elapsed() >= TIDY_INTERVAL);
        due || !self.is_under_way() || matches!(felt, Pressure::High(Cause::Disk { .. }))
    }

    /// Whether something of the last full round is left to do.
    fn is_under_way(&self) -> bool {
        self.aging.is_some() || !self.pending.is_empty()
    }

    /// Goes on with what has aged, as long as there is time. What fails is found again by the next full round.
    async fn age(&mut self, end: Option<Instant>, failed: &mut Failed) -> Result<(), UpkeepError> {
        let Some(mut aging) = self.aging.take() else { return Ok(()) };
        if let Some(lease) = self.hold().await? {
            let mut told = |chunk: Removed| self.count_removed(chunk);
            let swept = self.sweeper(lease.fence, end).age(&mut aging, &mut told).await;
            match failed.unless(swept.map_err(UpkeepError::from)) {
                Some((_, Ended::Done)) => {
                    failed.unless(aging.into_result().map_err(UpkeepError::from));
                }
                _ => self.aging = Some(aging),
            }
        }
        Ok(())
    }

    fn count_removed(&self, chunk: Removed) {
        self.upkept.send_modify(|upkept| upkept.removed_links += chunk.events);
    }

    /// Goes on with what else the full round looks for, as long as there is time. What fails is looked for
    /// again in the next one.
    async fn sweep_pending(
        &mut self,
        now: UnixMillis,
        end: Option<Instant>,
        failed: &mut Failed,
    ) -> Result<(), UpkeepError> {
        while let Some(look) = self.pending.front().cloned() {
            let Some(lease) = self.hold().await? else { return Ok(()) };
            let ended = failed.unless(self.sweep(&look, lease.fence, now, end).await);
            if ended == Some(Ended::OutOfTime) {
                break;
            }
            self.pending.pop_front();
            // Waiting for what fails takes time as well.
            if ended.is_none() && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
        }
        Ok(())
    }

    /// What is over its limit lets the oldest go, once what has aged has left.
    async fn make_room(
        &mut self,
        felt: &Pressure,
        now: UnixMillis,
        failed: &mut Failed,
    ) -> Result<(), UpkeepError> {
        let (topics, node) = self.stats().await?;
        let looks = plan(Stats { topics: &topics, node: &node }, self.settings.keeping, now);
        for look in looks.iter().filter(|look| makes_room(look) && is_of_use(look, felt, &node)) {
            let Some(lease) = self.hold().await? else { return Ok(()) };
            failed.unless(self.sweep(look, lease.fence, now, self.urgent_end()).await);
        }
        Ok(())
    }

    fn urgent_end(&self) -> Option<Instant> {
        self.budget.urgent.map(|time| Instant::now() + time)
    }

    /// Whether what has aged is to be looked for; a clock that went back begins anew.
    fn is_time_for_all(&self, now: UnixMillis) -> bool {
        let due = |last: UnixMillis| last > now || last.until(now) >= FULL_ROUND_INTERVAL;
        self.full_round_at.is_none_or(due)
    }

    /// Takes or keeps the task; `None` if another instance has it.
    async fn hold(&mut self) -> Result<Option<Lease>, LaneError> {
        let now = (self.clock)();
        let fresh = |lease: &Lease| now.until(lease.until) > LEASE_RENEW_BEFORE;
        if let Some(lease) = self.held.filter(fresh) {
            return Ok(Some(lease));
        }
        let (task, holder) = (Task::Upkeep, self.holder);
        self.held = match self.lane.run(Act::Hold { task, holder, lease_ms: LEASE_MS }).await? {
            Outcome::Held(lease) => Some(lease),
            _ => None,
        };
        Ok(self.held)
    }

    /// Lets another instance go on at once.
    pub async fn release(lane: &Lane, holder: Holder) {
        // Without it, others wait until the lease has run out.
        let _ = lane.run(Act::Release { task: Task::Upkeep, holder }).await;
    }

    pub fn holder(&self) -> Holder {
        self.holder
    }

    async fn stats(&self) -> Result<(Vec<(NodeTopic, Usage)>, NodeState), StoreError> {
        Ok((self.store.topics().await?, node_state(&*self.store).await?))
    }

    /// Lets the ladder follow the pressure, and tells every process what the node allows now.
    async fn feel(&mut self, fence: Fence) -> Result<Pressure, UpkeepError> {
        let (topics, node) = self.stats().await?;
        let free_bytes = self.disk.as_ref().and_then(Disk::free_bytes);
        let load = Load {
            usage: node.usage,
            disk_free_bytes: free_bytes,
            lag_seconds: *self.lag_seconds.borrow(),
        };
        let felt = felt::felt(&self.settings, &topics, &load);
        let step = self.climb(&node, &felt, fence).await?;
        let UpkeepSettings { capacity, on_full, retention, disk_reserve_bytes, .. } = self.settings;
        let storage = space::storage(node.allowance.storage, free_bytes, disk_reserve_bytes);
        let allowance = Allowance { capacity, on_full, retention, step, storage };
        if allowance != (Allowance { step, ..node.allowance }) {
            if storage != node.allowance.storage {
                space::tell(storage);
            }
            let act = Box::new(Act::Allow(allowance));
            tracing::info!(before = ?node.allowance, after = ?allowance, "what the node allows has changed");
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        Ok(felt)
    }

    /// Lets the ladder follow the pressure, and says where it stands.
    async fn climb(
        &mut self,
        node: &NodeState,
        felt: &Pressure,
        fence: Fence,
    ) -> Result<Step, UpkeepError> {
        let standing =
            Standing { step: node.allowance.step, last_move: node.past.last_move.clone() };
        // What the store says holds; this process knows for how long the pressure has lasted.
        let known = self.ladder.take().filter(|ladder| *ladder.standing() == standing);
        let mut ladder = known.unwrap_or_else(|| Ladder::resume(standing, Dwell::STANDARD));
        if let Some(moved) = ladder.observe((self.clock)(), felt) {
            tracing::warn!(from = moved.from.as_str(), to = moved.to.as_str(), reason = %moved.reason, "the ladder moved");
            let act = Box::new(Act::Climb(moved));
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        let step = ladder.step();
        self.ladder = Some(ladder);
        Ok(step)
    }

    async fn sweep(
        &self,
        look: &Look,
        fence: Fence,
        now: UnixMillis,
        until: Option<Instant>,
    ) -> Result<Ended, UpkeepError> {
        let mut told = |chunk: Removed| match look {
            Look::Expired => {
                self.upkept.send_modify(|upkept| upkept.expired_events += chunk.events)
            }
            Look::Forgettable { .. } => {
                self.upkept.send_modify(|upkept| upkept.forgotten += chunk.events);
            }
            _ => self.count_removed(chunk),
        };
        let (_, ended) = self.sweeper(fence, until).run(look, now, &mut told).await?;
        Ok(ended)
    }

    fn sweeper(&self, fence: Fence, until: Option<Instant>) -> Sweep<'_> {
        let (store, lane) = (&*self.store, &*self.lane);
        Sweep { store, lane, fence: Some(fence), pace: Pace::BESIDE_INGEST, until }
    }

    /// Gives space back, a little at a time.
    async fn tidy(&mut self) -> Result<(), UpkeepError> {
        self.tidied_at = Some(Instant::now());
        for _ in 0..TIDY_STEPS_MAX {
            match self.store.tidy().await? {
                Tidied::More => tokio::task::yield_now().await,
                Tidied::Done => break,
                Tidied::Blocked(why) => {
                    tracing::debug!(why, "space is given back later");
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What failed first in a round.
#[derive(Default)]
struct Failed(Option<UpkeepError>);

impl Failed {
    /// What was done, unless it failed.
    fn unless<T>(&mut self, done: Result<T, UpkeepError>) -> Option<T> {
        done.map_err(|error| {
            tracing::debug!(%error, "upkeep goes on with what comes next");
            self.0.get_or_insert(error);
        })
        .ok()
    }

    fn into_result(self) -> Result<(), UpkeepError> {
        self.0.map_or(Ok(()), Err)
    }
}

fn makes_room(look: &Look) -> bool {
    matches!(look, Look::OldestOfTopic(_) | Look::OldestOfNode { .. })
}
