//! What a store holds of an event.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_event::{Body, Class, Event, EventId, Kind, Pubkey, TagLetter, UnixSeconds};

use crate::feed::coded;
use crate::{NodeTopic, Retention, Seq, TAG_VALUE_INDEXED_BYTES_MAX, TopicId, UnixMillis};

coded!(
    /// Whether a stored event is visible, and if not, why.
    State {
        Effective = 1 "effective",
        Superseded = 2 "superseded",
        Deleted = 3 "deleted",
        Expired = 4 "expired",
    }
);

coded!(
    /// How a stored event leaves: with a whole partition, or one by one. Fixed when it is taken in.
    Keep {
        Standard = 0 "standard",
        Longer = 1 "longer",
    }
);

impl Keep {
    /// Regular events of topics without a longer retention than the node's leave by the partition; kind 5,
    /// versions and events of longer-kept topics one by one.
    pub fn of<'a>(
        event: &Event,
        topics: impl IntoIterator<Item = &'a NodeTopic>,
        retention: &Retention,
    ) -> Self {
        let longer = topics.into_iter().any(|topic| {
            topic.ingest_policy.retention_days.is_some_and(|days| days > retention.regular_days)
        });
        let regular = event.kind().class() == Class::Regular && event.kind() != Kind::DELETION;
        if regular && !longer { Self::Standard } else { Self::Longer }
    }
}

/// A topic an event is linked to, and the feed row that linked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub topic: TopicId,
    pub seq: Seq,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of its first feed row, by which indexes refer to it.
    pub seq: Seq,
    pub body: Arc<Body>,
    pub ingested_at: UnixMillis,
    pub keep: Keep,
    pub state: State,
    /// Sorted by topic, never empty. A hidden event keeps its links until it is purged.
    pub links: Vec<Link>,
    /// Topics that did not keep it while others did, sorted. It is not linked to them again.
    pub left: Vec<TopicId>,
}

impl Record {
    pub fn event(&self) -> &Event {
        self.body.event()
    }

    pub fn is_effective(&self) -> bool {
        self.state == State::Effective
    }

    pub fn topics(&self) -> impl Iterator<Item = &TopicId> {
        self.links.iter().map(|link| &link.topic)
    }

    pub fn link(&self, topic: &TopicId) -> Option<&Link> {
        self.links.iter().find(|link| link.topic == *topic)
    }

    /// Whether it may be linked to a topic: it is not, and was not taken out of it.
    pub fn may_join(&self, topic: &TopicId) -> bool {
        self.link(topic).is_none() && self.left.binary_search(topic).is_err()
    }

    /// What the event counts for in its topics.
    pub fn bytes(&self) -> u64 {
        self.body.json().len() as u64
    }

    pub fn expires_at(&self) -> Option<UnixSeconds> {
        self.event().tags().expiration()
    }

    /// The tag values by which the event can be found while it is effective.
    pub fn indexed_tags(&self) -> BTreeSet<(TagLetter, &str)> {
        let tags = self.event().tags().letters();
        tags.filter(|(letter, value)| {
            *letter != TagLetter::TOPIC && value.len() <= TAG_VALUE_INDEXED_BYTES_MAX
        })
        .collect()
    }
}

/// Stands for a tag and its value in an index: short, and such that nobody can fill the range of
/// another tag with tags that only look like it. Tags that share a key are told apart by the event.
pub fn tag_key(letter: TagLetter, value: &str) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[letter.as_byte()]).update(value.as_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    i64::from_be_bytes(first)
}

/// That an id was seen and answered OK true. It outlives the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dedupe {
    pub first_seen_at: UnixMillis,
    pub last_seen_at: UnixMillis,
    pub seen_count: u64,
    /// The number of the stored event; none for a version that was stale when it came.
    pub seq: Option<Seq>,
}

impl Dedupe {
    /// That an id came for the first time.
    pub fn once(at: UnixMillis, seq: Option<Seq>) -> Self {
        Self { first_seen_at: at, last_seen_at: at, seen_count: 1, seq }
    }

    /// What is remembered of a stored event that came once: its record tells all of it.
    pub fn of(record: &Record) -> Self {
        Self::once(record.ingested_at, Some(record.seq))
    }
}

/// A deletion is of one author's event: nobody can delete, before or after, what is not theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TombstoneKey {
    pub target: EventId,
    pub pubkey: Pubkey,
}

/// That the author asked for the deletion of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub deletion_event_id: EventId,
    pub requested_at: UnixSeconds,
    /// When the last request for it was taken in, or the date of what it refused, if that is later: from then
    /// on it is kept for its time.
    pub recorded_at: UnixMillis,
    /// When it first hid or refused its target.
    pub applied_at: Option<UnixMillis>,
}

/// What stored bodies add up to, hidden ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub events: u64,
    pub bytes: u64,
}

impl Usage {
    pub fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, bytes: u64) {
        self.events = self.events.checked_sub(1).expect("what leaves a topic was counted in it");
        self.bytes = self.bytes.checked_sub(bytes).expect("what leaves a topic was counted in it");
    }
}
