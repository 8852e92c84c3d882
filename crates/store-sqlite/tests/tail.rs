//! What is in the tail costs a query what it would cost in the tables.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kukuri_core::{Act, Admitted, Command, TopicId};
use kukuri_event::{EventId, Filter, TagLetter, UnixSeconds, Values};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Query, QueryError, Store, Walk};
use kukuri_store_sqlite::{Options, SqliteStore, Sync};
use tempfile::TempDir;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
/// Events of one second.
const CROWD: u32 = 300;
const CROWDED_AT: UnixSeconds = UnixSeconds(NOW.0 - 1000);

fn event(nth: u32) -> Admitted {
    let draft = Draft::new(1, CROWDED_AT).tag("t", TopicId::global()).tag("x", "crowd");
    Author::numbered(1).admit(&draft.content(nth.to_string()), NOW)
}

/// Newer ones, of somebody else and with a second each: there is no shorter way through the topic.
fn newer(nth: u32) -> Admitted {
    let draft = Draft::new(1, NOW.saturating_sub(i64::from(nth))).tag("t", TopicId::global());
    Author::numbered(2).admit(&draft, NOW)
}

/// A store with a crowded second, which is in the tail or in the tables.
async fn crowded(directory: &TempDir, run_events: usize) -> SqliteStore {
    let options = Options { sync: Sync::OffForTests, run_events, ..Options::standard(1) };
    let store = SqliteStore::open(directory.path(), options).unwrap();
    let crowd = (0..CROWD).map(event).chain((0..CROWD).map(newer)).map(Act::Publish);
    let acts = [Act::carry(TopicId::global(), String::new())].into_iter().chain(crowd);
    let batch: Arc<[Command]> = acts.map(|act| Command { at: NOW.into(), act }).collect();
    store.apply(batch).await.unwrap();
    store
}

fn by(letter: &str, value: &str) -> Filter {
    let letter = TagLetter::parse(letter).unwrap();
    let mut filter = Filter::default();
    filter.tags.insert(TagLetter::TOPIC, Values::from([TopicId::global().to_string()]));
    filter.tags.insert(letter, Values::from([value.to_owned()]));
    filter
}

/// The ids that one is shown, unless it would cost too much.
async fn ask(store: &SqliteStore, filter: &Filter, rows_max: usize) -> Option<Vec<EventId>> {
    let filters = vec![Filter { limit: Some(1), ..filter.clone() }];
    let query = Query { filters, after: None, now: NOW, limit_max: 1, rows_max, bodies_max: 0 };
    match store.query(query).await {
        Ok(found) => Some(found.hits.iter().map(|hit| hit.id).collect()),
        Err(QueryError::TooBroad { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The tail sorted all events of a second for each question, however little of it was asked for, and charged
/// for none of that.
#[tokio::test]
async fn what_is_in_the_tail_is_charged_for() {
    let (in_tail, in_tables) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let stores = [crowded(&in_tail, usize::MAX).await, crowded(&in_tables, 1).await];
    let least = (0..CROWD).map(|nth| event(nth).event().id()).min().unwrap();
    let authors = Some(Values::from([event(0).event().pubkey()]));
    let by_author = Filter { authors, ..by("t", TopicId::global().as_str()) };
    let by_topic = Filter { until: Some(CROWDED_AT), ..by("t", TopicId::global().as_str()) };
    let crowd = CROWD as usize;
    for store in &stores {
        // The ids of a topic are in order.
        assert_eq!(ask(store, &by_topic, 0).await, None);
        assert_eq!(ask(store, &by_topic, 1).await, Some(vec![least]));
        // Whichever of the crowd has the least id, all of it has to be looked at, by one index or the other.
        for filter in [by("x", "crowd"), by_author.clone()] {
            assert_eq!(ask(store, &filter, crowd / 2).await, None);
            assert_eq!(ask(store, &filter, 4 * crowd).await, Some(vec![least]));
        }
        // A walk goes on in the middle of the second, for what it finds and no more.
        let mut walk = Walk::new(by_topic.clone(), NOW, 22);
        let mut ids = Vec::new();
        while let Some(page) = walk.next(store).await.unwrap() {
            ids.extend(page.iter().map(|hit| hit.id));
        }
        assert_eq!((ids.len(), ids.is_sorted()), (crowd, true));
    }
}
