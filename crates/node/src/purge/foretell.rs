//! What a purge would do, without doing it: what has aged and what has to make room are looked for as a purge
//! looks for them, and leave a picture of the store in place of the store.

use std::collections::{HashMap, HashSet};

use kukuri_core::{Capacity, Look, NodeTopic, ReadSet, Record, Removed, TopicId, Usage};
use kukuri_event::EventId;
use kukuri_store::{Scope, Store, StoreError};

use crate::upkeep::CHUNK_EVENTS_MAX;

/// How many events of one topic are counted before it says "at least".
const COUNTED_EVENTS_MAX: usize = 1_000_000;

/// Events that have to make room are asked for in ever larger numbers, from this one on.
const OLDEST_EVENTS_FIRST: usize = 1024;

/// What would leave a topic.
pub struct Foretold {
    pub topic: TopicId,
    pub removed: Removed,
    /// Whether there may be more.
    pub at_least: bool,
}

/// The picture: what is left of the events that have left some topic.
pub struct Foresight<'a> {
    store: &'a dyn Store,
    usage: HashMap<TopicId, (Capacity, Usage)>,
    links_left: HashMap<EventId, usize>,
    removed: HashSet<(EventId, TopicId)>,
}

impl<'a> Foresight<'a> {
    pub fn new(store: &'a dyn Store, topics: &[(NodeTopic, Usage)]) -> Self {
        let usage = |(topic, usage): &(NodeTopic, Usage)| {
            (topic.topic_id.clone(), (topic.ingest_policy.capacity(), *usage))
        };
        let usage = topics.iter().map(usage).collect();
        Self { store, usage, links_left: HashMap::new(), removed: HashSet::new() }
    }

    /// Lets go of what is found by one look; `None` if it is not at a topic.
    pub async fn take(&mut self, look: &Look) -> Result<Option<Foretold>, StoreError> {
        let (topic, cutoffs) = match look {
            Look::Aged { topic, cutoffs } => (topic, *cutoffs),
            Look::OldestOfTopic(topic) => return self.evict(topic).await.map(Some),
            _ => return Ok(None),
        };
        let aged = self.store.aged(topic.clone(), cutoffs, COUNTED_EVENTS_MAX).await?;
        let mut removed = Removed::default();
        let ids: Vec<EventId> = aged.iter().map(|(_, id)| *id).collect();
        for chunk in ids.chunks(CHUNK_EVENTS_MAX) {
            for record in self.records(chunk).await? {
                removed.add(self.unlink(&record, topic));
            }
        }
        let (topic, at_least) = (topic.clone(), aged.len() == COUNTED_EVENTS_MAX);
        Ok(Some(Foretold { topic, removed, at_least }))
    }

    /// The oldest leave while the topic holds more than it may.
    async fn evict(&mut self, topic: &TopicId) -> Result<Foretold, StoreError> {
        let mut removed = Removed::default();
        let mut asked = OLDEST_EVENTS_FIRST;
        loop {
            let oldest = self.store.oldest(Scope::Topic(topic.clone()), asked).await?;
            let found = oldest.len();
            for chunk in oldest.chunks(CHUNK_EVENTS_MAX) {
                for record in self.records(chunk).await? {
                    if self.exceeds(topic) {
                        removed.add(self.unlink(&record, topic));
                    }
                }
            }
            let all = found < asked || !self.exceeds(topic);
            if all || asked == COUNTED_EVENTS_MAX {
                return Ok(Foretold { topic: topic.clone(), removed, at_least: !all });
            }
            asked = asked.saturating_mul(2).min(COUNTED_EVENTS_MAX);
        }
    }

    fn exceeds(&self, topic: &TopicId) -> bool {
        self.usage.get(topic).is_some_and(|(capacity, usage)| capacity.is_exceeded(*usage))
    }

    /// The events in the order they are named in.
    async fn records(&self, ids: &[EventId]) -> Result<Vec<Record>, StoreError> {
        let needs = ReadSet { events: ids.iter().copied().collect(), ..ReadSet::default() };
        let mut records = self.store.facts(needs).await?.records;
        Ok(ids.iter().filter_map(|id| records.remove(id).flatten()).collect())
    }

    /// Nothing if it has left the topic already.
    fn unlink(&mut self, record: &Record, topic: &TopicId) -> Removed {
        let mut removed = Removed::default();
        let (id, bytes) = (record.event().id(), record.bytes());
        if record.link(topic).is_none() || !self.removed.insert((id, topic.clone())) {
            return removed;
        }
        removed.events = 1;
        removed.bytes = bytes;
        if let Some((_, usage)) = self.usage.get_mut(topic) {
            usage.remove(bytes);
        }
        let left = self.links_left.entry(id).or_insert(record.links.len());
        *left -= 1;
        if *left == 0 {
            removed.gone.add(bytes);
        }
        removed
    }
}
