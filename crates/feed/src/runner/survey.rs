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

    /// How long rows have been waiting for somebody who works on what is read. Nothing that taking in less would help
    /// is one that was told to stand still, has halted, or waits for a generation of its version.
    pub fn pressing_lag_ms(&self) -> u64 {
        let works = |active: &&GenerationReport| {
            let GenerationState { version, held, halted, .. } = &active.state;
            self.wish == Wish::Running && *version == self.version && *held && halted.is_none()
        };
        self.active().filter(works).map_or(0, |active| active.lag_ms)
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

#[cfg(test)]
mod tests {
    use kukuri_core::{Cursor, Epoch, Seq};

    use super::*;
    use crate::Generation;

    fn working() -> Report {
        let cursor = Cursor { epoch: Epoch(1), seq: Seq(1) };
        let state = GenerationState {
            generation: Generation(1),
            role: Role::Active,
            version: 3,
            cursor,
            start: Seq(1),
            scan: None,
            held: true,
            fence: 1,
            halted: None,
            updated_at: UnixMillis(0),
            parked: 0,
        };
        let report =
            GenerationReport { state, lag_rows: 1, lag_ms: 70, headroom_rows: 1, lost: None };
        Report {
            name: ConsumerName::new("search"),
            version: 3,
            wish: Wish::Running,
            bounds: FeedBounds { epoch: Epoch(1), floor: Seq(0), head: Seq(2) },
            generations: vec![report],
            batches: 0,
            updates: 0,
            batch_micros: 0,
            failures: 0,
            missed_wakeups: 0,
        }
    }

    #[test]
    fn who_stands_still_presses_nobody() {
        assert_eq!(working().pressing_lag_ms(), 70);
        let still: [fn(&mut Report); 5] = [
            |report| report.wish = Wish::Paused,
            |report| report.version = 4,
            |report| report.generations[0].state.held = false,
            |report| report.generations[0].state.halted = Some("a hole".into()),
            |report| report.generations[0].state.role = Role::Building,
        ];
        for (nth, change) in still.into_iter().enumerate() {
            let mut report = working();
            change(&mut report);
            assert_eq!(report.pressing_lag_ms(), 0, "{nth}");
        }
    }
}
