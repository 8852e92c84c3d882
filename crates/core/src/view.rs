//! The facts a batch is decided on, with the batch's own changes laid over them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kukuri_event::EventId;

use crate::{
    Change, Dedupe, NodeKey, NodeState, NodeTopic, ReadSet, Record, Tombstone, TombstoneKey,
    TopicId, Usage, Version, VersionKey, WriteSet,
};

/// What a store loaded for a [`ReadSet`]: a key that is here with `None` is absent from the store,
/// a key that is not here was not loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub records: BTreeMap<EventId, Option<Record>>,
    pub dedupe: BTreeMap<EventId, Option<Dedupe>>,
    pub versions: BTreeMap<VersionKey, Option<Version>>,
    pub tombstones: BTreeMap<TombstoneKey, Option<Tombstone>>,
    pub topics: BTreeMap<TopicId, Option<NodeTopic>>,
    pub usage: BTreeMap<TopicId, Option<Usage>>,
    pub node: BTreeMap<NodeKey, Option<NodeState>>,
}

impl Facts {
    /// Facts in which every key of the set is absent; a store fills in what it finds.
    pub fn absent(set: &ReadSet) -> Self {
        Self {
            records: set.events.iter().chain(&set.records).map(|key| (*key, None)).collect(),
            dedupe: set.events.iter().map(|key| (*key, None)).collect(),
            versions: set.versions.iter().map(|key| (key.clone(), None)).collect(),
            tombstones: set.tombstones.iter().map(|key| (*key, None)).collect(),
            topics: set.topics.iter().map(|key| (key.clone(), None)).collect(),
            usage: set.topics.iter().map(|key| (key.clone(), None)).collect(),
            node: set.node.iter().map(|key| (*key, None)).collect(),
        }
    }

    /// Adds the facts of a second round.
    pub fn extend(&mut self, more: Self) {
        self.records.extend(more.records);
        self.dedupe.extend(more.dedupe);
        self.versions.extend(more.versions);
        self.tombstones.extend(more.tombstones);
        self.topics.extend(more.topics);
        self.usage.extend(more.usage);
        self.node.extend(more.node);
    }
}

/// One kind of key: what was loaded, and what it is now.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    slots: BTreeMap<K, Slot<V>>,
}

#[derive(Debug)]
struct Slot<V> {
    before: Option<V>,
    /// `None` while nothing has touched the key.
    after: Option<Option<V>>,
}

impl<K: Ord + Clone + Debug, V: Clone + PartialEq> Table<K, V> {
    fn new(facts: BTreeMap<K, Option<V>>) -> Self {
        let slot = |before| Slot { before, after: None };
        Self { slots: facts.into_iter().map(|(key, before)| (key, slot(before))).collect() }
    }

    /// Panics on a key that was not loaded: taking it for absent would be a wrong decision.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let slot = self.slots.get(key);
        let slot =
            slot.unwrap_or_else(|| panic!("the rules asked for {key:?}, which was not loaded"));
        slot.after.as_ref().unwrap_or(&slot.before).as_ref()
    }

    pub(crate) fn set(&mut self, key: &K, value: Option<V>) {
        let slot = self.slots.get_mut(key);
        let slot =
            slot.unwrap_or_else(|| panic!("the rules changed {key:?}, which was not loaded"));
        slot.after = Some(value);
    }

    fn into_changes(self) -> Vec<Change<K, V>> {
        let changed = self.slots.into_iter().filter_map(|(key, slot)| {
            let after = slot.after?;
            (slot.before != after).then_some(Change { key, before: slot.before, after })
        });
        changed.collect()
    }
}

/// The state as a batch sees it while it is being decided.
#[derive(Debug)]
pub struct View {
    pub(crate) records: Table<EventId, Record>,
    pub(crate) dedupe: Table<EventId, Dedupe>,
    pub(crate) versions: Table<VersionKey, Version>,
    pub(crate) tombstones: Table<TombstoneKey, Tombstone>,
    pub(crate) topics: Table<TopicId, NodeTopic>,
    pub(crate) usage: Table<TopicId, Usage>,
    pub(crate) node: Table<NodeKey, NodeState>,
}

impl View {
    pub fn new(facts: Facts) -> Self {
        Self {
            records: Table::new(facts.records),
            dedupe: Table::new(facts.dedupe),
            versions: Table::new(facts.versions),
            tombstones: Table::new(facts.tombstones),
            topics: Table::new(facts.topics),
            usage: Table::new(facts.usage),
            node: Table::new(facts.node),
        }
    }

    pub(crate) fn into_writes(self) -> WriteSet {
        WriteSet {
            records: self.records.into_changes(),
            dedupe: self.dedupe.into_changes(),
            versions: self.versions.into_changes(),
            tombstones: self.tombstones.into_changes(),
            topics: self.topics.into_changes(),
            usage: self.usage.into_changes(),
            node: self.node.into_changes(),
        }
    }
}
