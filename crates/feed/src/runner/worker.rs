//! The loop of one generation: take it, read what comes next, handle it, wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::Seq;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::chunk::{Chunk, check_last_row};
use super::doubt::Doubt;
use super::fault::Fault;
use super::{OnLoss, Shared, Step, Wakeup};
use crate::ledger::{CAREFUL_ROWS, Care, FEED_WINDOW, Hold, Role};
use crate::{Consumer, Generation};

/// How often in the time of a lease a worker looks whether a generation that another instance has can be
/// taken, and how often a lease is renewed while nothing is written.
const LOOKS_PER_LEASE: u32 = 30;
const RENEWALS_PER_LEASE: u32 = 3;
/// How often a row that is tried alone may end its process before it is parked.
const KILLS_MAX: i64 = 3;
/// A consumer is broken when more rows than these were parked among the last thousand.
const PARKED_RECENT_MAX: usize = 50;
const RECENT_ROWS: i64 = 1000;
/// How often a generation that is built looks whether it is time to be compared with the active one.
const FINISH_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Worker<C: Consumer> {
    shared: Arc<Shared<C>>,
    generation: Generation,
    heads: watch::Receiver<Seq>,
    /// How many rows the next batch may have: fewer after a failure, to find the row it is about.
    limit: usize,
    /// The rows that were parked of late.
    parked: VecDeque<Seq>,
    renewed_at: Instant,
    /// When the end was last looked for, and how long it is not looked for again.
    finished: Option<(Instant, Duration)>,
    doubt: Doubt,
    /// The row that was tried alone last. Who comes back to it was not ended by it.
    survived: Option<Seq>,
}

/// How the work on a generation came to an end.
enum Ended {
    Fenced,
    Halted,
    Stopped,
}

/// What is to be done next.
pub(super) enum Next {
    More,
    Wait,
}

impl<C: Consumer> Worker<C> {
    pub fn new(shared: Arc<Shared<C>>, generation: Generation) -> Self {
        let (heads, limit) = (shared.store.heads(), shared.batch_rows_max());
        Self {
            shared,
            generation,
            heads,
            limit,
            parked: VecDeque::new(),
            renewed_at: Instant::now(),
            finished: None,
            doubt: Doubt::default(),
            survived: None,
        }
    }

    /// Ends when it is told to, or when there is nothing to be done for this generation any more.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(mut hold) = self.acquire(&stop).await {
            self.shared.reach(Step::Acquired);
            let ended = self.follow(&mut hold, &stop).await;
            match ended {
                Ended::Fenced => {}
                Ended::Halted => return,
                Ended::Stopped => {
                    // Without it, others wait until the lease has run out.
                    let _ = self.shared.ledger.release(&hold).await;
                    return;
                }
            }
        }
    }

    /// Waits for the generation. None if it is gone or halted, or if it is time to stop.
    async fn acquire(&mut self, stop: &CancellationToken) -> Option<Hold> {
        loop {
            let taken = tokio::select! {
                () = stop.cancelled() => return None,
                taken = self.shared.ledger.acquire(self.generation, self.shared.holder) => taken,
            };
            match taken {
                Ok(Some(hold)) => {
                    self.renewed_at = Instant::now();
                    return Some(hold);
                }
                Ok(None) => {
                    let view = self.shared.ledger.view().await;
                    let found = |state: &&crate::ledger::GenerationState| {
                        state.generation == self.generation
                            && state.role != Role::Retired
                            && state.halted.is_none()
                    };
                    if view.is_ok_and(|view| view.generations.iter().find(found).is_none()) {
                        return None;
                    }
                }
                Err(error) => self.tell(&error.to_string()),
            }
            pause(self.shared.config.lease / LOOKS_PER_LEASE, stop).await;
        }
    }

    async fn follow(&mut self, hold: &mut Hold, stop: &CancellationToken) -> Ended {
        let mut backoff = self.shared.config.backoff_min;
        let mut checked = false;
        loop {
            if stop.is_cancelled() {
                return Ended::Stopped;
            }
            let step = match checked {
                true => self.step(hold).await,
                false => check_last_row(&*self.shared.store, hold).await.map(|()| Next::More),
            };
            checked = checked || step.is_ok();
            match step {
                Ok(next) => {
                    backoff = self.shared.config.backoff_min;
                    if matches!(next, Next::Wait)
                        && let Err(fault) = self.wait(hold, stop).await
                    {
                        match fault {
                            Fault::Fenced => return Ended::Fenced,
                            fault => self.tell(&fault.to_string()),
                        }
                    }
                }
                Err(Fault::Fenced) => return Ended::Fenced,
                Err(Fault::Away(why) | Fault::Poison(why)) => {
                    self.tell(&why);
                    pause(jittered(backoff), stop).await;
                    backoff = (backoff * 2).min(self.shared.config.backoff_max);
                    // What was under way may have been written or not.
                    match self.shared.ledger.look(hold).await {
                        Ok(Some(found)) => *hold = found,
                        Ok(None) => return Ended::Fenced,
                        Err(error) => self.tell(&error.to_string()),
                    }
                }
                Err(Fault::Broken(why)) => {
                    self.halt(hold, &why, stop).await;
                    return Ended::Halted;
                }
                Err(Fault::Lost(error)) => {
                    // In this order: who ends in between is reminded by the feed.
                    if self.shared.config.on_loss == OnLoss::Rebuild {
                        self.rebuild(hold, stop).await;
                    }
                    let why = format!("{error}: kukuri-node consumer rebuild {}", self.name());
                    self.halt(hold, &why, stop).await;
                    return Ended::Halted;
                }
            }
        }
    }

    async fn step(&mut self, hold: &mut Hold) -> Result<Next, Fault> {
        if hold.role == Role::Active && hold.version != self.shared.consumer.version() {
            // Its tables may be others than those this program writes to.
            return Ok(Next::Wait);
        }
        if let Some(why) = self.shared.config.obstacle.as_ref().and_then(|obstacle| obstacle()) {
            return Err(Fault::Away(why));
        }
        let limit = self.limit(hold);
        let chunk = match hold.scan {
            Some(scan) => Some(self.shared.next_of_state(hold, scan, limit).await?),
            None => self.shared.next_of_feed(hold.cursor, limit).await?,
        };
        let Some(chunk) = chunk else { return self.finish(hold).await };
        self.shared.reach(if hold.scan.is_some() { Step::Scanned } else { Step::Read });
        self.handle(hold, &chunk).await?;
        if hold.role == Role::Building && hold.scan.is_none() && chunk.rows < limit {
            self.finish(hold).await?;
        }
        Ok(Next::More)
    }

    fn limit(&self, hold: &Hold) -> usize {
        match hold.care() {
            Care::Usual => self.limit,
            Care::Few => self.limit.min(CAREFUL_ROWS as usize),
            Care::Alone => 1,
        }
    }

    /// Handles a chunk, or finds out which of its rows cannot be handled, or parks the one that cannot.
    async fn handle(&mut self, hold: &mut Hold, chunk: &Chunk) -> Result<(), Fault> {
        if hold.care() == Care::Alone && !chunk.updates.is_empty() {
            let survived = self.survived == Some(chunk.first);
            let tries = self.shared.ledger.try_alone(hold, chunk.first, survived).await?;
            let tries = tries.ok_or(Fault::Fenced)?;
            self.survived = Some(chunk.first);
            if tries > KILLS_MAX {
                let why = format!("{KILLS_MAX} times, who worked on it ended without a word");
                return self.park(hold, chunk, &why, tries - 1).await;
            }
        }
        let pauses = self.shared.config.try_pauses.clone();
        let mut tries = 0;
        loop {
            let started = Instant::now();
            let Err(fault) = self.shared.attempt(hold, chunk).await else {
                self.note(chunk, started);
                *hold = hold.clone().moved(&chunk.mark);
                self.renewed_at = Instant::now();
                self.limit = (self.limit * 2).min(self.shared.batch_rows_max());
                return Ok(());
            };
            self.shared.count(|stats| &stats.failures, 1);
            let Fault::Poison(why) = fault else { return Err(fault) };
            if chunk.rows > 1 {
                self.limit = (chunk.rows / 8).max(1);
                return Ok(());
            }
            tries += 1;
            match pauses.get(tries) {
                Some(pause) => sleep(*pause).await,
                None => return self.park(hold, chunk, &why, tries as i64).await,
            }
        }
    }

    async fn park(
        &mut self,
        hold: &mut Hold,
        chunk: &Chunk,
        why: &str,
        tries: i64,
    ) -> Result<(), Fault> {
        self.parked.retain(|seq| seq.0 + RECENT_ROWS > chunk.first.0);
        if self.parked.len() >= PARKED_RECENT_MAX {
            return Err(Fault::Broken(format!(
                "{PARKED_RECENT_MAX} of the last {RECENT_ROWS} rows were parked, and now row {}: {why}",
                chunk.first
            )));
        }
        self.shared.park(hold, chunk, why, tries).await?;
        self.parked.push_back(chunk.first);
        *hold = hold.clone().moved(&chunk.mark);
        Ok(())
    }

    /// At the end of what there is: a generation that is built may take over.
    async fn finish(&mut self, hold: &mut Hold) -> Result<Next, Fault> {
        let due = self.finished.is_none_or(|(at, pause)| at.elapsed() >= pause);
        if hold.role != Role::Building || !due {
            return Ok(Next::Wait);
        }
        let differences = self.doubt.differences();
        let finished = self.shared.finish(hold, &mut self.doubt).await;
        let differs = self.doubt.differences() > differences;
        let pause = if differs { self.doubt.pause() } else { FINISH_INTERVAL };
        self.finished = Some((Instant::now(), pause));
        finished
    }

    /// Until there may be more to do. Keeps the generation meanwhile.
    async fn wait(&mut self, hold: &Hold, stop: &CancellationToken) -> Result<(), Fault> {
        let known = *self.heads.borrow_and_update();
        let own = hold.version == self.shared.consumer.version();
        if known > hold.cursor.seq && own && hold.role == Role::Active && self.shared.wakes() {
            // It has come while the last rows were handled.
            return self.keep(hold).await;
        }
        let interval = match hold.role {
            Role::Building => FINISH_INTERVAL,
            _ => self.shared.config.poll_interval,
        };
        let woken = tokio::select! {
            () = stop.cancelled() => true,
            changed = self.heads.changed(), if self.shared.wakes() => match changed {
                Ok(()) => true,
                // Nobody watches the head any more; looking is what is left.
                Err(_) => { sleep(interval).await; false }
            },
            () = sleep(interval) => false,
        };
        if !woken && self.shared.wakes() {
            let bounds = self.shared.store.bounds().await?;
            let missed = bounds.head > hold.cursor.seq && hold.role == Role::Active;
            self.shared.count(|stats| &stats.missed_wakeups, usize::from(missed));
        }
        self.keep(hold).await
    }

    async fn keep(&mut self, hold: &Hold) -> Result<(), Fault> {
        if self.renewed_at.elapsed() < self.shared.config.lease / RENEWALS_PER_LEASE {
            // Who asked for something has raised the fence.
            return match self.shared.ledger.look(hold).await? {
                Some(_) => Ok(()),
                None => Err(Fault::Fenced),
            };
        }
        let kept = self.shared.ledger.renew(hold).await?;
        self.renewed_at = Instant::now();
        if kept { Ok(()) } else { Err(Fault::Fenced) }
    }

    async fn halt(&self, hold: &Hold, why: &str, stop: &CancellationToken) {
        tracing::error!(consumer = %self.name(), generation = %self.generation, why, "the consumer halts");
        while let Err(error) = self.shared.ledger.halt(hold, why).await {
            self.tell(&error.to_string());
            if stop.is_cancelled() {
                return;
            }
            pause(self.shared.config.backoff_max, stop).await;
        }
    }

    async fn rebuild(&self, hold: &Hold, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let rebuilt = match hold.role {
                // A build that has lost its feed is begun anew.
                Role::Building => self.shared.discard(self.generation).await.map_err(Into::into),
                _ => Ok(true),
            };
            let begun = match rebuilt {
                Ok(_) => self.shared.begin().await,
                Err(error) => Err(error),
            };
            match begun {
                Ok(_) => return,
                Err(error) => self.tell(&error.to_string()),
            }
            pause(self.shared.config.backoff_min, stop).await;
        }
    }

    fn note(&self, chunk: &Chunk, started: Instant) {
        self.shared.count(|stats| &stats.batches, 1);
        self.shared.count(|stats| &stats.updates, chunk.updates.len());
        let micros = started.elapsed().as_micros().try_into().unwrap_or(usize::MAX);
        self.shared.count(|stats| &stats.batch_micros, micros);
    }

    fn tell(&self, why: &str) {
        tracing::warn!(consumer = %self.name(), generation = %self.generation, why, "the consumer waits");
    }

    fn name(&self) -> crate::ConsumerName {
        self.shared.consumer.name()
    }
}

impl<C: Consumer> Shared<C> {
    fn batch_rows_max(&self) -> usize {
        self.config.batch_rows_max.clamp(1, FEED_WINDOW as usize)
    }

    fn wakes(&self) -> bool {
        self.config.wakeup == Wakeup::Watch
    }
}

async fn pause(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(time) => {}
    }
}

/// Between half of a time and all of it, so that those who wait together do not come back together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}
