use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kukuri_core::{Cursor, Decision, Epoch, FeedRow, Seq};

/// How many rows are kept; older ones are read from the store.
const ROWS_MAX: usize = 4096;

/// The end of the feed as this handle has written it, without a hole: whoever follows the feed asks for
/// it right after every commit and need not read it back. Others may have written more since, so it
/// never tells where the feed ends.
#[derive(Debug)]
pub struct Recent {
    epoch: Epoch,
    rows: Mutex<VecDeque<FeedRow>>,
}

impl Recent {
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, rows: Mutex::default() }
    }

    /// Adds the rows of a decision that is durable. If others have written before it, theirs are
    /// missing, and what was kept is forgotten.
    pub fn add(&self, decision: &Decision) {
        if decision.rows.is_empty() {
            return;
        }
        let mut rows = self.lock();
        if rows.back().is_some_and(|last| last.seq != decision.base) {
            rows.clear();
        }
        rows.extend(decision.rows.iter().cloned());
        let surplus = rows.len().saturating_sub(ROWS_MAX);
        rows.drain(..surplus);
    }

    /// Some rows right after a cursor, at most `rows_max`; `None` if there are none here.
    pub fn after(&self, cursor: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        let rows = self.lock();
        let Seq(first) = rows.front()?.seq;
        let start = usize::try_from(cursor.seq.next().0.checked_sub(first)?).ok()?;
        let known = cursor.epoch == self.epoch && start < rows.len() && rows_max > 0;
        known.then(|| rows.range(start..).take(rows_max).cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FeedRow>> {
        // Rows are added one after the other: whatever a holder that panicked left has no hole.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
