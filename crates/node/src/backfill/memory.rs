//! What is kept in mind from one reconciliation to the next. It is in memory alone: after a restart everything
//! is gone through anew, which costs time and brings the same.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kukuri_core::TopicId;
use kukuri_core::backfill::Covered;
use lru::LruCache;
use tokio::time::Instant;

use super::known::Refused;

/// Relays and topics of which it is known how far a reconciliation came that did not come to its end.
const COVERED_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("it is more than none");

pub struct Memory {
    refused: Mutex<Refused>,
    covered: Mutex<LruCache<(Arc<str>, TopicId), Covered>>,
    pace: Mutex<Option<Instant>>,
}

impl Default for Memory {
    fn default() -> Self {
        let covered = Mutex::new(LruCache::new(COVERED_MAX));
        Self { refused: Mutex::default(), covered, pace: Mutex::default() }
    }
}

impl Memory {
    /// Ids that were fetched and refused for good.
    pub(super) fn refused(&self) -> MutexGuard<'_, Refused> {
        held(&self.refused)
    }

    /// What the last reconciliation with a relay has gone through, if it did not come to its end.
    pub(super) fn covered(&self, from: &Arc<str>, topic: &TopicId) -> Option<Covered> {
        held(&self.covered).get(&(Arc::clone(from), topic.clone())).copied()
    }

    pub(super) fn cover(&self, from: &Arc<str>, topic: &TopicId, covered: Option<Covered>) {
        let key = (Arc::clone(from), topic.clone());
        let mut all = held(&self.covered);
        match covered {
            Some(covered) => drop(all.put(key, covered)),
            None => drop(all.pop(&key)),
        }
    }

    /// When events have been paid for that are taken in now, at the rate that all reconciliations share.
    pub(super) fn pay(&self, events: usize, per_second: u32) -> Instant {
        let now = Instant::now();
        if per_second == 0 {
            return now;
        }
        let cost = Duration::from_secs_f64(events as f64 / f64::from(per_second));
        let mut paid_at = held(&self.pace);
        let at = paid_at.map_or(now, |at| at.max(now)) + cost;
        *paid_at = Some(at);
        at
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
