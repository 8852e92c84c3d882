//! Events that a batch will ask for, looked up before its turn, so that those who publish do not wait for it.
//!
//! What was read is true at one revision. It still is at a later one if none of the batches between them, all
//! of this session, has changed one of the events; where that is not known, they are read again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kukuri_core::{Decision, Facts, ReadSet, Record, Seq};
use kukuri_event::EventId;

use crate::dense::Dense;

/// More events are not looked up before their turn: bodies are up to 64 KiB each.
pub(crate) const EVENTS_MAX: usize = 512;

/// How many batches may be written between a look and its use.
pub(super) const BATCHES_MAX: usize = 64;

/// Of how many events the numbers are remembered at most: of as many as upkeep knows ahead.
const NUMBERS_MAX: usize = 256 * 1024;

/// What was looked up last and is not used yet, and where others may be looked up.
#[derive(Default)]
pub(crate) struct Foresight {
    foreseen: Mutex<Option<Foreseen>>,
    /// Who names events that are about to leave has just read their numbers, by which they are found in the order
    /// in which they came. The key is the first bytes of an id.
    numbers: Mutex<HashMap<i64, i64>>,
}

/// Records as they were at a revision.
pub(crate) struct Foreseen {
    revision: i64,
    facts: Facts,
}

/// Where events are to be looked for.
pub(crate) struct Places {
    /// The numbers of some that came together.
    pub numbers: Dense,
    /// The first bytes of the ids of all others.
    pub ids: Vec<i64>,
}

impl Foresight {
    pub fn note_numbers(&self, found: impl Iterator<Item = (EventId, Seq)>) {
        let mut numbers = lock(&self.numbers);
        if numbers.len() >= NUMBERS_MAX {
            numbers.clear();
        }
        numbers.extend(found.take(NUMBERS_MAX).map(|(id, seq)| (id.prefix(), seq.0)));
    }

    /// Where these events are to be looked for. Their numbers are not needed again.
    pub fn places(&self, events: &BTreeSet<EventId>) -> Places {
        let mut known = lock(&self.numbers);
        let prefixes: Vec<i64> = events.iter().map(EventId::prefix).collect();
        let (mut numbers, mut ids) = (Vec::new(), Vec::new());
        for prefix in &prefixes {
            match known.remove(prefix) {
                Some(number) => numbers.push(number),
                None => ids.push(*prefix),
            }
        }
        match Dense::of(&numbers) {
            Some(numbers) => Places { numbers, ids },
            None => Places { numbers: Dense::NONE, ids: prefixes },
        }
    }

    pub fn keep(&self, foreseen: Foreseen) {
        *lock(&self.foreseen) = Some(foreseen);
    }

    /// For who reads everything anew: another session, or one that holds the lock.
    pub fn clear(&self) {
        *lock(&self.foreseen) = None;
    }

    /// What is known of the records that a batch needs, where that is all that it needs of these events. It is
    /// not needed again.
    pub fn take(&self, needs: &ReadSet) -> Option<Foreseen> {
        let mut kept = lock(&self.foreseen);
        let Foreseen { revision, facts } = kept.as_mut()?;
        let ids = needs.records.difference(&needs.events);
        let records = ids.filter_map(|id| facts.records.remove_entry(id)).collect();
        let taken = Facts { records, ..Facts::default() };
        let foreseen = Foreseen { revision: *revision, facts: taken };
        if facts.records.is_empty() {
            *kept = None;
        }
        (!foreseen.facts.records.is_empty()).then_some(foreseen)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Foreseen {
    pub fn new(revision: i64, records: impl Iterator<Item = Record>) -> Self {
        let records = records.map(|record| (record.event().id(), Some(record)));
        Self { revision, facts: Facts { records: records.collect(), ..Facts::default() } }
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn into_facts(self) -> Facts {
        self.facts
    }

    pub fn has_all(&self, events: &BTreeSet<EventId>) -> bool {
        events.iter().all(|id| self.facts.records.contains_key(id))
    }

    /// Whether these events are known to be at a later revision what they were.
    pub fn is_true_at(&self, revision: i64, changed: &Changed) -> bool {
        changed.is_unchanged(&self.facts, self.revision, revision)
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
        self.batches.push_back(writes.records.iter().map(|change| change.key).collect());
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
