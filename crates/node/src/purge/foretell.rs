//! What a purge would do, without doing it: what has aged and what has to make room are looked for as a purge
//! looks for them, and leave a picture of the store in place of the store.

use std::collections::{HashMap, HashSet};

use kukuri_core::{Capacity, Look, NodeTopic, ReadSet, Record, Removed, TopicId, Usage};
use kukuri_event::EventId;
use kukuri_store::{Scope, Store, StoreError};
use tokio::task::yield_now;

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

    /// Lets go of what is found by one look; `None` if it is not at a topic. `told` hears of each chunk.
    pub async fn take(
        &mut self,
        look: &Look,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<Option<Foretold>, StoreError> {
        let (topic, cutoffs) = match look {
            Look::Aged { topic, cutoffs } => (topic, *cutoffs),
            Look::OldestOfTopic(topic) => return self.evict(topic, told).await.map(Some),
            _ => return Ok(None),
        };
        let aged = self.store.aged(topic.clone(), cutoffs, COUNTED_EVENTS_MAX).await?;
        let ids: Vec<EventId> = aged.iter().map(|(_, id)| *id).collect();
        let removed = self.leave(topic, &ids, |_, _| true, told).await?;
        let (topic, at_least) = (topic.clone(), aged.len() == COUNTED_EVENTS_MAX);
        Ok(Some(Foretold { topic, removed, at_least }))
    }

    /// The oldest leave while the topic holds more than it may.
    async fn evict(
        &mut self,
        topic: &TopicId,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<Foretold, StoreError> {
        let mut removed = Removed::default();
        let mut asked = OLDEST_EVENTS_FIRST;
        loop {
            let oldest = self.store.oldest(Scope::Topic(topic.clone()), asked).await?;
            removed.add(self.leave(topic, &oldest, Self::exceeds, told).await?);
            let all = oldest.len() < asked || !self.exceeds(topic);
            if all || asked == COUNTED_EVENTS_MAX {
                return Ok(Foretold { topic: topic.clone(), removed, at_least: !all });
            }
            asked = asked.saturating_mul(2).min(COUNTED_EVENTS_MAX);
        }
    }

    /// Takes those of the events out of a topic that leave it when it is their turn.
    async fn leave(
        &mut self,
        topic: &TopicId,
        events: &[EventId],
        leaves: fn(&Self, &TopicId) -> bool,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<Removed, StoreError> {
        let mut removed = Removed::default();
        for chunk in events.chunks(CHUNK_EVENTS_MAX) {
            let mut left = Removed::default();
            for record in self.records(chunk).await? {
                if leaves(self, topic) {
                    left.add(self.unlink(&record, topic));
                }
            }
            told(left);
            removed.add(left);
            // A store that reads on the thread that asks never waits: here is the turn of who interrupts.
            yield_now().await;
        }
        Ok(removed)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kukuri_core::{Act, Command, Cutoffs};
    use kukuri_event::UnixSeconds;
    use kukuri_store::Model;
    use kukuri_store::conformance::signing::{Author, Draft};

    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

    /// A dry run listened for interruptions and never looked whether there was one. To look is not enough: beside
    /// a store that answers at once, nobody else would get a turn before the end.
    #[tokio::test]
    async fn others_get_a_turn_after_each_chunk() {
        let (store, topic) = (Model::default(), TopicId::global());
        let note = Draft::new(1, NOW).tag("t", &topic);
        let acts = [
            Act::carry(topic.clone(), "global"),
            Act::Publish(Author::numbered(1).admit(&note, NOW)),
        ];
        let batch = acts.map(|act| Command { at: NOW.into(), act });
        store.apply(Arc::new(batch)).await.expect("the model takes everything");
        let topics = store.topics().await.expect("the model has topics");
        let mut foresight = Foresight::new(&store, &topics);
        let look = Look::Aged { topic, cutoffs: Cutoffs::all(NOW.into()) };
        let mut heard = Removed::default();
        let mut told = |removed| heard.add(removed);
        let first = tokio::select! {
            biased;
            _ = foresight.take(&look, &mut told) => "who foretells",
            () = std::future::ready(()) => "somebody else",
        };
        assert_eq!((first, heard.gone.events), ("somebody else", 1));
    }
}
