//! The in-memory model: the oracle of every test. It uses the same rules as the back ends, and
//! answers reads by definition: look at everything, keep what matches.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use kukuri_core::{
    Change, Command, Cursor, Cutoffs, Decision, Dedupe, Epoch, Facts, FeedBounds, FeedRow, NodeKey,
    NodeState, NodeTopic, ReadSet, Record, Seq, Shelf, Tombstone, TombstoneKey, TopicId,
    UnixMillis, Usage, Version, VersionKey, View, decide, follow_up, needs,
};
use kukuri_event::{EventId, UnixSeconds, matches};
use tokio::sync::watch;

use crate::{
    Dated, Entry, Extent, FeedError, Forgettable, Hit, Hits, Place, Query, QueryError, Scope,
    Space, Store, StoreError, Tidied, merge_hits,
};

/// A store in memory. Durable for as long as the process.
pub struct Model {
    state: Mutex<State>,
    heads: watch::Sender<Seq>,
}

#[derive(Default)]
struct State {
    floor: Seq,
    records: BTreeMap<EventId, Record>,
    dedupe: BTreeMap<EventId, Dedupe>,
    versions: BTreeMap<VersionKey, Version>,
    tombstones: BTreeMap<TombstoneKey, Tombstone>,
    topics: BTreeMap<TopicId, NodeTopic>,
    usage: BTreeMap<TopicId, Usage>,
    node: BTreeMap<NodeKey, NodeState>,
    feed: Vec<FeedRow>,
}

impl Default for Model {
    fn default() -> Self {
        Self { state: Mutex::default(), heads: watch::Sender::new(Seq::ZERO) }
    }
}

impl Model {
    /// A model has one life.
    pub const EPOCH: Epoch = Epoch(0);

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

impl State {
    fn bounds(&self) -> FeedBounds {
        let head = self.feed.last().map_or(self.floor, |row| row.seq);
        FeedBounds { epoch: Model::EPOCH, floor: self.floor, head }
    }

    fn facts(&self, needs: &ReadSet) -> Facts {
        let mut facts = Facts::absent(needs);
        fill(&mut facts.records, &self.records);
        fill(&mut facts.dedupe, &self.dedupe);
        fill(&mut facts.versions, &self.versions);
        fill(&mut facts.tombstones, &self.tombstones);
        fill(&mut facts.topics, &self.topics);
        fill(&mut facts.usage, &self.usage);
        fill(&mut facts.node, &self.node);
        facts
    }

    fn commit(&mut self, decision: &Decision) {
        let writes = &decision.writes;
        write(&mut self.records, &writes.records);
        write(&mut self.dedupe, &writes.dedupe);
        write(&mut self.versions, &writes.versions);
        write(&mut self.tombstones, &writes.tombstones);
        write(&mut self.topics, &writes.topics);
        write(&mut self.usage, &writes.usage);
        write(&mut self.node, &writes.node);
        self.feed.extend(decision.rows.iter().cloned());
        if let Some(floor) = decision.floor {
            self.feed.retain(|row| row.seq > floor);
            self.floor = floor;
        }
    }

    /// Effective and not expired.
    fn visible(&self, now: UnixSeconds) -> impl Iterator<Item = &Record> {
        let alive = move |record: &&Record| record.expires_at().is_none_or(|end| end > now);
        self.records.values().filter(|record| record.is_effective()).filter(alive)
    }

    fn answer(&self, query: &Query) -> Vec<Hit> {
        let answers = query.filters.iter().map(|filter| {
            let found = self.visible(query.now).filter(|record| {
                let links: Vec<&TopicId> = record.topics().collect();
                matches(filter, record.event(), &links)
            });
            let mut hits: Vec<Hit> = found.map(hit).filter(|hit| query.is_ahead(hit)).collect();
            hits.sort_unstable_by_key(Hit::order);
            hits.truncate(query.limit(filter));
            hits
        });
        merge_hits(answers)
    }

    fn page(&self, after: &Place, entries_max: usize) -> Vec<Entry> {
        match after {
            Place::Records(after) => {
                let by_seq: BTreeMap<Seq, &Record> =
                    self.records.values().map(|r| (r.seq, r)).collect();
                rest(&by_seq, after)
                    .take(entries_max)
                    .map(|(_, r)| Entry::Record((*r).clone()))
                    .collect()
            }
            Place::Dedupe(after) => rest(&self.dedupe, after)
                .take(entries_max)
                .map(|(k, v)| Entry::Dedupe(*k, *v))
                .collect(),
            Place::Versions(after) => rest(&self.versions, after)
                .take(entries_max)
                .map(|(k, v)| Entry::Version(k.clone(), v.clone()))
                .collect(),
            Place::Tombstones(after) => rest(&self.tombstones, after)
                .take(entries_max)
                .map(|(k, v)| Entry::Tombstone(*k, *v))
                .collect(),
            Place::Topics(after) => rest(&self.topics, after)
                .take(entries_max)
                .map(|(k, v)| {
                    Entry::Topic(v.clone(), self.usage.get(k).copied().unwrap_or_default())
                })
                .collect(),
            Place::Node(after) => rest(&self.node, after)
                .take(entries_max)
                .map(|(_, v)| Entry::Node(v.clone()))
                .collect(),
            Place::Feed(after) => {
                let rows = self.feed.iter().filter(|row| after.is_none_or(|after| row.seq > after));
                rows.take(entries_max).cloned().map(Entry::Row).collect()
            }
        }
    }
}

fn hit(record: &Record) -> Hit {
    let event = record.event();
    Hit { event: record.seq, created_at: event.created_at(), id: event.id() }
}

fn fill<K: Ord, V: Clone>(facts: &mut BTreeMap<K, Option<V>>, table: &BTreeMap<K, V>) {
    facts.iter_mut().for_each(|(key, value)| *value = table.get(key).cloned());
}

fn write<K: Ord + Clone, V: Clone + PartialEq + std::fmt::Debug>(
    table: &mut BTreeMap<K, V>,
    changes: &[Change<K, V>],
) {
    for change in changes {
        let before = match &change.after {
            Some(value) => table.insert(change.key.clone(), value.clone()),
            None => table.remove(&change.key),
        };
        assert_eq!(before, change.before, "a change starts from what is stored");
    }
}

fn rest<'a, K: Ord, V>(
    table: &'a BTreeMap<K, V>,
    after: &'a Option<K>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    table.range((from, Bound::Unbounded))
}

#[async_trait]
impl Store for Model {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let mut state = self.state();
        let mut facts = state.facts(&needs(&batch));
        facts.extend(state.facts(&follow_up(&batch, &facts)));
        let decision = decide(View::new(facts), state.bounds(), &batch);
        state.commit(&decision);
        self.heads.send_replace(decision.head());
        Ok(decision)
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        Ok(self.state().facts(&needs))
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        let state = self.state();
        let hits = state.answer(&query);
        let first = hits.iter().take(query.bodies_max);
        let bodies = first.map(|hit| state.records[&hit.id].body.json().to_owned()).collect();
        Ok(Hits { head: state.bounds().head, hits, bodies })
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        let state = self.state();
        let effective = state.records.values().filter(|record| record.is_effective());
        let by_seq: BTreeMap<Seq, &Record> = effective.map(|record| (record.seq, record)).collect();
        Ok(events
            .iter()
            .map(|seq| by_seq.get(seq).map(|record| record.body.json().to_owned()))
            .collect())
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        let state = self.state();
        state.bounds().check(after)?;
        Ok(state.feed.iter().filter(|row| row.seq > after.seq).take(rows_max).cloned().collect())
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        Ok(self.state().bounds())
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.heads.subscribe()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        let state = self.state();
        let usage =
            |topic: &NodeTopic| state.usage.get(&topic.topic_id).copied().unwrap_or_default();
        Ok(state.topics.values().map(|topic| (topic.clone(), usage(topic))).collect())
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        let state = self.state();
        let links =
            state.records.values().filter_map(|r| Some((r.link(&topic)?.seq, r.event().id())));
        let links: BTreeMap<Seq, EventId> = links.collect();
        Ok(links.into_values().take(events_max).collect())
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        let state = self.state();
        let linked = state.records.values().filter(|record| record.link(&topic).is_some());
        let aged = linked.filter(|record| cutoffs.take(record));
        let dated = |record: &Record| (record.event().created_at(), record.event().id());
        Ok(aged.map(dated).take(events_max).collect())
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        let state = self.state();
        let mut found: Vec<&Record> = match &of {
            Scope::Topic(topic) => {
                state.records.values().filter(|record| record.link(topic).is_some()).collect()
            }
            Scope::Node => state.records.values().collect(),
        };
        let current = |record: &Record| Shelf::of(record) == Shelf::Current;
        match of {
            Scope::Topic(_) => found.sort_unstable_by_key(|record| {
                let event = record.event();
                (current(record), event.created_at(), Reverse(event.id()))
            }),
            Scope::Node => found.sort_unstable_by_key(|record| (current(record), record.seq)),
        }
        Ok(found.into_iter().take(events_max).map(|record| record.event().id()).collect())
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        let state = self.state();
        let old = state.dedupe.iter().filter(|(_, row)| row.first_seen_at < before);
        let gone = old.filter(|(id, _)| !state.records.contains_key(id));
        let tombstones = state.tombstones.iter().filter(|(_, row)| row.recorded_at < before);
        Ok(Forgettable {
            events: gone.map(|(id, _)| *id).take(max).collect(),
            tombstones: tombstones.map(|(key, _)| *key).take(max).collect(),
        })
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        Ok(Tidied::Done)
    }

    async fn extents(&self) -> Result<Vec<Extent>, StoreError> {
        Ok(Vec::new())
    }

    async fn space(&self) -> Result<Space, StoreError> {
        Ok(Space::default())
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        let state = self.state();
        let effective = state.records.values().filter(|record| record.is_effective());
        let ends = effective.filter_map(|r| Some(((r.expires_at()?, r.seq), r.event().id())));
        let due: BTreeMap<(UnixSeconds, Seq), EventId> =
            ends.filter(|((end, _), _)| *end <= now).collect();
        Ok(due.into_values().take(events_max).collect())
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(self.state().page(&after, entries_max))
    }
}
