//! Finding: what is visible is found by what it names.

use kukuri_core::Record;
use kukuri_event::{EventId, Filter, TagLetter, UnixSeconds};
use kukuri_store::{Query, QueryError, Store, StoreError};

use super::finding::{Findings, REBUILD, Subject};

const CHECK: &str = "index";

/// Of an event with more tags, so many are asked for.
const TAGS_MAX: usize = 16;

/// Events of one second that an answer tells. Where there are more, the event need not be among them.
const HITS_MAX: usize = 1000;
const ROWS_MAX: usize = 100_000;

/// Something by which an event has to be found.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    event: EventId,
    /// What it is found by, in words that do not tell what the event says.
    by: String,
    filter: Filter,
}

/// Every way to a visible event that leads along an index.
pub fn questions(record: &Record) -> Vec<Question> {
    let (event, mut questions) = (record.event(), Vec::new());
    if !record.is_effective() {
        return questions;
    }
    let mut add = |by: String, filter: Filter| {
        questions.push(Question { event: event.id(), by, filter });
    };
    add("its id".into(), Filter { ids: Some(vec![event.id()].into()), ..Filter::default() });
    let moment = Some(event.created_at());
    let then = || Filter { since: moment, until: moment, ..Filter::default() };
    let in_topic = |topic: &str| {
        let mut filter = then();
        filter.tags.insert(TagLetter::TOPIC, vec![topic.to_owned()].into());
        filter
    };
    for topic in record.topics() {
        add(format!("topic {topic}"), in_topic(topic.as_str()));
    }
    let authors = Some(vec![event.pubkey()].into());
    add("its author".into(), Filter { authors, ..then() });
    if let Some(topic) = record.topics().next() {
        for (letter, value) in record.indexed_tags().into_iter().take(TAGS_MAX) {
            let mut filter = in_topic(topic.as_str());
            filter.tags.insert(letter, vec![value.to_owned()].into());
            add(format!("a tag {}", letter.as_char()), filter);
        }
    }
    questions
}

/// Asks. What expires meanwhile is asked for as well.
pub async fn ask(
    store: &dyn Store,
    question: Question,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let Question { event, by, filter } = question;
    let query = Query {
        filters: vec![filter],
        after: None,
        now: UnixSeconds(i64::MIN),
        limit_max: HITS_MAX,
        rows_max: ROWS_MAX,
        bodies_max: 0,
    };
    match store.query(query).await {
        Ok(answer) => {
            let is_full = answer.hits.len() >= HITS_MAX;
            if !is_full && answer.hits.iter().all(|hit| hit.id != event) {
                let problem = format!("it is visible, and not found by {by}");
                findings.add(CHECK, Subject::Event(event), problem, REBUILD);
            }
            Ok(())
        }
        // Too many events are alike to tell.
        Err(QueryError::TooBroad { .. }) => Ok(()),
        Err(QueryError::Store(error)) => Err(error),
    }
}
