//! Which events are documents. Nothing is searched because it happens to be text: kinds are named,
//! and what is not for everybody is never among them.

use std::collections::BTreeSet;

use kukuri_event::{Class, Event, Kind};

use crate::text::hash;

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
pub enum KindsError {
    #[error("kind {0} is encrypted or private and is never searched: leave it out of the list")]
    Private(Kind),
    #[error("kind {0} is ephemeral and is never kept: leave it out of the list")]
    Ephemeral(Kind),
    #[error("no kind is named: name at least one")]
    None,
}

/// The kinds that are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(BTreeSet<Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(KINDS_DEFAULT.into())
    }
}

impl Kinds {
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Result<Self, KindsError> {
        let kinds: BTreeSet<Kind> = kinds.into_iter().collect();
        for kind in &kinds {
            if KINDS_NEVER.contains(kind) {
                return Err(KindsError::Private(*kind));
            }
            if kind.class() == Class::Ephemeral {
                return Err(KindsError::Ephemeral(*kind));
            }
        }
        if kinds.is_empty() { Err(KindsError::None) } else { Ok(Self(kinds)) }
    }

    /// Tells lists apart, whatever the order they were written in.
    pub(crate) fn digest(&self) -> u64 {
        let bytes: Vec<u8> = self.0.iter().flat_map(|kind| kind.0.to_be_bytes()).collect();
        hash(&bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_searched_cannot_be_named() {
        for kind in KINDS_NEVER {
            assert_eq!(Kinds::new([Kind(1), kind]), Err(KindsError::Private(kind)));
        }
        for kind in [20_000, 29_999].map(Kind) {
            assert_eq!(Kinds::new([kind]), Err(KindsError::Ephemeral(kind)));
        }
        assert_eq!(Kinds::new([]), Err(KindsError::None));
        assert!(Kinds::new([Kind(19_999), Kind(30_000), Kind(0)]).is_ok());
    }

    #[test]
    fn lists_are_told_apart_by_what_is_in_them() {
        let digest = |kinds: &[u16]| {
            Kinds::new(kinds.iter().copied().map(Kind)).expect("can be named").digest()
        };
        assert_eq!(digest(&[1, 30_023]), digest(&[30_023, 1, 1]));
        assert_ne!(digest(&[1, 30_023]), digest(&[1]));
        assert_ne!(digest(&[1]), digest(&[256]));
    }
}
