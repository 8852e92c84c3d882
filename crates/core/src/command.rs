use kukuri_event::EventId;

use crate::ladder::Move;
use crate::{
    Admitted, Allowance, Fence, Holder, IngestPolicy, Reason, Seq, Storage, Task, TombstoneKey,
    TopicId, UnixMillis, Usage,
};

/// Something that changes state, and when. Everything that does goes through the lane as one.
#[derive(Clone, Debug)]
pub struct Command {
    /// The time the rules go by. It is part of the command, so that running a batch again, or in
    /// other splits, decides the same.
    pub at: UnixMillis,
    pub act: Act,
}

#[derive(Clone, Debug)]
pub enum Act {
    /// An event that passed admission.
    Publish(Admitted),
    /// Absolute values for a node-level subscription, so that running it twice is running it once.
    SetTopic {
        topic_id: TopicId,
        name: String,
        enabled: bool,
        pinned: bool,
        wanted: u32,
        ingest_policy: IngestPolicy,
    },
    /// Forgets a topic that holds no events any more.
    RemoveTopic(TopicId),
    /// Takes those of the events out of a topic for which the reason holds; a body goes with its last
    /// link.
    Unlink { topic: TopicId, events: Vec<EventId>, reason: UnlinkReason },
    /// Hides those of the events whose time has come.
    Expire(Vec<EventId>),
    /// Adds up repeated arrivals.
    Sightings(Vec<Sighting>),
    /// Takes events out of all their topics, one after the other, while the node holds more than `to`
    /// and has to give up events at all.
    Evict { events: Vec<EventId>, to: Usage },
    /// Forgets those of the ids that were first seen, and those of the deletions that were asked for,
    /// before a time. What is stored is never forgotten.
    Forget { events: Vec<EventId>, tombstones: Vec<TombstoneKey>, before: UnixMillis },
    /// Lets the feed begin after a row.
    Trim(Seq),
    /// Absolute values for what the node takes in and keeps.
    Allow(Allowance),
    /// Takes a step of the ladder, and keeps the move to tell of it.
    Climb(Move),
    /// Whether the disk has room, by who has looked at it.
    SetStorage(Storage),
    /// Takes or keeps a task for so long, unless another instance has it.
    Hold { task: Task, holder: Holder, lease_ms: u32 },
    /// Gives a task back before its time.
    Release { task: Task, holder: Holder },
    /// Does something if the task is still in the same hands.
    Fenced { task: Task, fence: Fence, act: Box<Act> },
}

impl Act {
    /// The operator wants the node to carry a topic, with the policy that all have.
    pub fn carry(topic_id: TopicId, name: impl Into<String>) -> Self {
        Self::SetTopic {
            topic_id,
            name: name.into(),
            enabled: true,
            pinned: true,
            wanted: 0,
            ingest_policy: IngestPolicy::default(),
        }
    }
}

/// Why events leave a topic. Whoever names the events has read them earlier; whether the reason holds
/// is decided when they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlinkReason {
    /// The operator removed the topic. What loses its last link this way is forgotten by dedupe
    /// too, so that the topic can come back.
    Topic,
    /// The operator does not want to keep what was taken in before a time, whatever it is.
    Before(UnixMillis),
    /// It is older than the topic keeps such events.
    Retention,
    /// The topic holds more than it may, and gives up the oldest for what is new.
    Capacity,
}

impl From<UnlinkReason> for Reason {
    fn from(reason: UnlinkReason) -> Self {
        match reason {
            UnlinkReason::Before(_) | UnlinkReason::Retention => Self::Retention,
            UnlinkReason::Capacity => Self::Capacity,
            UnlinkReason::Topic => Self::Topic,
        }
    }
}

/// An id that came again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub event_id: EventId,
    pub last_seen_at: UnixMillis,
    pub count: u64,
}
