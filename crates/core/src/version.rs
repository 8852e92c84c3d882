//! Replaceable and addressable events: the key that versions share, and the mark of its winner.

use std::sync::Arc;

use kukuri_event::{Body, Class, Event, EventId, Kind, Pubkey, UnixSeconds};

use crate::feed::coded;

/// The key (kind, pubkey, d) that versions share; `d` is empty for replaceable kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionKey {
    pub kind: Kind,
    pub pubkey: Pubkey,
    pub d: String,
}

impl VersionKey {
    /// `None` for events that have no versions.
    pub fn of(event: &Event) -> Option<Self> {
        let d = match event.kind().class() {
            Class::Replaceable => "",
            Class::Addressable => event.tags().d().unwrap_or_default(),
            Class::Regular | Class::Ephemeral => return None,
        };
        Some(Self { kind: event.kind(), pubkey: event.pubkey(), d: d.to_owned() })
    }

    /// `kind:pubkey:d`, as an `a` tag writes it.
    pub fn to_text(&self) -> String {
        format!("{}:{}:{}", self.kind, self.pubkey, self.d)
    }
}

coded!(
    /// What became of a winner.
    MarkState {
        Effective = 1 "effective",
        Deleted = 2 "deleted",
        Expired = 3 "expired",
        /// Its topic was removed. It may come back with the topic.
        Purged = 4 "purged",
        /// No longer kept, by retention or capacity. It never comes back.
        Evicted = 5 "evicted",
    }
);

/// The greatest version ever seen of a key: newest `created_at`, then smallest id. The mark stays
/// when the event goes, so that an older version never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub created_at: UnixSeconds,
    pub event_id: EventId,
    pub state: MarkState,
}

impl Mark {
    /// Whether `event` is a greater version than the marked one.
    pub fn is_beaten_by(&self, event: &Event) -> bool {
        (event.created_at(), std::cmp::Reverse(event.id()))
            > (self.created_at, std::cmp::Reverse(self.event_id))
    }
}

/// What is known of a key. A row without a mark says only until when versions are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    pub mark: Option<Mark>,
    /// Versions not newer than this are deleted (kind 5 by `a`).
    pub deleted_until: Option<UnixSeconds>,
    /// The winner's event while it is effective; it outlives dropped partitions.
    pub body: Option<Arc<Body>>,
}
