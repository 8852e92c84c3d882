//! What an index abbreviates is compared in full, and what a query may cost is counted.

use kukuri_core::{Act, ReadSet, Seq};
use kukuri_event::Filter;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Query, QueryError, Store};

use crate::rig::{self, NOW, apply, found, jsons, note, notes, publish, query, store, topic};

/// Rows whose abbreviations are equal are told apart, and none is skipped where a stretch ends among
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn equal_abbreviations_are_told_apart() {
    let cluster = rig::cluster();
    let (store, name) = store(&cluster).await;
    let of = |author: u32, nth: i64| {
        let draft = Draft::new(1, NOW).tag("t", topic()).tag("r", format!("{author}"));
        Author::numbered(author).admit(&draft.content(nth.to_string()), NOW)
    };
    let mut events: Vec<_> = (0..60).map(|nth| of(1 + nth % 2, i64::from(nth))).collect();
    publish(&store, &events).await.unwrap();
    let collide = "SET search_path = cn_relay; UPDATE event_topics SET tie = 0, author = 0;
        UPDATE event_tags SET tie = 0, key = 0";
    cluster.sql(&name, collide).unwrap();
    events.sort_by_key(|event| std::cmp::Reverse(event.event().id()));
    let all = format!(r##"{{"#t":["{}"]}}"##, topic());
    assert_eq!(found(&store, &all).await, jsons(&events));
    for limit in [1, 7, 59] {
        let some = format!(r##"{{"#t":["{}"],"limit":{limit}}}"##, topic());
        assert_eq!(found(&store, &some).await, jsons(&events)[..limit]);
    }
    // The key that filters look for is no longer that of any row, so nothing is found by it: what is
    // found by a key of zero is what the author or the tag says in full.
    let by_one =
        format!(r##"{{"#t":["{}"],"authors":["{}"]}}"##, topic(), Author::numbered(1).pubkey());
    let of_one: Vec<_> = events
        .iter()
        .filter(|e| e.event().pubkey() == Author::numbered(1).pubkey())
        .cloned()
        .collect();
    let prefix = Author::numbered(1).pubkey().prefix();
    cluster.sql(&name, &format!("UPDATE cn_relay.event_topics SET author = {prefix}")).unwrap();
    assert_eq!(found(&store, &by_one).await, jsons(&of_one));
    let id = events[7].event().id();
    cluster.sql(&name, &format!("UPDATE cn_relay.event_dedupe SET id = {}", id.prefix())).unwrap();
    let by_id = format!(r#"{{"ids":["{id}"]}}"#);
    assert_eq!(found(&store, &by_id).await, jsons(&events[7..8]));
    let needs = ReadSet { events: [id].into(), ..ReadSet::default() };
    let facts = store.facts(needs).await.unwrap();
    assert_eq!(facts.records[&id].as_ref().unwrap().event().id(), id);
    assert_eq!(facts.dedupe.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_is_counted_to_the_row() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    publish(&store, &notes(1, 10)).await.unwrap();
    let none = format!(r##"{{"#t":["{}"],"kinds":[7]}}"##, topic());
    assert_eq!(store.query(query(&none, 10)).await.unwrap().hits, []);
    let refused = store.query(query(&none, 9)).await;
    assert_eq!(refused, Err(QueryError::TooBroad { rows_max: 9 }));
    let five = format!(r##"{{"#t":["{}"],"limit":5}}"##, topic());
    assert_eq!(store.query(query(&five, 5)).await.unwrap().hits.len(), 5);
    // Both filters together may cost as much.
    let both = Query {
        filters: vec![Filter::parse(&none).unwrap(), Filter::parse(&five).unwrap()],
        ..query(&none, 14)
    };
    assert_eq!(store.query(both.clone()).await, Err(QueryError::TooBroad { rows_max: 14 }));
    assert_eq!(store.query(Query { rows_max: 15, ..both }).await.unwrap().hits.len(), 5);
}

/// What was read in vain to answer at once is paid for like everything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_vain_first_try_is_counted() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    let old = Draft::new(7, kukuri_event::UnixSeconds(NOW.0 - 20_000)).tag("t", topic());
    let old = Author::numbered(1).admit(&old, NOW);
    publish(&store, std::slice::from_ref(&old)).await.unwrap();
    publish(&store, &notes(1, 40)).await.unwrap();
    // The first try reads four rows for each hit that is wanted, the second one all of them.
    let rows = 4 * 5 + 41;
    let filter = format!(r##"{{"#t":["{}"],"kinds":[7],"limit":5}}"##, topic());
    let hits = store.query(query(&filter, rows)).await.unwrap().hits;
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [old.event().id()]);
    let refused = store.query(query(&filter, rows - 1)).await;
    assert_eq!(refused, Err(QueryError::TooBroad { rows_max: rows - 1 }));
}

/// An author of much in another topic is not read to the end for a topic that holds little.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_author_is_found_in_a_quiet_topic() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    let quiet = kukuri_core::TopicId::global();
    let enable = Act::carry(quiet.clone(), "");
    apply(&store, NOW.into(), vec![enable]).await.unwrap();
    let old = Draft::new(1, kukuri_event::UnixSeconds(NOW.0 - 20_000)).tag("t", &quiet);
    let old = Author::numbered(1).admit(&old, NOW);
    publish(&store, std::slice::from_ref(&old)).await.unwrap();
    for chunk in notes(1, 600).chunks(200) {
        publish(&store, chunk).await.unwrap();
    }
    let filter = format!(
        r##"{{"#t":["{quiet}"],"authors":["{}"],"limit":5}}"##,
        Author::numbered(1).pubkey()
    );
    let hits = store.query(query(&filter, 100)).await.unwrap();
    assert_eq!(hits.hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [old.event().id()]);
}

/// The answer that comes with a head is the answer at that head, while the head moves on.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_of_its_head() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    let store = std::sync::Arc::new(store);
    let writer = tokio::spawn({
        let store = std::sync::Arc::clone(&store);
        async move {
            for nth in 0..200 {
                publish(&store, &[note(1, nth)]).await.unwrap();
            }
        }
    });
    let one = format!(r##"{{"#t":["{}"]}}"##, topic());
    let several = Query {
        filters: vec![Filter::parse(&one).unwrap(), Filter::parse(r#"{"kinds":[1]}"#).unwrap()],
        ..query(&one, 100_000)
    };
    let mut moved = 0;
    let mut last = Seq::ZERO;
    while !writer.is_finished() {
        for query in [query(&one, 100_000), several.clone()] {
            let hits = store.query(query).await.unwrap();
            assert_eq!(hits.hits.len() as i64, hits.head.0, "one row per event");
            moved += i32::from(hits.head > last);
            last = hits.head;
        }
    }
    writer.await.unwrap();
    assert!(moved > 3, "only {moved} answers met a writer at work");
}
