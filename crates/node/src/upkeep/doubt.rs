//! Doubt in the clock, for who does what cannot be undone.

use std::mem::discriminant;
use std::time::Duration;

use kukuri_core::{Belief, Cursor, Passed, Seq, UnixMillis, Witness, believe};
use kukuri_store::{FeedError, Store, StoreError};

use crate::clock::Steady;

/// So long after a start the system may still be finding out what time it is.
const SETTLE_TIME: Duration = Duration::from_secs(10 * 60);

/// What is known of the time.
pub(super) struct Doubt {
    steady: Steady,
    /// What the steady clock said in the beginning.
    began: Duration,
    /// When the last row of the feed was written, in the beginning: later ones were written by the clock that is
    /// in doubt.
    last_row_at: Option<UnixMillis>,
    /// The latest time that was believed, and what the steady clock said then.
    believed: Option<(UnixMillis, Duration)>,
    /// What was thought last.
    last: Belief,
}

impl Doubt {
    pub fn new(steady: Steady) -> Self {
        let began = steady();
        Self { steady, began, last_row_at: None, believed: None, last: Belief::Plausible }
    }

    /// Whether it can be that time now.
    pub async fn judge(
        &mut self,
        store: &dyn Store,
        now: UnixMillis,
    ) -> Result<Belief, StoreError> {
        if self.last_row_at.is_none() {
            self.last_row_at = last_row_at(store).await?;
        }
        let steady = (self.steady)();
        let witness = self.witness(steady);
        let belief = believe(now, witness);
        // A clock that is behind is no witness: when it is set right, that is no jump ahead.
        let is_latest = witness.is_some_and(|witness| witness.earliest() <= now);
        if belief == Belief::Plausible && is_latest {
            self.believed = Some((now, steady));
        }
        if discriminant(&std::mem::replace(&mut self.last, belief)) != discriminant(&belief) {
            tell(belief);
        }
        Ok(belief)
    }

    /// Who has just begun goes by the last row of the feed.
    fn witness(&self, steady: Duration) -> Option<Witness> {
        let is_settled = steady.saturating_sub(self.began) >= SETTLE_TIME;
        match self.believed.filter(|_| is_settled) {
            Some((at, then)) => {
                let passed = Passed::Measured(steady.saturating_sub(then));
                Some(Witness { at, passed })
            }
            None => self.last_row_at.map(|at| Witness { at, passed: Passed::Unknown }),
        }
    }
}

fn tell(belief: Belief) {
    match belief {
        Belief::Plausible => tracing::info!("the clock is plausible again: upkeep goes on"),
        Belief::Ahead { by } => tracing::error!(
            ahead_seconds = by.as_secs(),
            "the clock is further ahead than can be: nothing ages, expires or is forgotten until it is set \
             right; if it is right, start the node once with KUKURI_RETENTION_CLOCK=believe"
        ),
    }
}

/// What who begins now thinks of the clock: there is nothing to compare it with but the feed.
pub async fn belief_at_start(store: &dyn Store, now: UnixMillis) -> Result<Belief, StoreError> {
    let witness = |at| Witness { at, passed: Passed::Unknown };
    Ok(believe(now, last_row_at(store).await?.map(witness)))
}

/// When the last row of the feed was written.
async fn last_row_at(store: &dyn Store) -> Result<Option<UnixMillis>, StoreError> {
    let bounds = store.bounds().await?;
    let after = Cursor { epoch: bounds.epoch, seq: Seq(bounds.head.0 - 1) };
    if bounds.head <= bounds.floor {
        return Ok(None);
    }
    match store.feed(after, 1).await {
        Ok(rows) => Ok(rows.first().map(|row| row.ingested_at)),
        // It was cut meanwhile.
        Err(FeedError::Cursor(_)) => Ok(None),
        Err(FeedError::Store(error)) => Err(error),
        Err(hole) => Err(StoreError::Corrupt(hole.to_string())),
    }
}
