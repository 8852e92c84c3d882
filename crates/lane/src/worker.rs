//! The one task that writes.

use std::sync::Arc;

use kukuri_core::{Act, Admitted, Command, Decision, Duplicate, Outcome, UnixMillis};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::counters::add;
use crate::ephemeral::Outlet;
use crate::line::{Line, Parcel};
use crate::retry::{Next, Tries, backoff};
use crate::shared::Shared;
use crate::{Answer, Health, LaneConfig, LaneError};

pub(crate) struct Worker {
    shared: Arc<Shared>,
    config: LaneConfig,
    queue: mpsc::Receiver<Parcel>,
    line: Line,
    outlet: Outlet,
    health: watch::Sender<Health>,
    /// When to open a failed store again, and how often that was tried.
    reopening: Option<(Instant, u32)>,
}

/// Why the worker woke up.
enum Wake {
    Batch,
    Flush,
    Reopen,
    Close,
    End,
}

impl Worker {
    pub fn new(
        shared: Arc<Shared>,
        config: LaneConfig,
        queue: mpsc::Receiver<Parcel>,
        ephemerals: broadcast::Sender<Admitted>,
        health: watch::Sender<Health>,
    ) -> Self {
        Self {
            shared,
            config,
            queue,
            line: Line::default(),
            outlet: Outlet::new(config.ephemeral_ids_max, ephemerals),
            health,
            reopening: None,
        }
    }

    pub async fn run(mut self) {
        let mut flush = interval(self.config.sightings_flush_interval);
        flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
        flush.reset();
        loop {
            match self.wake(&mut flush).await {
                Wake::Batch => self.run_batch().await,
                Wake::Flush => self.queue_sightings(),
                Wake::Reopen => self.reopen().await,
                // What was queued before is still received; then the channel ends.
                Wake::Close => self.queue.close(),
                Wake::End => break,
            }
        }
        self.queue_sightings();
        while !self.line.is_empty() {
            self.run_batch().await;
        }
    }

    async fn wake(&mut self, flush: &mut Interval) -> Wake {
        let reopen_at = self.reopening.map(|(at, _)| at);
        let open = !self.queue.is_closed();
        if !self.line.is_empty() && reopen_at.is_none_or(|at| at > Instant::now()) {
            // Under load a batch always waits; sightings have their turn all the same.
            return tokio::select! {
                biased;
                _ = flush.tick() => Wake::Flush,
                () = std::future::ready(()) => Wake::Batch,
            };
        }
        tokio::select! {
            () = sleep_until(reopen_at.unwrap_or_else(Instant::now)), if reopen_at.is_some() => Wake::Reopen,
            () = self.shared.closing.cancelled(), if open => Wake::Close,
            _ = flush.tick() => Wake::Flush,
            parcel = self.queue.recv() => match parcel {
                Some(parcel) => {
                    self.line.push(parcel);
                    Wake::Batch
                }
                None => Wake::End,
            },
        }
    }

    /// Commits whatever waits, up to the bounds of a batch, and answers it.
    async fn run_batch(&mut self) {
        while let Ok(parcel) = self.queue.try_recv() {
            self.line.push(parcel);
        }
        let at = (self.shared.clock)();
        let acts = self.line.form(self.config.batch).into_iter();
        let batch: Arc<[Command]> = acts.map(|act| Command { at, act }).collect();
        if batch.is_empty() {
            return;
        }
        let refusal = self.health.borrow().refusal();
        if let Some(error) = refusal {
            return self.give_up(&batch, &error);
        }
        match self.commit(&batch).await {
            Ok(decision) => {
                self.shared.counters.committed(batch.len() as u64);
                let outcomes = self.announce(&batch, decision, at);
                self.line.answer(outcomes.into_iter().map(Ok));
            }
            Err(error) => {
                self.halt(&error);
                self.give_up(&batch, &error);
            }
        }
    }

    /// Runs a batch until it is durable or there is no point in going on.
    async fn commit(&self, batch: &Arc<[Command]>) -> Result<Decision, LaneError> {
        let started = Instant::now();
        let mut tries = Tries::default();
        let result = loop {
            let apply = self.shared.store.apply(Arc::clone(batch));
            let error = match timeout(self.config.apply_wait_max, apply).await {
                Ok(Ok(decision)) => break Ok(decision),
                Ok(Err(error)) => error,
                Err(_) => stuck(&self.config),
            };
            match tries.next(error, started.elapsed(), &self.config) {
                Next::RunAgain { after } => sleep(after).await,
                Next::Answer(error) => break Err(error),
            }
        };
        let counters = &self.shared.counters;
        add(&counters.conflicts, tries.conflicts.into());
        add(&counters.retries, tries.retries.into());
        result
    }

    /// What the rest of the process hears of a committed batch before its senders do.
    fn announce(&mut self, batch: &[Command], decision: Decision, at: UnixMillis) -> Vec<Outcome> {
        let mut outcomes = decision.outcomes;
        assert_eq!(outcomes.len(), batch.len(), "one outcome per command");
        let mut again: Vec<EventId> = Vec::new();
        let first_seen = |id: &EventId| {
            let change = decision.writes.dedupe.binary_search_by(|c| c.key.cmp(id));
            change.is_ok_and(|nth| decision.writes.dedupe[nth].before.is_none())
        };
        for (command, outcome) in batch.iter().zip(&mut outcomes) {
            let Act::Publish(admitted) = &command.act else {
                continue;
            };
            let id = admitted.event().id();
            match outcome {
                Outcome::Ephemeral if !self.outlet.pass(admitted) => {
                    *outcome = Outcome::Duplicate(Duplicate::Known);
                }
                // A version that comes late is a duplicate the first time, too; that arrival is in
                // its dedupe row already.
                Outcome::Duplicate(Duplicate::Stale) if first_seen(&id) => {}
                Outcome::Duplicate(_) => again.push(id),
                _ => {}
            }
        }
        if !again.is_empty() {
            self.shared.sight(again, at);
        }
        outcomes
    }

    /// Stops writing after an error that the next batch would only make worse.
    fn halt(&mut self, error: &LaneError) {
        match error {
            LaneError::Failed(error) => {
                self.health.send_replace(Health::Failed(error.clone()));
                self.reopening = Some((Instant::now() + backoff(&self.config, 0), 0));
            }
            LaneError::Corrupt(error) => {
                self.health.send_replace(Health::Corrupt(error.clone()));
            }
            _ => {}
        }
    }

    fn give_up(&mut self, batch: &[Command], error: &LaneError) {
        add(&self.shared.counters.batches_failed, 1);
        for command in batch {
            if let Act::Sightings(lost) = &command.act {
                add(&self.shared.counters.sightings_dropped, lost.len() as u64);
            }
        }
        let answers = batch.iter().map(|_| -> Answer { Err(error.clone()) });
        self.line.answer(answers);
    }

    /// Tries to get a failed store back. Until then every batch is refused without asking it.
    async fn reopen(&mut self) {
        let Some((_, nth)) = self.reopening else {
            return;
        };
        let reopened = match timeout(self.config.apply_wait_max, self.shared.store.reopen()).await {
            Ok(reopened) => reopened,
            Err(_) => Err(stuck(&self.config)),
        };
        match reopened {
            Ok(()) => {
                self.reopening = None;
                self.health.send_replace(Health::Running);
            }
            Err(StoreError::Corrupt(text)) => {
                self.reopening = None;
                let error = StoreError::Corrupt(text);
                self.health.send_replace(Health::Corrupt(error));
            }
            Err(_) => {
                let nth = nth.saturating_add(1);
                self.reopening = Some((Instant::now() + backoff(&self.config, nth), nth));
            }
        }
    }

    fn queue_sightings(&mut self) {
        let counted = self.shared.tally().take();
        if !counted.is_empty() {
            self.line.push(Parcel::unanswered(vec![Act::Sightings(counted)]));
        }
    }
}

fn stuck(config: &LaneConfig) -> StoreError {
    StoreError::Unavailable(format!("no answer within {:?}", config.apply_wait_max))
}
