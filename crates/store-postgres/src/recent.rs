//! The last rows that this process has committed. Whoever follows the feed asks for them right after
//! every commit: they need not be read back from the server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kukuri_core::{Decision, FeedRow, Seq};

/// Older rows are read from the server.
const ROWS_MAX: usize = 4096;

/// Rows without a hole.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    rows: Mutex<VecDeque<FeedRow>>,
}

impl Recent {
    /// Adds the rows of a decision that is durable. If others have written before it, theirs are
    /// missing, and what was kept is forgotten.
    pub fn add(&self, decision: &Decision) {
        let mut rows = self.lock();
        if rows.back().is_some_and(|last| last.seq != decision.base) {
            rows.clear();
        }
        rows.extend(decision.rows.iter().cloned());
        let surplus = rows.len().saturating_sub(ROWS_MAX);
        rows.drain(..surplus);
    }

    /// The rows after `seq`, at most `rows_max`; `None` if not all of them up to `head` are here.
    pub fn after(&self, seq: Seq, head: Seq, rows_max: usize) -> Option<Vec<FeedRow>> {
        let rows = self.lock();
        let (first, last) = (rows.front()?.seq, rows.back()?.seq);
        if seq.next() < first || seq >= last || head > last {
            return None;
        }
        let start = usize::try_from(seq.next().0 - first.0).ok()?;
        Some(rows.range(start..).take(rows_max).cloned().collect())
    }

    /// The feed begins after `floor` now.
    pub fn trim(&self, floor: Seq) {
        let mut rows = self.lock();
        let gone = rows.partition_point(|row| row.seq <= floor);
        rows.drain(..gone);
    }

    /// Nothing that was remembered is true any more.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FeedRow>> {
        // Rows are added one after the other: whatever a holder that panicked left has no hole.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
