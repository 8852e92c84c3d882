//! Which index to read for a filter.

use kukuri_core::{TAG_VALUE_INDEXED_BYTES_MAX, TopicId, tag_key};
use kukuri_event::{EventId, Filter};
use kukuri_store::StoreError;

use super::check::Scene;
use crate::error::OrStore;
use crate::facts;
use crate::page::collect;

/// With more authors than this, reading their topics is the better start.
const AUTHORS_MAX: usize = 64;
/// Topics that together hold no more events than this are read whole before authors are tried.
const SMALL_TOPIC_EVENTS: u64 = 1000;

pub(super) enum Plan {
    Ids(Vec<EventId>),
    /// Streams that each give events newest first.
    Ordered(Vec<Stream>),
}

/// One range of one index, newest first.
pub(super) enum Stream {
    Topic(i64),
    /// With the bodies, for a filter that every event of the topic matches.
    TopicBodies(i64),
    Tag(i64),
    Author(i64),
}

/// What an answer is wanted to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bring {
    Hits,
    Bodies,
}

/// The topics a filter asks for, or all of them.
pub(super) struct Topics {
    pub numbers: Vec<i64>,
    events: u64,
}

pub(super) fn topics(scene: &mut Scene<'_>, filter: &Filter) -> Result<Topics, StoreError> {
    let Some(wanted) = filter.topics() else {
        let all = collect(scene.conn, "SELECT topic_no, events FROM topic_usage", [], |row| {
            Ok((row.get::<_, i64>(0).or_store()?, row.get::<_, i64>(1).or_store()?))
        })?;
        let events = all.iter().map(|(_, events)| events.unsigned_abs()).sum();
        return Ok(Topics { numbers: all.into_iter().map(|(no, _)| no).collect(), events });
    };
    let mut topics = Topics { numbers: Vec::with_capacity(wanted.len()), events: 0 };
    // A value that is no topic id links to nothing.
    for topic in wanted.iter().filter_map(|text| TopicId::parse(text).ok()) {
        if let Some(topic_no) = scene.numbers.find(scene.conn, &topic)? {
            topics.events += facts::load_usage(scene.conn, topic_no)?.unwrap_or_default().events;
            topics.numbers.push(topic_no);
        }
    }
    Ok(topics)
}

/// Plans worth trying, the most selective first; never empty.
pub(super) fn plans(filter: &Filter, topics: &Topics, bring: Bring) -> Vec<Plan> {
    if let Some(ids) = &filter.ids {
        return vec![Plan::Ids(ids.iter().copied().collect())];
    }
    if let (Bring::Bodies, Some(stream)) = (bring, with_bodies(filter, topics)) {
        return vec![Plan::Ordered(vec![stream])];
    }
    let by_topic = Plan::Ordered(topics.numbers.iter().copied().map(Stream::Topic).collect());
    let by_author = filter.authors.as_ref().map(|authors| {
        Plan::Ordered(authors.iter().map(|author| Stream::Author(author.prefix())).collect())
    });
    let few = filter.authors.as_ref().is_some_and(|authors| authors.len() <= AUTHORS_MAX);
    let mut plans: Vec<Plan> = by_tag(filter).into_iter().collect();
    if few && topics.events > SMALL_TOPIC_EVENTS {
        plans.extend(by_author);
        plans.push(by_topic);
    } else {
        plans.push(by_topic);
        plans.extend(by_author);
    }
    plans
}

/// The stream of a filter that asks for one topic and nothing else. With any other condition, bodies
/// would be read of events that do not match.
fn with_bodies(filter: &Filter, topics: &Topics) -> Option<Stream> {
    let [topic_no] = topics.numbers[..] else { return None };
    let plain =
        filter.kinds.is_none() && filter.authors.is_none() && filter.other_tags().next().is_none();
    plain.then_some(Stream::TopicBodies(topic_no))
}

/// The tag condition with the fewest values, of those that the index holds.
fn by_tag(filter: &Filter) -> Option<Plan> {
    let indexed = filter.other_tags().filter(|(_, values)| {
        values.iter().all(|value| value.len() <= TAG_VALUE_INDEXED_BYTES_MAX)
    });
    let (letter, values) = indexed.min_by_key(|(_, values)| values.len())?;
    let streams = values.iter().map(|value| Stream::Tag(tag_key(letter, value)));
    Some(Plan::Ordered(streams.collect()))
}
