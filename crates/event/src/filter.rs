//! NIP-01 filters, and the one function that says what "matches" means.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{Conditions, Event, EventId, Kind, Pubkey, TagLetter, UnixSeconds, Values};

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(pub String);

/// One NIP-01 filter. A list that is present and empty matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub ids: Option<Values<EventId>>,
    pub authors: Option<Values<Pubkey>>,
    pub kinds: Option<Values<Kind>>,
    /// `#x` conditions; `#t` among them.
    pub tags: Conditions<TagLetter, String>,
    pub since: Option<UnixSeconds>,
    pub until: Option<UnixSeconds>,
    /// How many of the newest stored events are wanted; no bound on what is sent live.
    pub limit: Option<usize>,
}

impl Filter {
    /// Whether no event can match: a condition with an empty list matches nothing, and nothing is
    /// both older and newer.
    pub fn matches_nothing(&self) -> bool {
        self.ids.as_ref().is_some_and(|ids| ids.is_empty())
            || self.authors.as_ref().is_some_and(|authors| authors.is_empty())
            || self.kinds.as_ref().is_some_and(|kinds| kinds.is_empty())
            || self.tags.iter().any(|(_, values)| values.is_empty())
            || self.since.zip(self.until).is_some_and(|(since, until)| since > until)
    }

    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::parse_with(text, |_, _| false)
    }

    /// Reads a filter that may have fields of an extension. `extra` is asked about each field that
    /// NIP-01 does not name and says whether it understands it.
    pub fn parse_with(
        text: &str,
        extra: impl FnMut(&str, &RawValue) -> bool,
    ) -> Result<Self, FilterError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let filter = deserializer.deserialize_map(FilterVisitor(extra));
        let filter = filter.and_then(|filter| deserializer.end().map(|()| filter));
        filter.map_err(|error| FilterError(error.to_string()))
    }

    /// The text that [`Self::parse`] reads.
    pub fn to_json(&self) -> String {
        let mut fields = serde_json::Map::new();
        if let Some(ids) = &self.ids {
            fields.insert("ids".into(), ids.iter().map(EventId::to_hex).collect());
        }
        if let Some(authors) = &self.authors {
            fields.insert("authors".into(), authors.iter().map(Pubkey::to_hex).collect());
        }
        if let Some(kinds) = &self.kinds {
            fields.insert("kinds".into(), kinds.iter().map(|kind| kind.0).collect());
        }
        for (letter, values) in self.tags.iter() {
            let values = values.iter().map(String::as_str).collect();
            fields.insert(format!("#{}", letter.as_char()), values);
        }
        let numbers = [("since", self.since.map(|t| t.0)), ("until", self.until.map(|t| t.0))];
        fields.extend(numbers.into_iter().filter_map(|(key, n)| Some((key.into(), n?.into()))));
        fields.extend(self.limit.map(|limit| ("limit".into(), limit.into())));
        serde_json::Value::from(fields).to_string()
    }

    /// The conditions on the fields every event has once; all but tags.
    pub fn admits(&self, id: EventId, pubkey: Pubkey, kind: Kind, created_at: UnixSeconds) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(&id))
            && self.authors.as_ref().is_none_or(|authors| authors.contains(&pubkey))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
            && self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at <= until)
    }

    /// How many values its conditions name, all together.
    pub fn values(&self) -> usize {
        self.ids.as_ref().map_or(0, |ids| ids.len())
            + self.authors.as_ref().map_or(0, |authors| authors.len())
            + self.kinds.as_ref().map_or(0, |kinds| kinds.len())
            + self.tags.iter().map(|(_, values)| values.len()).sum::<usize>()
    }

    /// The topics the filter asks for, if it has a `#t` condition.
    pub fn topics(&self) -> Option<&Values<String>> {
        self.tags.get(TagLetter::TOPIC)
    }

    /// The conditions on single-letter tags other than `t`.
    pub fn other_tags(&self) -> impl Iterator<Item = (TagLetter, &Values<String>)> {
        self.tags.iter().filter(|(letter, _)| *letter != TagLetter::TOPIC)
    }
}

/// The definition of "matches": `#t` is tested against the topics the event is linked to,
/// everything else against the event.
pub fn matches<L: AsRef<str>>(filter: &Filter, event: &Event, links: &[L]) -> bool {
    let linked =
        |topics: &Values<String>| links.iter().any(|topic| topics.contains(topic.as_ref()));
    filter.admits(event.id(), event.pubkey(), event.kind(), event.created_at())
        && filter.topics().is_none_or(linked)
        && tags_match(filter, event)
}

/// The conditions on tags other than `t`. Part of [`matches`], for stores whose indexes answer for
/// the rest.
pub fn tags_match(filter: &Filter, event: &Event) -> bool {
    filter.other_tags().all(|(letter, wanted)| {
        event.tags().letters().any(|(name, value)| name == letter && wanted.contains(value))
    })
}

/// Whether any filter of a group matches.
pub fn matches_any<L: AsRef<str>>(filters: &[Filter], event: &Event, links: &[L]) -> bool {
    filters.iter().any(|filter| matches(filter, event, links))
}

struct FilterVisitor<X>(X);

impl<'de, X: FnMut(&str, &RawValue) -> bool> Visitor<'de> for FilterVisitor<X> {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Filter, A::Error> {
        let mut filter = Filter::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "ids" => {
                    once(&mut filter.ids, &key, hex_list(map.next_value()?, &key, EventId::parse)?)?
                }
                "authors" => {
                    once(
                        &mut filter.authors,
                        &key,
                        hex_list(map.next_value()?, &key, Pubkey::parse)?,
                    )?;
                }
                "kinds" => {
                    let kinds: Vec<u16> = map.next_value()?;
                    once(&mut filter.kinds, &key, kinds.into_iter().map(Kind).collect())?;
                }
                "since" => once(&mut filter.since, &key, UnixSeconds(map.next_value()?))?,
                "until" => once(&mut filter.until, &key, UnixSeconds(map.next_value()?))?,
                "limit" => once(&mut filter.limit, &key, map.next_value()?)?,
                _ => {
                    // A condition we do not know must not be skipped: the answer would hold events
                    // that nobody asked for.
                    let Some(letter) = key.strip_prefix('#').and_then(TagLetter::parse) else {
                        let value: &RawValue = map.next_value()?;
                        if (self.0)(&key, value) {
                            continue;
                        }
                        return Err(de::Error::custom(format!("unknown filter field {key:?}")));
                    };
                    let values: Values<String> = map.next_value()?;
                    if filter.tags.insert(letter, values).is_some() {
                        return Err(de::Error::custom(format!("duplicate filter field {key:?}")));
                    }
                }
            }
        }
        Ok(filter)
    }
}

fn once<T, E: de::Error>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), E> {
    if slot.replace(value).is_some() {
        return Err(E::custom(format!("duplicate filter field {key:?}")));
    }
    Ok(())
}

fn hex_list<T: Ord, E: de::Error, X>(
    texts: Vec<String>,
    key: &str,
    parse: fn(&str) -> Result<T, X>,
) -> Result<Values<T>, E> {
    let parsed: Result<Values<T>, X> = texts.iter().map(|text| parse(text)).collect();
    parsed.map_err(|_| E::custom(format!("{key} must be lists of 64 lowercase hex digits")))
}
