//! Which keys the rules may ask for. Named before anything is loaded, so that a store can load a
//! batch in a handful of round trips and deciding needs no I/O.

use std::collections::BTreeSet;

use kukuri_event::{Class, Event, EventId, Kind};

use crate::{
    Act, Admitted, Command, Facts, NodeKey, TombstoneKey, TopicId, UnlinkReason, VersionKey,
};

/// Keys to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSet {
    /// Their dedupe rows and records.
    pub events: BTreeSet<EventId>,
    /// Their records alone: what is remembered of them does not matter.
    pub records: BTreeSet<EventId>,
    pub tombstones: BTreeSet<TombstoneKey>,
    pub versions: BTreeSet<VersionKey>,
    /// Their subscriptions and usage.
    pub topics: BTreeSet<TopicId>,
    /// The state of the node as a whole, if it is asked for.
    pub node: Option<NodeKey>,
}

impl ReadSet {
    pub fn len(&self) -> usize {
        let events = self.events.len() + self.records.len();
        let keys = events + self.tombstones.len() + self.versions.len() + self.topics.len();
        keys + usize::from(self.node.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn extend(&mut self, more: Self) {
        self.events.extend(more.events);
        self.records.extend(more.records);
        self.tombstones.extend(more.tombstones);
        self.versions.extend(more.versions);
        self.topics.extend(more.topics);
        self.node = self.node.or(more.node);
    }

    /// Adds the keys of one command.
    pub fn add(&mut self, act: &Act) {
        match act {
            Act::Publish(admitted) => self.add_publish(admitted),
            Act::SetTopic { topic_id, .. } => {
                self.topics.insert(topic_id.clone());
            }
            Act::RemoveTopic(topic) => {
                self.topics.insert(topic.clone());
            }
            Act::Unlink { topic, events, reason } => {
                self.topics.insert(topic.clone());
                match reason {
                    // What leaves with its topic is forgotten.
                    UnlinkReason::Topic => self.events.extend(events),
                    _ => self.records.extend(events),
                }
                self.node = Some(NodeKey);
            }
            Act::Expire(events) => self.records.extend(events),
            Act::Sightings(sightings) => self.events.extend(sightings.iter().map(|s| s.event_id)),
            Act::Evict { events, .. } => {
                self.records.extend(events);
                self.node = Some(NodeKey);
            }
            Act::Forget { events, tombstones, .. } => {
                self.events.extend(events);
                self.tombstones.extend(tombstones);
                self.node = Some(NodeKey);
            }
            Act::Trim(_) => {}
            Act::Allow(_) | Act::Climb(_) | Act::SetStorage(_) => self.node = Some(NodeKey),
            Act::Hold { .. } | Act::Release { .. } => self.node = Some(NodeKey),
            Act::Fenced { act, .. } => {
                self.node = Some(NodeKey);
                self.add(act);
            }
        }
    }

    /// Adds the keys that tell whether an event is known.
    pub fn add_lookup(&mut self, event: &Event) {
        self.events.insert(event.id());
        self.tombstones.insert(TombstoneKey { target: event.id(), pubkey: event.pubkey() });
        self.versions.extend(VersionKey::of(event));
    }

    fn add_publish(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        self.topics.extend(admitted.topics().iter().cloned());
        if event.kind().class() == Class::Ephemeral {
            return;
        }
        self.add_lookup(event);
        self.node = Some(NodeKey);
        if event.kind() == Kind::DELETION {
            for target in event.tags().event_ids() {
                self.events.insert(target);
                self.tombstones.insert(TombstoneKey { target, pubkey: event.pubkey() });
            }
            let own = event.tags().addresses().filter(|a| a.pubkey == event.pubkey());
            self.versions.extend(own.map(VersionKey::from));
        }
    }
}

impl From<kukuri_event::Address> for VersionKey {
    fn from(address: kukuri_event::Address) -> Self {
        Self { kind: address.kind, pubkey: address.pubkey, d: address.d }
    }
}

/// The keys a batch asks for.
pub fn needs(batch: &[Command]) -> ReadSet {
    let mut set = ReadSet::default();
    batch.iter().for_each(|command| set.add(&command.act));
    set
}

/// The keys that follow from what was loaded: the winner of a key, the key of a winner, and the topics
/// of events that leave all of theirs. One round is enough, because a winner's key names the winner
/// and nothing else.
pub fn follow_up(batch: &[Command], facts: &Facts) -> ReadSet {
    let mut set = ReadSet::default();
    for id in batch.iter().flat_map(|command| evicted(&command.act)) {
        let record = facts.records.get(id).and_then(Option::as_ref);
        set.topics.extend(record.into_iter().flat_map(|record| record.topics().cloned()));
    }
    for version in facts.versions.values().flatten() {
        set.records.extend(version.mark.map(|mark| mark.event_id));
    }
    for record in facts.records.values().flatten().filter(|record| record.is_effective()) {
        set.versions.extend(VersionKey::of(record.event()));
    }
    set.records.retain(|id| !facts.records.contains_key(id));
    set.versions.retain(|key| !facts.versions.contains_key(key));
    set.topics.retain(|key| !facts.topics.contains_key(key));
    set
}

fn evicted(act: &Act) -> &[EventId] {
    match act {
        Act::Evict { events, .. } => events,
        Act::Fenced { act, .. } => evicted(act),
        _ => &[],
    }
}
