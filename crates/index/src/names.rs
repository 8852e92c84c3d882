//! Topics by what people call them: their ids are hashes. Names are few and short, are known to every
//! process and belong to no feed, so they are kept in memory; their words are made by the same functions as
//! those of events. Other than in texts, a word is found by its beginning: people look while they type.

mod cursor;

use kukuri_core::{Mapping, NetworkId, TopicId};

use crate::cursor::CursorError;
use crate::fold::fold;
use crate::query::{QUERY_CHARS_MAX, QueryError};
use crate::text::hash;
use crate::units::Units;

pub use cursor::NameCursor;

/// Names are in the order of so many bytes of them, folded.
const KEY_BYTES_MAX: usize = 64;

/// A topic as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTopic {
    pub topic_id: TopicId,
    /// Empty when nobody has named it.
    pub name: String,
}

/// The names of some topics.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    topic: NamedTopic,
    units: Vec<String>,
    key: String,
}

/// How well a name fits; those that fit best come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// What was asked for is this very topic.
    Same = 0,
    /// The name begins with it.
    Beginning = 1,
    /// It is somewhere in the name.
    Inside = 2,
}

/// What somebody looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuery {
    /// The ids that the text is the name of, or that it is itself.
    ids: Vec<TopicId>,
    /// All units of the text, and those of each word.
    whole: Vec<String>,
    words: Vec<Vec<String>>,
}

impl NameQuery {
    pub fn parse(text: &str, network: &NetworkId) -> Result<Self, QueryError> {
        if text.chars().nth(QUERY_CHARS_MAX).is_some() {
            return Err(QueryError::TooLong);
        }
        if text.trim().is_empty() {
            return Err(QueryError::Empty);
        }
        let mappings = [Mapping::V1, Mapping::V2].into_iter();
        let ids = mappings.filter_map(|mapping| TopicId::from_name(text, network, mapping).ok());
        let words = text.split_whitespace().map(units).filter(|word| !word.is_empty());
        Ok(Self { ids: ids.collect(), whole: units(text), words: words.collect() })
    }

    fn fit(&self, entry: &Entry) -> Option<Fit> {
        let named = !self.whole.is_empty() && self.whole == entry.units;
        if named || self.ids.contains(&entry.topic.topic_id) {
            return Some(Fit::Same);
        }
        if self.words.is_empty() || !self.words.iter().all(|word| stands_in(word, &entry.units)) {
            return None;
        }
        Some(if begins(&self.whole, &entry.units) { Fit::Beginning } else { Fit::Inside })
    }

    /// Tells questions apart: a cursor belongs to one of them.
    fn digest(&self) -> u64 {
        let ids = self.ids.iter().map(TopicId::as_str);
        let parts = ids.chain(self.whole.iter().map(String::as_str));
        parts.fold(0, |digest, part| hash(format!("{digest} {part}").as_bytes()))
    }
}

/// Topics in their order, and where to go on if there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePage {
    pub topics: Vec<NamedTopic>,
    pub next: Option<NameCursor>,
}

impl Names {
    pub fn new(topics: impl IntoIterator<Item = NamedTopic>) -> Self {
        let entry =
            |topic: NamedTopic| Entry { units: units(&topic.name), key: key(&topic.name), topic };
        Self(topics.into_iter().map(entry).collect())
    }

    /// Those that fit, the best first and otherwise in the order of names; all of them if nothing is
    /// looked for, the nameless ones last.
    pub fn find(
        &self,
        query: Option<&NameQuery>,
        after: Option<&NameCursor>,
        topics_max: usize,
    ) -> Result<NamePage, CursorError> {
        let digest = query.map_or(0, NameQuery::digest);
        if after.is_some_and(|cursor| cursor.digest != digest) {
            return Err(CursorError::OtherQuestion);
        }
        let place = |entry: &Entry| {
            let class = match query {
                Some(query) => query.fit(entry)? as u8,
                None => u8::from(entry.topic.name.is_empty()),
            };
            let topic_id = entry.topic.topic_id.clone();
            Some(NameCursor { digest, class, key: entry.key.clone(), topic_id })
        };
        let found = self.0.iter().filter_map(|entry| Some((place(entry)?, &entry.topic)));
        let mut found: Vec<(NameCursor, &NamedTopic)> =
            found.filter(|(place, _)| after.is_none_or(|after| place > after)).collect();
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let more = found.len() > topics_max;
        found.truncate(topics_max);
        let next = found.last().filter(|_| more).map(|(place, _)| place.clone());
        Ok(NamePage { topics: found.into_iter().map(|(_, topic)| topic.clone()).collect(), next })
    }
}

fn units(text: &str) -> Vec<String> {
    let units = Units::of(text);
    units.list.iter().map(|unit| units.text(unit).to_owned()).collect()
}

fn key(name: &str) -> String {
    let mut key = String::new();
    for glyph in fold(name) {
        if key.len() + glyph.char.len_utf8() > KEY_BYTES_MAX {
            break;
        }
        key.push(glyph.char);
    }
    key
}

/// Whether a name begins with these units, of which the last may go on.
fn begins(sought: &[String], name: &[String]) -> bool {
    let Some((last, before)) = sought.split_last() else { return false };
    name.len() >= sought.len()
        && name.starts_with(before)
        && name[before.len()].starts_with(last.as_str())
}

fn stands_in(word: &[String], name: &[String]) -> bool {
    (0..name.len()).any(|from| begins(word, &name[from..]))
}
