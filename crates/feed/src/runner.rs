//! Runs a consumer: one worker for each of its generations, started again whenever one ends.

mod any;
mod attempt;
mod chunk;
mod config;
mod doubt;
mod fault;
mod finish;
mod operate;
mod survey;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kukuri_core::Cursor;
use kukuri_store::{FeedError, Store, StoreError};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ledger::{Ledger, Role, View};
use crate::{Consumer, ConsumerName, DeskError, Generation, Home};
pub use any::AnyRunner;
use chunk::last_row;
pub use config::{Obstacle, OnLoss, Probe, RunnerConfig, Step, Wakeup};
pub use operate::OperateError;
pub use survey::{GenerationReport, Report};
use worker::Worker;

/// How often generations and workers are compared: a worker that ended, a generation that came or went.
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
/// How long the workers may take to give up what they hold.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A consumer together with its feed and its tables.
pub struct Runner<C: Consumer> {
    shared: Arc<Shared<C>>,
}

impl<C: Consumer> Clone for Runner<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<C> {
    consumer: C,
    store: Arc<dyn Store>,
    ledger: Ledger,
    config: RunnerConfig,
    /// This instance, by a random number.
    holder: i64,
    stats: Stats,
}

/// What this instance has done.
#[derive(Default)]
struct Stats {
    batches: AtomicU64,
    updates: AtomicU64,
    failures: AtomicU64,
    /// Rows that were found by looking, though nobody had said that there were any.
    missed_wakeups: AtomicU64,
    batch_micros: AtomicU64,
}

/// Why a runner could not be opened or a generation not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error("the consumer's tables: {0}")]
    Desk(#[from] DeskError),
    #[error("the event store: {0}")]
    Store(#[from] StoreError),
    #[error("the feed: {0}")]
    Feed(#[from] FeedError),
}

impl<C: Consumer> Runner<C> {
    /// Opens the ledger in a consumer's home, and makes it if it is not there.
    pub async fn open(
        consumer: C,
        store: Arc<dyn Store>,
        home: Home,
        config: RunnerConfig,
    ) -> Result<Self, RunnerError> {
        let ledger = Ledger::open(home, config.lease).await?;
        Ok(Self::of(consumer, store, ledger, config))
    }

    /// For a home that was there already; changes nothing in it.
    pub async fn existing(
        consumer: C,
        store: Arc<dyn Store>,
        home: Home,
        config: RunnerConfig,
    ) -> Result<Self, RunnerError> {
        let ledger = Ledger::existing(home, config.lease).await?;
        Ok(Self::of(consumer, store, ledger, config))
    }

    fn of(consumer: C, store: Arc<dyn Store>, ledger: Ledger, config: RunnerConfig) -> Self {
        assert_eq!(consumer.name(), ledger.home.name(), "a home belongs to one consumer");
        let holder = i64::from_be_bytes(rand::random());
        let shared = Shared { consumer, store, ledger, config, holder, stats: Stats::default() };
        Self { shared: Arc::new(shared) }
    }

    pub fn name(&self) -> ConsumerName {
        self.shared.consumer.name()
    }

    pub fn home(&self) -> &Home {
        &self.shared.ledger.home
    }

    /// Follows the feed until it is told to stop, and gives up what it holds. Whatever fails is tried again.
    pub async fn run(&self, stop: CancellationToken) {
        let mut crew = Crew::default();
        loop {
            if let Err(error) = self.round(&mut crew, &stop).await {
                tracing::warn!(consumer = %self.name(), %error, "the consumer waits for its tables");
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(ROUND_INTERVAL) => {}
            }
            crew.bury(self.name());
        }
        let leaving = async { while crew.workers.join_next().await.is_some() {} };
        // Without it, others wait until the leases have run out.
        let _ = tokio::time::timeout(STOP_WAIT_MAX, leaving).await;
    }

    /// Sees to it that there is a generation to read, and a worker for each one that is worked on.
    async fn round(&self, crew: &mut Crew, stop: &CancellationToken) -> Result<(), RunnerError> {
        let mut view = self.shared.ledger.view().await?;
        if self.is_build_due(&view) && self.shared.begin().await?.is_some() {
            view = self.shared.ledger.view().await?;
        }
        for state in &view.generations {
            let own = state.version == self.shared.consumer.version();
            let gone = match state.role {
                // What another version makes would be taken for what it says it is. Whoever began it may be
                // at work; if nobody is, it is in the way of one that this program can make.
                Role::Building if !own => !state.held,
                Role::Building | Role::Active => {
                    if state.halted.is_none() {
                        crew.employ(&self.shared, state.generation, stop);
                    }
                    false
                }
                Role::Retired => {
                    state.halted.is_none()
                        && state.updated_at.until(view.now) >= self.shared.config.retired_keep
                }
            };
            if gone {
                self.shared.discard(state.generation).await?;
                while self.shared.ledger.home.tidy().await? && !stop.is_cancelled() {}
            }
        }
        Ok(())
    }

    /// Without a generation there is nothing to read, and one of another version holds something else.
    fn is_build_due(&self, view: &View) -> bool {
        let stale = |version| version != self.shared.consumer.version();
        let due = match view.with_role(Role::Active) {
            None => true,
            Some(active) => stale(active.version) && self.shared.config.on_loss == OnLoss::Rebuild,
        };
        due && view.with_role(Role::Building).is_none()
    }
}

impl<C: Consumer> Shared<C> {
    /// Begins a generation, from the state as of now.
    async fn begin(&self) -> Result<Option<Generation>, RunnerError> {
        let bounds = self.store.bounds().await?;
        let from = Cursor { epoch: bounds.epoch, seq: bounds.head };
        let last_row = last_row(&*self.store, from).await?;
        let mut writing = self.ledger.home.write().await?;
        let version = self.consumer.version();
        let begun = self.ledger.begin(writing.desk(), version, (from, last_row)).await?;
        let Some(generation) = begun else {
            writing.roll_back().await?;
            return Ok(None);
        };
        self.consumer.create(writing.desk(), generation).await?;
        writing.commit().await?;
        tracing::info!(consumer = %self.consumer.name(), %generation, from = %from.seq, "a generation is built");
        Ok(Some(generation))
    }

    /// Drops a generation that is not active.
    async fn discard(&self, generation: Generation) -> Result<bool, DeskError> {
        let mut writing = self.ledger.home.write().await?;
        let forgotten = self.ledger.forget(writing.desk(), generation).await?;
        if forgotten {
            self.consumer.discard(writing.desk(), generation).await?;
        }
        writing.commit().await?;
        Ok(forgotten)
    }

    fn reach(&self, step: Step) {
        if let Some(probe) = &self.config.probe {
            probe(step);
        }
    }

    fn count(&self, counter: impl Fn(&Stats) -> &AtomicU64, by: usize) {
        counter(&self.stats).fetch_add(by as u64, Ordering::Relaxed);
    }
}

/// The workers of a runner.
#[derive(Default)]
struct Crew {
    workers: JoinSet<()>,
    employed: BTreeSet<(Generation, Id)>,
}

impl Crew {
    fn employ<C: Consumer>(
        &mut self,
        shared: &Arc<Shared<C>>,
        generation: Generation,
        stop: &CancellationToken,
    ) {
        if self.employed.iter().any(|(employed, _)| *employed == generation) {
            return;
        }
        let worker = Worker::new(Arc::clone(shared), generation);
        let handle = self.workers.spawn(worker.run(stop.clone()));
        self.employed.insert((generation, handle.id()));
    }

    /// Makes room for others in place of those that ended.
    fn bury(&mut self, name: ConsumerName) {
        while let Some(ended) = self.workers.try_join_next_with_id() {
            let id = match &ended {
                Ok((id, ())) => *id,
                Err(error) => {
                    tracing::error!(consumer = %name, %error, "a worker ended without a word");
                    error.id()
                }
            };
            self.employed.retain(|(_, employed)| *employed != id);
        }
    }
}
