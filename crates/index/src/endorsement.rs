//! Reactions, replies and reposts: what makes an event popular. Each author counts once per sort,
//! however often they say it.

use kukuri_event::{Address, Event, EventId, Kind, Pubkey, Tag};

use crate::document::Target;

/// How somebody endorses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    Reaction,
    Reply,
    Repost,
}

impl Sort {
    /// The number in the column.
    pub const fn code(self) -> i16 {
        match self {
            Self::Reaction => 1,
            Self::Reply => 2,
            Self::Repost => 3,
        }
    }

    pub const fn of_kind(kind: Kind) -> Option<Self> {
        match kind.0 {
            7 => Some(Self::Reaction),
            1 | 1111 => Some(Self::Reply),
            6 | 16 => Some(Self::Repost),
            _ => None,
        }
    }
}

/// One event that endorses another. It is counted while it is visible in any topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endorsement {
    pub target: Target,
    pub author: Pubkey,
    pub sort: Sort,
    pub event_id: EventId,
}

impl Endorsement {
    /// `None` for an event that endorses nothing.
    pub fn of(event: &Event) -> Option<Self> {
        let sort = Sort::of_kind(event.kind())?;
        // NIP-25: a minus is the opposite of a reaction that counts.
        if sort == Sort::Reaction && event.content() == "-" {
            return None;
        }
        let target = address(event).or_else(|| {
            let id = match sort {
                Sort::Reaction => event.tags().event_ids().last(),
                Sort::Repost => event.tags().event_ids().next(),
                Sort::Reply => parent(event),
            };
            id.map(Target::event)
        })?;
        Some(Self { target, author: event.pubkey(), sort, event_id: event.id() })
    }
}

/// An `a` tag names what is meant in all its versions, so it goes before the `e` tag of one. Notes
/// name addresses for other reasons.
fn address(event: &Event) -> Option<Target> {
    let address = (event.kind() != Kind(1)).then(|| event.tags().addresses().last()).flatten();
    address.as_ref().map(|address: &Address| Target::address(address))
}

/// NIP-10: the `e` tag that is marked as what is replied to, else the marked root; without any marks
/// the last one.
fn parent(event: &Event) -> Option<EventId> {
    let tags = || event.tags().iter().filter(|tag| tag.name() == "e");
    let marked = |mark: &str| tags().rev().find(|tag| marker(tag) == Some(mark));
    let any_mark = tags().any(|tag| marker(tag).is_some_and(|mark| !mark.is_empty()));
    let tag = match marked("reply").or_else(|| marked("root")) {
        None if !any_mark => tags().next_back(),
        marked => marked,
    };
    EventId::parse(tag?.value()?).ok()
}

fn marker(tag: &Tag) -> Option<&str> {
    tag.fields().get(3).map(String::as_str)
}
