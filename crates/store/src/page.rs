use kukuri_core::{
    Dedupe, FeedRow, NodeKey, NodeState, NodeTopic, Record, Seq, Tombstone, TombstoneKey, TopicId,
    Usage, Version, VersionKey,
};
use kukuri_event::EventId;

/// Where a walk over one table of the raw state stands. Each table is walked in key order, from
/// `None` (its beginning) by the key of the last entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Records(Option<Seq>),
    Dedupe(Option<EventId>),
    Versions(Option<VersionKey>),
    Tombstones(Option<TombstoneKey>),
    Topics(Option<TopicId>),
    Node(Option<NodeKey>),
    Feed(Option<Seq>),
}

impl Place {
    /// The beginnings of all tables.
    pub const ALL: [Self; 7] = [
        Self::Records(None),
        Self::Dedupe(None),
        Self::Versions(None),
        Self::Tombstones(None),
        Self::Topics(None),
        Self::Node(None),
        Self::Feed(None),
    ];
}

/// One row of the raw state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Record(Record),
    Dedupe(EventId, Dedupe),
    Version(VersionKey, Version),
    Tombstone(TombstoneKey, Tombstone),
    Topic(NodeTopic, Usage),
    Node(NodeState),
    Row(FeedRow),
}

impl Entry {
    /// The place right after this entry.
    pub fn place(&self) -> Place {
        match self {
            Self::Record(record) => Place::Records(Some(record.seq)),
            Self::Dedupe(id, _) => Place::Dedupe(Some(*id)),
            Self::Version(key, _) => Place::Versions(Some(key.clone())),
            Self::Tombstone(key, _) => Place::Tombstones(Some(*key)),
            Self::Topic(topic, _) => Place::Topics(Some(topic.topic_id.clone())),
            Self::Node(_) => Place::Node(Some(NodeKey)),
            Self::Row(row) => Place::Feed(Some(row.seq)),
        }
    }
}
