//! The tables of a dump, and what each says about the others.

use std::collections::BTreeMap;

use kukuri_core::{
    Dedupe, FeedRow, MarkState, NodeState, NodeTopic, Op, Record, Seq, State, Tombstone,
    TombstoneKey, TopicId, Usage, Version, VersionKey,
};
use kukuri_event::{EventId, Kind};
use kukuri_store::{Entry, Place};

#[derive(Default)]
pub(super) struct Tables<'a> {
    records: BTreeMap<EventId, &'a Record>,
    dedupe: BTreeMap<EventId, &'a Dedupe>,
    versions: BTreeMap<&'a VersionKey, &'a Version>,
    tombstones: BTreeMap<TombstoneKey, &'a Tombstone>,
    topics: BTreeMap<&'a TopicId, (&'a NodeTopic, &'a Usage)>,
    node: Option<&'a NodeState>,
    pub(super) rows: Vec<&'a FeedRow>,
    rows_by_seq: BTreeMap<Seq, &'a FeedRow>,
    /// The stored versions of each key.
    history: BTreeMap<VersionKey, Vec<&'a Record>>,
    /// What the stored events of each topic add up to.
    usage: BTreeMap<&'a TopicId, Usage>,
    /// What all stored events add up to.
    bodies: Usage,
    /// Keys that stand in a table more than once.
    twice: Vec<Place>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(entries: &'a [Entry]) -> Self {
        let mut tables = Self::default();
        for entry in entries {
            let again = match entry {
                Entry::Record(record) => tables.add_record(record),
                Entry::Dedupe(id, row) => tables.dedupe.insert(*id, row).is_some(),
                Entry::Version(key, row) => tables.versions.insert(key, row).is_some(),
                Entry::Tombstone(key, row) => tables.tombstones.insert(*key, row).is_some(),
                Entry::Topic(row, usage) => {
                    tables.topics.insert(&row.topic_id, (row, usage)).is_some()
                }
                Entry::Node(node) => tables.node.replace(node).is_some(),
                Entry::Row(row) => {
                    tables.rows.push(row);
                    tables.rows_by_seq.insert(row.seq, row).is_some()
                }
            };
            if again {
                tables.twice.push(entry.place());
            }
        }
        tables
    }

    /// Says whether it was there already.
    fn add_record(&mut self, record: &'a Record) -> bool {
        let again = self.records.insert(record.event().id(), record).is_some();
        if !again {
            self.bodies.add(record.bytes());
            for topic in record.topics() {
                self.usage.entry(topic).or_default().add(record.bytes());
            }
            if let Some(key) = VersionKey::of(record.event()) {
                self.history.entry(key).or_default().push(record);
            }
        }
        again
    }

    pub(super) fn check(&self, faults: &mut Vec<String>) {
        faults.extend(self.twice.iter().map(|place| format!("{place:?}: stands there twice")));
        for (id, record) in &self.records {
            let mut fault = |what: &str| faults.push(format!("event {id}: {what}"));
            self.check_record(record, &mut fault);
            self.check_rows(record, &mut fault);
            self.check_visible(record, &mut fault);
        }
        for (key, version) in &self.versions {
            let mut fault = |what: &str| faults.push(format!("key {}: {what}", key.to_text()));
            self.check_version(key, version, &mut fault);
        }
        let said = self.node.map(|node| node.usage).unwrap_or_default();
        if said != self.bodies {
            faults.push(format!("node: holds {:?}, counts {said:?}", self.bodies));
        }
        for (topic, (_, usage)) in &self.topics {
            let counted = self.usage.get(topic).copied().unwrap_or_default();
            if counted != **usage {
                faults.push(format!("topic {topic}: holds {counted:?}, counts {usage:?}"));
            }
        }
    }

    fn check_record(&self, record: &Record, fault: &mut impl FnMut(&str)) {
        if record.links.is_empty() || !record.links.is_sorted_by(|a, b| a.topic < b.topic) {
            fault("its links are not one or more topics in order");
        }
        let apart = record.left.iter().all(|topic| record.link(topic).is_none());
        if !apart || !record.left.is_sorted_by(|a, b| a < b) {
            fault("the topics it left are not others, in order");
        }
        match self.dedupe.get(&record.event().id()) {
            None => fault("dedupe has forgotten it"),
            Some(row) if row.seq != Some(record.seq) => fault("dedupe has another number for it"),
            Some(row) if row.first_seen_at != record.ingested_at => {
                fault("it was first seen and taken in at different times");
            }
            Some(_) => {}
        }
        if record.topics().any(|topic| !self.topics.contains_key(topic)) {
            fault("it is linked to a topic that is not there");
        }
    }

    /// An event is stored iff the feed had an upsert of it; its links name the rows that made them.
    fn check_rows(&self, record: &Record, fault: &mut impl FnMut(&str)) {
        let id = record.event().id();
        // Of what lies below the floor nothing is known.
        let kept = |seq: Seq| self.rows.first().is_some_and(|row| row.seq <= seq);
        let upsert = |seq| {
            let row = self.rows_by_seq.get(&seq);
            row.filter(|row| row.op == Op::Upsert && row.event_id == id)
        };
        if kept(record.seq) && upsert(record.seq).is_none() {
            fault("the row of its number is not its upsert");
        }
        for link in record.links.iter().filter(|link| kept(link.seq)) {
            if upsert(link.seq).is_none_or(|row| row.topic_id != link.topic) {
                fault("the row of a link is not the upsert that made it");
            }
        }
    }

    /// Nothing is visible that its author deleted or a newer version replaced.
    fn check_visible(&self, record: &Record, fault: &mut impl FnMut(&str)) {
        let event = record.event();
        let key = VersionKey::of(event);
        let version = key.as_ref().and_then(|key| self.versions.get(key));
        if key.is_some() && version.is_none() {
            fault("its key is not known");
        }
        if record.state != State::Effective {
            return;
        }
        let tombstone = TombstoneKey { target: event.id(), pubkey: event.pubkey() };
        let until = version.and_then(|version| version.deleted_until);
        let by_id = event.kind() != Kind::DELETION && self.tombstones.contains_key(&tombstone);
        if by_id || until.is_some_and(|until| event.created_at() <= until) {
            fault("it is visible and deleted");
        }
        let mark = version.and_then(|version| version.mark);
        if key.is_some() && mark.is_none_or(|mark| mark.event_id != event.id()) {
            fault("it is visible and not the winner of its key");
        }
    }

    fn check_version(&self, key: &VersionKey, version: &Version, fault: &mut impl FnMut(&str)) {
        let Some(mark) = version.mark else {
            if version.deleted_until.is_none() || version.body.is_some() {
                fault("it has neither a winner nor a limit, or a body without a winner");
            }
            return;
        };
        let mut versions = self.history.get(key).into_iter().flatten();
        if versions.any(|record| mark.is_beaten_by(record.event())) {
            fault("a stored version beats the mark");
        }
        let winner = self.records.get(&mark.event_id);
        if mark.state == MarkState::Effective {
            if winner.is_none_or(|winner| !winner.is_effective()) {
                fault("the winner is marked effective and is not");
            }
            if winner.map(|winner| &winner.body) != version.body.as_ref() {
                fault("the body is not the winner's");
            }
        } else {
            if winner.is_some_and(|winner| winner.is_effective()) {
                fault("the winner is effective and marked otherwise");
            }
            if version.body.is_some() {
                fault("a winner that is not visible has a body");
            }
        }
    }
}
