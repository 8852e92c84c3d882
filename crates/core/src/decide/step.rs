//! The moves that rules are made of. Feed rows are emitted, and seqs assigned, here alone.

use kukuri_event::EventId;

use crate::{
    FeedBounds, FeedRow, Link, MarkState, NodeKey, NodeState, Op, Reason, Record, Seq, Source,
    State, TopicId, UnixMillis, Usage, VersionKey, View, WriteSet,
};

/// Why and whence a change comes.
#[derive(Clone, Copy)]
pub(super) struct Cause<'a> {
    pub at: UnixMillis,
    pub source: Source,
    pub via: Option<&'a TopicId>,
}

impl Cause<'_> {
    pub fn node(at: UnixMillis) -> Self {
        Self { at, source: Source::Node, via: None }
    }
}

pub(super) struct Step {
    pub view: View,
    /// As the feed was found.
    floor_before: Seq,
    floor: Seq,
    head: Seq,
    rows: Vec<FeedRow>,
}

impl Step {
    pub fn new(view: View, bounds: FeedBounds) -> Self {
        let FeedBounds { floor, head, .. } = bounds;
        Self { view, floor_before: floor, floor, head, rows: Vec::new() }
    }

    /// The changes, where the feed begins if that is among them, and its new rows.
    pub fn finish(self) -> (WriteSet, Option<Seq>, Vec<FeedRow>) {
        let floor = (self.floor > self.floor_before).then_some(self.floor);
        (self.view.into_writes(), floor, self.rows)
    }

    /// The floor only ever rises, and never above the head.
    pub fn trim(&mut self, seq: Seq) {
        self.floor = self.floor.max(seq.min(self.head));
    }

    /// The state of the node; a new one has none yet.
    pub fn node(&self) -> &NodeState {
        static FRESH: NodeState = NodeState::FRESH;
        self.view.node.get(&NodeKey).unwrap_or(&FRESH)
    }

    pub fn set_node(&mut self, node: NodeState) {
        self.view.node.set(&NodeKey, Some(node));
    }

    /// Counts a body that comes or goes.
    pub fn count(&mut self, change: impl FnOnce(&mut Usage)) {
        let mut node = self.node().clone();
        change(&mut node.usage);
        self.set_node(node);
    }

    /// The seq that the next row will get.
    pub fn next_seq(&self) -> Seq {
        self.head.next()
    }

    /// The one place where a seq is assigned.
    fn emit(
        &mut self,
        op: Op,
        reason: Option<Reason>,
        record: &Record,
        link: &TopicId,
        cause: Cause<'_>,
    ) {
        self.head = self.head.next();
        let event = record.event();
        let others = record.topics().filter(|topic| *topic != link);
        self.rows.push(FeedRow {
            seq: self.head,
            op,
            event_id: event.id(),
            topic_id: link.clone(),
            prior: others.cloned().collect(),
            kind: event.kind(),
            pubkey: event.pubkey(),
            created_at: event.created_at(),
            ingested_at: cause.at,
            effective_key: VersionKey::of(event),
            reason,
            source: cause.source,
            via: cause.via.cloned(),
        });
    }

    /// Links an effective event to one more topic, and counts it there.
    pub fn link(&mut self, record: &mut Record, topic: &TopicId, cause: Cause<'_>) {
        let place = record.links.partition_point(|link| link.topic < *topic);
        record.links.insert(place, Link { topic: topic.clone(), seq: self.next_seq() });
        self.emit(Op::Upsert, None, record, topic, cause);
        let mut usage = self.view.usage.get(topic).copied().unwrap_or_default();
        usage.add(record.bytes());
        self.view.usage.set(topic, Some(usage));
    }

    /// Takes one topic from an event, for good unless the topic itself goes; says so on the feed if the
    /// event was visible there.
    pub fn unlink(
        &mut self,
        record: &mut Record,
        topic: &TopicId,
        reason: Reason,
        cause: Cause<'_>,
    ) {
        record.links.retain(|link| link.topic != *topic);
        if reason != Reason::Topic {
            let place = record.left.partition_point(|left| left < topic);
            record.left.insert(place, topic.clone());
        }
        if record.is_effective() {
            self.emit(Op::Delete, Some(reason), record, topic, cause);
        }
        let mut usage = self.view.usage.get(topic).copied().unwrap_or_default();
        usage.remove(record.bytes());
        self.view.usage.set(topic, Some(usage));
    }

    /// Hides a stored event. Its body and links stay for audit until retention.
    pub fn hide(&mut self, id: &EventId, state: State, reason: Reason, cause: Cause<'_>) {
        let mut record = self.view.records.get(id).expect("only stored events are hidden").clone();
        if record.is_effective() {
            // The rows speak of ever fewer topics, as if the event left one after the other.
            let mut leaving = record.clone();
            for link in &record.links {
                leaving.links.retain(|other| other.topic != link.topic);
                self.emit(Op::Delete, Some(reason), &leaving, &link.topic, cause);
            }
        }
        record.state = state;
        self.view.records.set(id, Some(record));
    }

    /// Records what became of the winner of a key; the mark stays, the body goes.
    pub fn retire_mark(&mut self, key: &VersionKey, id: &EventId, state: MarkState) {
        let Some(mut version) = self.view.versions.get(key).cloned() else {
            return;
        };
        let Some(mark) = version.mark.as_mut().filter(|mark| mark.event_id == *id) else {
            return;
        };
        mark.state = state;
        version.body = None;
        self.view.versions.set(key, Some(version));
    }
}
