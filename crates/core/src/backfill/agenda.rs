//! When each question is next asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::UnixMillis;
use crate::feed::coded;

coded!(
    /// Why a topic's history is asked for.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Why {
        /// The node has started, or has begun to carry the topic.
        Joined = 1 "joined",
        /// It is time to look again.
        Scheduled = 2 "scheduled",
        /// Somebody who follows the topic was too slow and has missed something.
        Lagged = 3 "lagged",
        /// The node was cut off from others.
        Partition = 4 "partition",
        /// The last try did not come to its end.
        Retried = 5 "retried",
    }
);

/// How long it takes until the same is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// After all went well.
    pub interval: Duration,
    /// After the first failure; each further one doubles it, up to the interval.
    pub retry: Duration,
    /// However often others ask for it.
    pub least: Duration,
}

/// What is asked, such as a relay about a topic, and when each is next. Each has a time of its own: what one
/// relay does is no reason to ask another one more or less often.
#[derive(Clone, Debug)]
pub struct Agenda<K> {
    pauses: Pauses,
    entries: BTreeMap<K, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due_at: UnixMillis,
    why: Why,
    ended_at: Option<UnixMillis>,
    failures: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// It is being asked. What became known to be missing since may not be in the answer.
    Begun {
        missed: Option<Why>,
    },
}

impl Entry {
    /// Which of two that are due comes first.
    fn turn(&self) -> (UnixMillis, bool) {
        (self.due_at, self.why == Why::Joined)
    }
}

impl<K: Ord + Clone> Agenda<K> {
    pub fn new(pauses: Pauses) -> Self {
        Self { pauses, entries: BTreeMap::new() }
    }

    /// These are all there are now: new ones are due at once, and others are forgotten.
    pub fn follow(&mut self, keys: &BTreeSet<K>, now: UnixMillis) {
        self.entries.retain(|key, _| keys.contains(key));
        for key in keys {
            let (why, stage) = (Why::Joined, Stage::Waiting);
            let entry = Entry { due_at: now, why, ended_at: None, failures: 0, stage };
            self.entries.entry(key.clone()).or_insert(entry);
        }
    }

    /// Something is known to be missing: it is asked for before that of which nothing is known. What is not
    /// followed is none of ours.
    pub fn ask(&mut self, key: &K, why: Why, now: UnixMillis) {
        let least = self.pauses.least;
        if let Some(entry) = self.entries.get_mut(key) {
            if let Stage::Begun { missed } = &mut entry.stage {
                *missed = Some(why);
                return;
            }
            let due_at = entry.ended_at.map_or(now, |at| now.max(at.saturating_add(least)));
            let told = Entry { due_at, why, ..*entry };
            if told.turn() < entry.turn() {
                *entry = told;
            }
        }
    }

    /// What has been due for longest, if anything is, of that which may be asked now and is not being asked.
    pub fn next(&self, now: UnixMillis, may: impl Fn(&K) -> bool) -> Option<(K, Why)> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.stage == Stage::Waiting);
        let due = waiting.filter(|(key, entry)| self.is_due(entry, now) && may(key));
        let (key, entry) = due.min_by_key(|(_, entry)| entry.turn())?;
        Some((key.clone(), entry.why))
    }

    /// A time that lies further ahead than any pause was named by a clock that has been set back.
    fn is_due(&self, entry: &Entry, now: UnixMillis) -> bool {
        let longest = self.pauses.interval.max(self.pauses.least);
        entry.due_at <= now || now.until(entry.due_at) > longest
    }

    /// It is being asked, until it is said what became of it.
    pub fn begin(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stage = Stage::Begun { missed: None };
        }
    }

    /// It was given up for no reason of its own, and is as due as it was.
    pub fn leave(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stage = Stage::Waiting;
        }
    }

    pub fn done(&mut self, key: &K, now: UnixMillis) {
        let (due_at, why) = (now.saturating_add(self.pauses.interval), Why::Scheduled);
        self.end(key, Ending { due_at, why, failures: 0 }, now);
    }

    pub fn failed(&mut self, key: &K, now: UnixMillis) {
        let Pauses { interval, retry, .. } = self.pauses;
        let failures = self.entries.get(key).map_or(0, |entry| entry.failures);
        let pause = retry.saturating_mul(2_u32.saturating_pow(failures)).min(interval);
        let (due_at, why) = (now.saturating_add(pause), Why::Retried);
        let failures = failures.saturating_add(1);
        self.end(key, Ending { due_at, why, failures }, now);
    }

    /// What became of something that has left meanwhile does not bring it back.
    fn end(&mut self, key: &K, ending: Ending, now: UnixMillis) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Ending { due_at, why, failures } = ending;
        let (ended_at, stage) = (Some(now), Stage::Waiting);
        let ended = Entry { due_at, why, ended_at, failures, stage };
        let before = std::mem::replace(entry, ended);
        if let Stage::Begun { missed: Some(why) } = before.stage {
            self.ask(key, why, now);
        }
    }
}

/// What is next of something that has ended.
struct Ending {
    due_at: UnixMillis,
    why: Why,
    failures: u32,
}
