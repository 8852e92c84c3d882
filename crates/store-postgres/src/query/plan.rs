//! Which index a filter is driven along.

use kukuri_core::{TAG_VALUE_INDEXED_BYTES_MAX, TopicId, tag_key};
use kukuri_event::{EventId, TagLetter};
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::Wanted;
use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::packed::tag_value;

pub(super) enum Plan {
    /// The filter cannot match.
    Nothing,
    Ids(Vec<EventId>),
    Scan(Source),
    /// The filter names nothing that an index is sorted by: all topics there are.
    Everywhere,
    AuthorsOrTopics {
        authors: Source,
        topics: Source,
        /// How many rows the topics have, at most.
        topic_rows: usize,
    },
}

/// An index, and the keys to follow in it. What the keys do not say is checked.
#[derive(Debug)]
pub(super) enum Source {
    Topics(Vec<i32>),
    Authors {
        keys: Vec<i64>,
        /// In which of these an event must be; anywhere without them.
        topics: Option<Vec<i32>>,
    },
    Tag {
        keys: Vec<i64>,
        letter: TagLetter,
        values: Vec<Vec<u8>>,
        topics: Option<Vec<i32>>,
    },
}

impl Source {
    pub fn keys(&self) -> Vec<i64> {
        match self {
            Self::Topics(topics) => topics.iter().map(|topic| i64::from(*topic)).collect(),
            Self::Authors { keys, .. } | Self::Tag { keys, .. } => keys.clone(),
        }
    }
}

pub(super) async fn plan(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
) -> Result<Plan, Fault> {
    let topics = match topic_ids(wanted) {
        None => None,
        Some(ids) => Some(numbers.find(connection, &ids.iter().collect::<Vec<_>>()).await?),
    };
    match choose(wanted, topics) {
        Plan::Scan(Source::Authors { keys, topics: Some(topics) }) => {
            authors_or_topics(connection, wanted, keys, topics).await
        }
        plan => Ok(plan),
    }
}

/// A plan for which nothing has to be read, because it is about topics whose numbers are known.
pub(super) fn at_once(numbers: &TopicNumbers, wanted: &Wanted<'_>) -> Option<Plan> {
    let topics = match topic_ids(wanted) {
        None => None,
        Some(ids) => Some(numbers.known(&ids)?),
    };
    Some(choose(wanted, topics))
}

fn choose(wanted: &Wanted<'_>, topics: Option<Vec<i32>>) -> Plan {
    let filter = wanted.filter;
    if wanted.limit == 0 || filter.matches_nothing() || topics.as_ref().is_some_and(Vec::is_empty) {
        return Plan::Nothing;
    }
    if let Some(ids) = &filter.ids {
        return Plan::Ids(ids.iter().copied().collect());
    }
    if let Some((letter, values)) = best_tag(wanted) {
        return Plan::Scan(Source::Tag {
            keys: distinct(values.iter().map(|value| tag_key(letter, value))),
            letter,
            values: values.iter().map(|value| tag_value(value)).collect(),
            topics,
        });
    }
    if let Some(authors) = &filter.authors {
        let keys = distinct(authors.iter().map(|author| author.prefix()));
        return Plan::Scan(Source::Authors { keys, topics });
    }
    topics.map_or(Plan::Everywhere, |topics| Plan::Scan(Source::Topics(topics)))
}

/// The topics of `#t`. Nothing can be linked to what is no topic.
fn topic_ids(wanted: &Wanted<'_>) -> Option<Vec<TopicId>> {
    let topics = wanted.filter.topics()?;
    Some(topics.iter().filter_map(|id| TopicId::parse(id).ok()).collect())
}

/// The tag condition with the fewest values, all of which are in the index.
fn best_tag<'a>(wanted: &'a Wanted<'_>) -> Option<(TagLetter, Vec<&'a str>)> {
    let indexed = wanted.filter.other_tags().filter(|(_, values)| {
        values.iter().all(|value| value.len() <= TAG_VALUE_INDEXED_BYTES_MAX)
    });
    let (letter, values) = indexed.min_by_key(|(_, values)| values.len())?;
    Some((letter, values.iter().map(String::as_str).collect()))
}

async fn authors_or_topics(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
    keys: Vec<i64>,
    topics: Vec<i32>,
) -> Result<Plan, Fault> {
    let rows = sqlx::query(
        "SELECT COALESCE(sum(events), 0)::BIGINT FROM topic_usage WHERE topic_no = ANY($1)",
    );
    let rows: i64 = rows.bind(&topics).fetch_one(connection).await?.try_get(0)?;
    let topic_rows = usize::try_from(rows).unwrap_or(0);
    if topic_rows <= wanted.limit.saturating_mul(2) {
        return Ok(Plan::Scan(Source::Topics(topics)));
    }
    Ok(Plan::AuthorsOrTopics {
        authors: Source::Authors { keys, topics: Some(topics.clone()) },
        topics: Source::Topics(topics),
        topic_rows,
    })
}

/// Two values with one key are one scan.
fn distinct(keys: impl Iterator<Item = i64>) -> Vec<i64> {
    keys.collect::<std::collections::BTreeSet<i64>>().into_iter().collect()
}
