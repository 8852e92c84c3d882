//! Which events are documents. Nothing is searched because it happens to be text: kinds are named,
//! and what is not for everybody is never among them.

use std::collections::BTreeSet;

use kukuri_event::{Event, Kind};

/// Notes, comments, long-form articles, and the titles and texts of pictures and videos.
pub const KINDS_DEFAULT: [Kind; 6] =
    [Kind(1), Kind(20), Kind(21), Kind(1111), Kind(30023), Kind(34235)];

/// Direct messages, seals, gift wraps, group messages, key packages, and key envelopes: ciphertext, or
/// for few. No setting makes them searchable.
const KINDS_NEVER: [Kind; 14] = [
    Kind(4),
    Kind(13),
    Kind(14),
    Kind(15),
    Kind(443),
    Kind(444),
    Kind(445),
    Kind(1059),
    Kind(1060),
    Kind(10050),
    Kind(30078),
    Kind(39020),
    Kind(39021),
    Kind(39022),
];

/// Why a list of kinds cannot be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kind {0} is encrypted or private and is never searched: leave it out of the list")]
pub struct PrivateKind(pub Kind);

/// The kinds that are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(BTreeSet<Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(KINDS_DEFAULT.into())
    }
}

impl Kinds {
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Result<Self, PrivateKind> {
        let kinds: BTreeSet<Kind> = kinds.into_iter().collect();
        match kinds.iter().find(|kind| KINDS_NEVER.contains(kind)) {
            Some(kind) => Err(PrivateKind(*kind)),
            None => Ok(Self(kinds)),
        }
    }

    pub fn contains(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// Whether the event is a document: a kind of the list, and for everybody.
    pub fn admit(&self, event: &Event) -> bool {
        self.contains(event.kind()) && is_public(event)
    }
}

/// A `scope` other than public marks ciphertext for a circle of friends, and `encrypted` any other.
pub(crate) fn is_public(event: &Event) -> bool {
    let tags = event.tags();
    tags.values("scope").all(|scope| scope == "public")
        && tags.values("visibility").all(|visibility| visibility == "public")
        && !tags.iter().any(|tag| tag.name() == "encrypted")
}
