//! A document: one event in one topic, as the search sees it.

use std::sync::Arc;

use kukuri_core::{Seq, TopicId, VersionKey};
use kukuri_event::{Address, Event, EventId, Pubkey, UnixSeconds};

use crate::fold::fold;
use crate::query::mention_term;
use crate::text::{Text, TextMaker, hash, hashtag_term};
use crate::units::tag;

/// Bits of a number that tell apart documents of one second.
pub(crate) const SAME_SECOND_BITS: u32 = 29;
const SAME_SECOND_MASK: u64 = (1 << SAME_SECOND_BITS) - 1;
/// Times that a number can hold: until the year 2514.
const SECONDS_MAX: i64 = (1 << (63 - SAME_SECOND_BITS)) - 1;
/// How many numbers a document may have: if the first is taken, it gets the next one.
pub const NUMBERS_PER_DOCUMENT: u8 = 8;

/// Tags whose text is searched before the content: titles, subjects and summaries.
pub(crate) const TEXT_TAGS: [&str; 4] = ["title", "subject", "summary", "alt"];

/// Hashtags and mentions of a document that are searched.
const TAGS_MAX: usize = 64;

/// What a document is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    pub event_id: EventId,
    pub topic_id: TopicId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub key: DocumentKey,
    pub created_at: UnixSeconds,
    /// The feed row that put it there.
    pub seq: Seq,
    /// What others endorse when they mean it.
    pub target: Target,
    pub text: Arc<Text>,
}

/// The place of a document in the order of time: later ones are greater, and documents of one second
/// are in an order that everybody finds again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub i64);

impl Number {
    /// The numbers a document may have, the first one preferred.
    pub fn choices(
        created_at: UnixSeconds,
        key: &DocumentKey,
    ) -> [Number; NUMBERS_PER_DOCUMENT as usize] {
        let second = Self::second(created_at);
        // Each has a place of its own: who looks for documents that want one place finds none that want eight.
        std::array::from_fn(|step| {
            let parts =
                [&[step as u8][..], key.event_id.as_bytes(), key.topic_id.as_str().as_bytes()];
            let place = hash(&parts.concat()) & SAME_SECOND_MASK;
            Self(second | place as i64)
        })
    }

    /// Before every document of that second.
    pub fn start_of(time: UnixSeconds) -> Number {
        Self(Self::second(time))
    }

    fn second(time: UnixSeconds) -> i64 {
        time.0.clamp(0, SECONDS_MAX) << SAME_SECOND_BITS
    }
}

/// What an endorsement is of: an event, or every version of an addressable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(pub [u8; 32]);

impl Target {
    pub fn event(id: EventId) -> Self {
        Self(*id.as_bytes())
    }

    pub fn address(address: &Address) -> Self {
        Self::version(address.kind.0, &address.pubkey, &address.d)
    }

    /// What an event is endorsed as.
    pub fn of(event_id: EventId, key: Option<&VersionKey>) -> Self {
        match key {
            Some(key) => Self::version(key.kind.0, &key.pubkey, &key.d),
            None => Self::event(event_id),
        }
    }

    fn version(kind: u16, pubkey: &Pubkey, d: &str) -> Self {
        Self(*blake3::hash(format!("{kind}:{pubkey}:{d}").as_bytes()).as_bytes())
    }

    /// Its first eight bytes: indexes carry them in place of the whole.
    pub fn prefix(&self) -> i64 {
        let (first, _) = self.0.split_first_chunk().expect("a target has 32 bytes");
        i64::from_be_bytes(*first)
    }
}

/// The text of an event: its titles, its hashtags, its content, and whom it mentions. Topic ids are
/// `t` tags too, but no words: a search is always within topics.
pub fn text_of(event: &Event) -> Text {
    let mut text = TextMaker::default();
    let tags = event.tags();
    for name in TEXT_TAGS {
        tags.values(name).take(1).for_each(|value| text.field(value));
    }
    text.field(event.content());
    let hashtags = tags.values("t").filter(|value| TopicId::parse(value).is_err());
    for value in hashtags.take(TAGS_MAX) {
        let term = hashtag_term(&tag(&fold(value)));
        if term.len() > 1 && !text.has(&term) {
            text.term(&term);
            text.field(value);
        }
    }
    let mentions = tags.values("p").filter_map(|value| Pubkey::parse(value).ok());
    mentions.take(TAGS_MAX).for_each(|key| text.term(&mention_term(&key)));
    text.finish()
}
