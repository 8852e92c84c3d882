//! Events that a batch will ask for, looked up before its turn, so that those who publish do not wait for it.
//!
//! What was read is true at one revision. It still is at a later one if none of the batches between them, all
//! of this session, has changed one of the events; where that is not known, they are read again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kukuri_core::{Decision, Facts, ReadSet};
use kukuri_event::EventId;

use crate::facts::Loaded;

/// More events are not looked up before their turn: bodies are up to 64 KiB each.
pub(crate) const EVENTS_MAX: usize = 512;

/// How many batches may be written between a look and its use.
pub(super) const BATCHES_MAX: usize = 64;

/// What was looked up last, and is not used yet.
#[derive(Default)]
pub(crate) struct Foresight(Mutex<Option<Foreseen>>);

/// Events as they were at a revision.
pub(crate) struct Foreseen {
    revision: i64,
    facts: Facts,
}

impl Foresight {
    pub fn keep(&self, loaded: Loaded) {
        *self.lock() = Some(Foreseen { revision: loaded.revision, facts: loaded.facts });
    }

    /// For who reads everything anew: another session, or one that holds the lock.
    pub fn clear(&self) {
        *self.lock() = None;
    }

    /// What is known of the events that a batch needs. It is not needed again.
    pub fn take(&self, needs: &ReadSet) -> Option<Foreseen> {
        let mut kept = self.lock();
        let Foreseen { revision, facts } = kept.as_mut()?;
        let mut taken = Facts::default();
        for id in &needs.events {
            if let (Some(record), Some(dedupe)) =
                (facts.records.remove(id), facts.dedupe.remove(id))
            {
                taken.records.insert(*id, record);
                taken.dedupe.insert(*id, dedupe);
            }
        }
        let foreseen = Foreseen { revision: *revision, facts: taken };
        if facts.records.is_empty() {
            *kept = None;
        }
        (!foreseen.facts.records.is_empty()).then_some(foreseen)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Foreseen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Foreseen {
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What these events are at a later revision; otherwise which ones have to be read again.
    pub fn at(self, revision: i64, changed: &Changed) -> Result<Facts, BTreeSet<EventId>> {
        let Self { revision: since, facts } = self;
        match changed.is_unchanged(&facts, since, revision) {
            true => Ok(facts),
            false => Err(facts.records.into_keys().collect()),
        }
    }
}

/// Which events the last batches of a session have changed.
#[derive(Default)]
pub(crate) struct Changed {
    /// What the last of them has left behind.
    revision: i64,
    batches: VecDeque<Vec<EventId>>,
}

impl Changed {
    /// Remembers the batch that was decided at a revision, and is written.
    pub fn add(&mut self, decided_at: i64, decision: &Decision) {
        if self.revision != decided_at {
            self.batches.clear();
        }
        self.revision = decided_at + 1;
        let writes = &decision.writes;
        let records = writes.records.iter().map(|change| change.key);
        self.batches
            .push_back(records.chain(writes.dedupe.iter().map(|change| change.key)).collect());
        if self.batches.len() > BATCHES_MAX {
            self.batches.pop_front();
        }
    }

    fn is_unchanged(&self, facts: &Facts, since: i64, until: i64) -> bool {
        let Ok(batches) = usize::try_from(until - since) else { return false };
        let is_known = batches == 0 || until == self.revision && batches <= self.batches.len();
        let mut ids = self.batches.iter().rev().take(batches).flatten();
        is_known && !ids.any(|id| facts.records.contains_key(id))
    }
}
