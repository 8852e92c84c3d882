//! How a consumer is doing, as anybody can tell who can read its tables and the feed.

use std::sync::atomic::Ordering;

use kukuri_core::{CursorError, FeedBounds, UnixMillis};

use super::{Runner, RunnerError};
use crate::ledger::{GenerationState, Role, Wish};
use crate::{Consumer, ConsumerName, lag};

/// How a consumer is doing.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: ConsumerName,
    /// What this program makes; generations of other versions stand still.
    pub version: u32,
    pub wish: Wish,
    pub bounds: FeedBounds,
    pub generations: Vec<GenerationReport>,
    /// What this instance has done: batches, what was in them, how long they took, what failed, and how
    /// often it found rows that nobody had told it of.
    pub batches: u64,
    pub updates: u64,
    pub batch_micros: u64,
    pub failures: u64,
    pub missed_wakeups: u64,
}

#[derive(Clone, Debug)]
pub struct GenerationReport {
    pub state: GenerationState,
    /// Rows of the feed that are not in it yet.
    pub lag_rows: u64,
    /// How long the first of them has been waiting.
    pub lag_ms: u64,
    /// How many more rows the feed may let go of before one of them is missed.
    pub headroom_rows: u64,
    /// Why the feed does not lead on from where it stands.
    pub lost: Option<CursorError>,
}

impl Report {
    /// The generation that is read.
    pub fn active(&self) -> Option<&GenerationReport> {
        self.generations.iter().find(|report| report.state.role == Role::Active)
    }

    /// The generation that is being built.
    pub fn building(&self) -> Option<&GenerationReport> {
        self.generations.iter().find(|report| report.state.role == Role::Building)
    }
}

impl<C: Consumer> Runner<C> {
    pub async fn report(&self, now: UnixMillis) -> Result<Report, RunnerError> {
        let view = self.shared.ledger.view().await?;
        let bounds = self.shared.store.bounds().await?;
        let mut generations = Vec::new();
        for state in view.generations {
            generations.push(self.generation_report(state, bounds, now).await?);
        }
        let stats = &self.shared.stats;
        Ok(Report {
            name: self.name(),
            version: self.shared.consumer.version(),
            wish: view.wish,
            bounds,
            generations,
            batches: stats.batches.load(Ordering::Relaxed),
            updates: stats.updates.load(Ordering::Relaxed),
            batch_micros: stats.batch_micros.load(Ordering::Relaxed),
            failures: stats.failures.load(Ordering::Relaxed),
            missed_wakeups: stats.missed_wakeups.load(Ordering::Relaxed),
        })
    }

    async fn generation_report(
        &self,
        state: GenerationState,
        bounds: FeedBounds,
        now: UnixMillis,
    ) -> Result<GenerationReport, RunnerError> {
        let distance = |from: i64, to: i64| u64::try_from(to - from).unwrap_or(0);
        let cursor = state.cursor;
        let lost = bounds.check(cursor).err();
        let waited = lag(&*self.shared.store, cursor, now).await;
        let lag_ms = waited.map_or(0, |waited| waited.as_millis());
        Ok(GenerationReport {
            lag_rows: distance(cursor.seq.0, bounds.head.0),
            lag_ms: lag_ms.try_into().unwrap_or(u64::MAX),
            headroom_rows: distance(bounds.floor.0, cursor.seq.0),
            lost,
            state,
        })
    }
}
