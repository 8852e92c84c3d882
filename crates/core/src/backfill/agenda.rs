//! When each topic is next asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::feed::coded;
use crate::{TopicId, UnixMillis};

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

/// How long it takes until a topic is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// After all went well.
    pub interval: Duration,
    /// After the first failure; each further one doubles it, up to the interval.
    pub retry: Duration,
    /// However often others ask for it.
    pub least: Duration,
}

/// The topics that are asked for, and when each is next.
#[derive(Clone, Debug)]
pub struct Agenda {
    pauses: Pauses,
    topics: BTreeMap<TopicId, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due_at: UnixMillis,
    why: Why,
    ended_at: Option<UnixMillis>,
    failures: u32,
}

impl Entry {
    /// Which of two that are due comes first.
    fn turn(&self) -> (UnixMillis, bool) {
        (self.due_at, self.why == Why::Joined)
    }
}

impl Agenda {
    pub fn new(pauses: Pauses) -> Self {
        Self { pauses, topics: BTreeMap::new() }
    }

    /// These are the topics now: new ones are due at once, and others are forgotten.
    pub fn follow(&mut self, topics: &BTreeSet<TopicId>, now: UnixMillis) {
        self.topics.retain(|topic, _| topics.contains(topic));
        for topic in topics {
            let entry = Entry { due_at: now, why: Why::Joined, ended_at: None, failures: 0 };
            self.topics.entry(topic.clone()).or_insert(entry);
        }
    }

    /// Somebody has missed something of a topic: it is asked for before those of which nothing is known. One
    /// that is not followed is none of ours.
    pub fn ask(&mut self, topic: &TopicId, why: Why, now: UnixMillis) {
        let least = self.pauses.least;
        if let Some(entry) = self.topics.get_mut(topic) {
            let due_at = entry.ended_at.map_or(now, |at| now.max(at.saturating_add(least)));
            let told = Entry { due_at, why, ..*entry };
            if told.turn() < entry.turn() {
                *entry = told;
            }
        }
    }

    /// The topic that has been due for longest, if one is.
    pub fn next(&self, now: UnixMillis) -> Option<(TopicId, Why)> {
        let due = self.topics.iter().filter(|(_, entry)| self.is_due(entry, now));
        let (topic, entry) = due.min_by_key(|(_, entry)| entry.turn())?;
        Some((topic.clone(), entry.why))
    }

    /// A time that lies further ahead than any pause was named by a clock that has been set back.
    fn is_due(&self, entry: &Entry, now: UnixMillis) -> bool {
        let longest = self.pauses.interval.max(self.pauses.least);
        entry.due_at <= now || now.until(entry.due_at) > longest
    }

    pub fn done(&mut self, topic: &TopicId, now: UnixMillis) {
        let (due_at, why) = (now.saturating_add(self.pauses.interval), Why::Scheduled);
        let entry = Entry { due_at, why, ended_at: Some(now), failures: 0 };
        self.replace(topic, entry);
    }

    pub fn failed(&mut self, topic: &TopicId, now: UnixMillis) {
        let Pauses { interval, retry, .. } = self.pauses;
        let failures = self.topics.get(topic).map_or(0, |entry| entry.failures);
        let pause = retry.saturating_mul(2_u32.saturating_pow(failures)).min(interval);
        let (due_at, why) = (now.saturating_add(pause), Why::Retried);
        let failures = failures.saturating_add(1);
        self.replace(topic, Entry { due_at, why, ended_at: Some(now), failures });
    }

    /// What became of a topic that has left meanwhile does not bring it back.
    fn replace(&mut self, topic: &TopicId, entry: Entry) {
        if let Some(known) = self.topics.get_mut(topic) {
            *known = entry;
        }
    }
}
