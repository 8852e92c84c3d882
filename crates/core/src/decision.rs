use kukuri_event::EventId;

use crate::{
    Dedupe, FeedRow, Lease, NodeKey, NodeState, NodeTopic, Record, Rejection, Seq, Tombstone,
    TombstoneKey, TopicId, Usage, Version, VersionKey,
};

/// What a batch comes to. Nothing in it is true until a store has committed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The head the decision was made at; it is void at any other.
    pub base: Seq,
    pub writes: WriteSet,
    /// Where the feed begins from now on, if that changes.
    pub floor: Option<Seq>,
    /// The feed rows `base + 1 ..`, in order.
    pub rows: Vec<FeedRow>,
    /// One per command.
    pub outcomes: Vec<Outcome>,
}

impl Decision {
    /// Whether there is nothing to make durable.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.rows.is_empty() && self.floor.is_none()
    }

    /// The head once the decision is committed.
    pub fn head(&self) -> Seq {
        self.rows.last().map_or(self.base, |row| row.seq)
    }
}

/// The net change of one key; a back end has nothing left to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<K, V> {
    pub key: K,
    pub before: Option<V>,
    pub after: Option<V>,
}

/// The net changes of a batch, one per key, sorted by key. They can be applied in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    pub records: Vec<Change<EventId, Record>>,
    pub dedupe: Vec<Change<EventId, Dedupe>>,
    pub versions: Vec<Change<VersionKey, Version>>,
    pub tombstones: Vec<Change<TombstoneKey, Tombstone>>,
    pub topics: Vec<Change<TopicId, NodeTopic>>,
    pub usage: Vec<Change<TopicId, Usage>>,
    pub node: Vec<Change<NodeKey, NodeState>>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.dedupe.is_empty()
            && self.versions.is_empty()
            && self.tombstones.is_empty()
            && self.topics.is_empty()
            && self.usage.is_empty()
            && self.node.is_empty()
    }
}

/// What the sender of a command is told, once the batch is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Stored, or linked to a topic it was not linked to.
    Accepted,
    /// To be passed on to who listens now.
    Ephemeral,
    Duplicate(Duplicate),
    Refused(Rejection),
    /// A command of the node itself took effect.
    Done,
    Removed(Removed),
    /// The task is the sender's, until then.
    Held(Lease),
    /// The task is another's, and was not taken; or it was taken from the sender, and the command
    /// was not done.
    HeldElsewhere,
    /// The topic still holds events and was not removed.
    TopicInUse,
}

/// What an act has taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Links that were removed, events that were hidden, or memories that are gone.
    pub events: u64,
    /// What the events of those links weigh, each link counted.
    pub bytes: u64,
    /// Events that left the node: those that lost their last link.
    pub gone: Usage,
}

impl Removed {
    pub fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bytes += more.bytes;
        self.gone.events += more.gone.events;
        self.gone.bytes += more.gone.bytes;
    }

    pub(crate) fn add_one(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

/// Why a valid event changes nothing and is still OK true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    Known,
    Stale,
    NotKept,
}

impl Outcome {
    /// The first half of an OK message.
    pub fn is_ok(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::HeldElsewhere | Self::TopicInUse)
    }

    /// The text of an OK message.
    pub fn message(&self) -> String {
        match self {
            Self::Accepted | Self::Ephemeral | Self::Done => String::new(),
            Self::Removed(_) | Self::Held(_) => String::new(),
            Self::Duplicate(Duplicate::Known) => "duplicate: already have this event".into(),
            Self::Duplicate(Duplicate::Stale) => "duplicate: a newer version is stored".into(),
            Self::Duplicate(Duplicate::NotKept) => "duplicate: seen before, no longer kept".into(),
            Self::Refused(rejection) => rejection.to_string(),
            Self::HeldElsewhere => "error: another instance does this".into(),
            Self::TopicInUse => "error: the topic still holds events".into(),
        }
    }
}
