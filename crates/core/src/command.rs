use kukuri_event::EventId;

use crate::{Admitted, IngestPolicy, Reason, TopicId, UnixMillis};

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
    /// Takes events out of a topic; a body goes with its last link.
    Unlink { topic: TopicId, events: Vec<EventId>, reason: UnlinkReason },
    /// Hides those of the events whose time has come.
    Expire(Vec<EventId>),
    /// Adds up repeated arrivals.
    Sightings(Vec<Sighting>),
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

/// Why events leave a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlinkReason {
    Retention,
    Capacity,
    /// The operator removed the topic. What loses its last link this way is forgotten by dedupe
    /// too, so that the topic can come back.
    Topic,
}

impl From<UnlinkReason> for Reason {
    fn from(reason: UnlinkReason) -> Self {
        match reason {
            UnlinkReason::Retention => Self::Retention,
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
