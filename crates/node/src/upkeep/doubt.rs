//! Doubt in the clock, for who does what cannot be undone.

use std::time::Duration;

use kukuri_core::{Belief, Cursor, Passed, Seq, UnixMillis, Witness, believe};
use kukuri_store::{FeedError, Store, StoreError};

use crate::clock::Steady;

/// What is known of the time.
pub(super) struct Doubt {
    steady: Steady,
    /// The last time that was believed, and what the steady clock said then.
    believed: Option<(UnixMillis, Duration)>,
    /// What was thought last.
    last: Belief,
}

impl Doubt {
    pub fn new(steady: Steady) -> Self {
        Self { steady, believed: None, last: Belief::Plausible }
    }

    /// Whether it can be that time now. Who has just begun asks the last row of the feed.
    pub async fn judge(
        &mut self,
        store: &dyn Store,
        now: UnixMillis,
    ) -> Result<Belief, StoreError> {
        let steady = (self.steady)();
        let witness = match self.believed {
            Some((at, then)) => {
                let passed = Passed::Measured(steady.saturating_sub(then));
                Some(Witness { at, passed })
            }
            None => {
                let at = last_row_at(store).await?;
                at.map(|at| Witness { at, passed: Passed::Unknown })
            }
        };
        let belief = believe(now, witness);
        if belief == Belief::Plausible {
            self.believed = Some((now, steady));
        }
        if std::mem::replace(&mut self.last, belief) != belief {
            tell(belief);
        }
        Ok(belief)
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

/// When the last row of the feed was written.
pub async fn last_row_at(store: &dyn Store) -> Result<Option<UnixMillis>, StoreError> {
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
