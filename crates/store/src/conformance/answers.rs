//! Order, limits, and what goes with an answer.

use std::cmp::Reverse;

use kukuri_core::{Act, Admitted, Seq};
use kukuri_event::{EventId, Filter};

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, bob, draft, filter, id, ids, note, signed, topic,
    unlink,
};
use crate::{Hit, Order, Query, QueryError};

/// So many notes of one second, by id.
fn tied(nth: i64, count: usize) -> Vec<Admitted> {
    let notes = (0..count).map(|n| signed(&alice(), &draft(1, nth, "a").content(n.to_string())));
    let mut notes: Vec<Admitted> = notes.collect();
    notes.sort_by_key(id);
    notes
}

async fn given_tied(scene: &Scene) -> Vec<EventId> {
    scene.carry("a").await;
    let (old, new) = (tied(1, 4), tied(2, 3));
    // Taken in neither by time nor by id.
    for nth in [2, 0, 3, 1] {
        scene.given(&[&old[nth]]).await;
    }
    for nth in [1, 2, 0] {
        scene.given(&[&new[nth]]).await;
    }
    new.iter().chain(&old).map(id).collect()
}

pub async fn newest_first_and_ties_by_id(scene: Scene) {
    let expected = given_tied(&scene).await;
    let (author, a) = (alice().pubkey(), topic('a'));
    for text in [
        "{}".to_owned(),
        r#"{"kinds":[1]}"#.to_owned(),
        format!(r#"{{"authors":["{author}"]}}"#),
        format!(r##"{{"#t":["{a}"]}}"##),
        format!(r##"{{"#t":["{a}"],"authors":["{author}"],"kinds":[1,7]}}"##),
    ] {
        assert_eq!(scene.found(&text).await, expected, "{text}");
    }
}

pub async fn a_limit_cuts_at_a_tie_by_id(scene: Scene) {
    let expected = given_tied(&scene).await;
    let (author, a) = (alice().pubkey(), topic('a'));
    for limit in 1..=expected.len() + 1 {
        for condition in [
            String::new(),
            format!(r#""authors":["{author}"],"#),
            format!(r##""#t":["{a}"],"##),
            format!(r##""#t":["{a}"],"kinds":[1],"##),
            r#""kinds":[1,2],"#.to_owned(),
        ] {
            let text = format!(r#"{{{condition}"limit":{limit}}}"#);
            let cut = &expected[..limit.min(expected.len())];
            assert_eq!(scene.found(&text).await, cut, "{text}");
        }
    }
}

pub async fn the_limit_counts_visible_events(scene: Scene) {
    scene.carry("ab").await;
    let visible = [note(1, "a"), note(2, "a")];
    let [old, new] = [3, 8].map(|nth| article("x", nth, "a"));
    let gone = note(4, "a");
    let request = signed(&alice(), &draft(5, 1, "b").tag("e", id(&gone)));
    let expiring = draft(1, 5, "a").tag("expiration", NOW.saturating_add(1));
    let expiring = signed(&alice(), &expiring);
    let purged = note(6, "a");
    scene.given(&[&visible[0], &visible[1], &old, &new, &gone, &request, &expiring, &purged]).await;
    let _ = scene.act(unlink('a', &[&purged, &new], PURGE)).await;
    let text = format!(r##"{{"#t":["{}"],"limit":2}}"##, topic('a'));
    let hits = scene.hits_at(NOW.saturating_add(1), vec![filter(&text)]).await;
    let found: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
    assert_eq!(found, ids(&[&visible[1], &visible[0]]));
}

pub async fn a_limit_of_zero_finds_nothing(scene: Scene) {
    given_tied(&scene).await;
    assert_eq!(scene.found(r#"{"limit":0}"#).await, []);
    let mixed = vec![filter(r#"{"limit":0}"#), filter(r#"{"limit":1}"#)];
    assert_eq!(scene.hits_at(NOW, mixed).await.len(), 1);
}

pub async fn every_filter_has_its_own_limit(scene: Scene) {
    scene.carry("a").await;
    let of_alice = [1, 2, 3].map(|nth| note(nth, "a"));
    let of_bob = [4, 5, 6].map(|nth| signed(&bob(), &draft(1, nth, "a")));
    scene.given(&of_alice.each_ref()).await;
    scene.given(&of_bob.each_ref()).await;
    let by = |author: &super::signing::Author, limit| {
        filter(&format!(r#"{{"authors":["{}"],"limit":{limit}}}"#, author.pubkey()))
    };
    let hits = scene.hits_at(NOW, vec![by(&alice(), 2), by(&bob(), 1)]).await;
    let found: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
    assert_eq!(found, ids(&[&of_bob[2], &of_alice[2], &of_alice[1]]));
}

pub async fn several_filters_make_one_ordered_list(scene: Scene) {
    let expected = given_tied(&scene).await;
    let other = signed(&bob(), &draft(7, 9, "a"));
    scene.given(&[&other]).await;
    // All of them find all notes, and one finds more; still each event comes once, in order.
    let filters = ["{}", r#"{"kinds":[1]}"#, r#"{"limit":3}"#].map(filter);
    let hits = scene.hits_at(NOW, filters.to_vec()).await;
    let found: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
    assert_eq!(found[0], id(&other));
    assert_eq!(found[1..], expected);
}

async fn ask(
    scene: &Scene,
    filters: Vec<Filter>,
    limit_max: usize,
    rows_max: usize,
) -> Result<crate::Hits, QueryError> {
    let query = Query { filters, after: None, now: NOW, limit_max, rows_max, bodies_max: PLENTY };
    scene.store().query(query).await
}

pub async fn the_node_bounds_every_limit(scene: Scene) {
    let expected = given_tied(&scene).await;
    for text in ["{}", r#"{"limit":5}"#, r#"{"limit":9999999}"#] {
        let hits = ask(&scene, vec![filter(text)], 2, PLENTY).await.expect("it is answered");
        let found: Vec<EventId> = hits.hits.iter().map(|hit| hit.id).collect();
        assert_eq!(found, expected[..2], "{text}");
    }
    let hits = ask(&scene, vec![filter("{}")], 0, PLENTY).await.expect("it is answered");
    assert_eq!(hits.hits, []);
}

pub async fn no_filter_finds_nothing(scene: Scene) {
    given_tied(&scene).await;
    let hits = ask(&scene, vec![], PLENTY, PLENTY).await.expect("it is answered");
    assert_eq!((hits.head, hits.hits), (Seq(7), vec![]));
}

pub async fn a_query_names_the_head_it_saw(scene: Scene) {
    let nothing = ask(&scene, vec![filter("{}")], PLENTY, PLENTY).await.expect("it is answered");
    assert_eq!((nothing.head, nothing.hits), (Seq::ZERO, vec![]));
    scene.carry("ab").await;
    let event = note(1, "ab");
    scene.given(&[&event]).await;
    let hits = ask(&scene, vec![filter("{}")], PLENTY, PLENTY).await.expect("it is answered");
    assert_eq!(hits.head, Seq(2));
    let record = scene.record(&event).await.expect("it is stored");
    let hit = &hits.hits[0];
    let expected = (record.seq, event.event().created_at(), id(&event));
    assert_eq!((hit.event, hit.created_at, hit.id), expected);
}

pub async fn bodies_come_in_the_order_asked_for(scene: Scene) {
    scene.carry("a").await;
    let [one, two, three] = [1, 2, 3].map(|nth| note(nth, "a"));
    scene.given(&[&one, &two, &three]).await;
    let request = signed(&alice(), &draft(5, 4, "a").tag("e", id(&two)));
    scene.given(&[&request]).await;
    let json = |event: &Admitted| Some(event.body().json().to_owned());
    let asked = vec![Seq(3), Seq(99), Seq(1), Seq(2), Seq(3), Seq(0)];
    let expected = vec![json(&three), None, json(&one), None, json(&three), None];
    assert_eq!(scene.store().bodies(asked).await, Ok(expected));
    assert_eq!(scene.store().bodies(vec![]).await, Ok(vec![]));
}

pub async fn a_broad_query_is_refused_or_answered(scene: Scene) {
    scene.carry("a").await;
    let notes: Vec<Act> = (0..50).map(|nth| Act::Publish(note(nth, "a"))).collect();
    let _ = scene.batch(notes).await;
    let rare = signed(&bob(), &draft(1, 0, "a"));
    scene.given(&[&rare]).await;
    let (a, author) = (topic('a'), bob().pubkey());
    let text = format!(r##"{{"#t":["{a}"],"authors":["{author}"]}}"##);
    // What a back end reads to find it is its own affair; a wrong or short answer is not.
    let rows_max = 10;
    match ask(&scene, vec![filter(&text)], PLENTY, rows_max).await {
        Ok(hits) => assert_eq!(hits.hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [id(&rare)]),
        Err(error) => assert_eq!(error, QueryError::TooBroad { rows_max }),
    }
}

pub async fn an_answer_goes_on_after_any_place(scene: Scene) {
    let expected = given_tied(&scene).await;
    let (author, a) = (alice().pubkey(), topic('a'));
    let (newest, oldest) = (NOW.saturating_add(100), NOW.saturating_sub(100_000));
    let ids = serde_json::to_string(&expected.iter().map(EventId::to_hex).collect::<Vec<_>>());
    for text in [
        "{}".to_owned(),
        r#"{"kinds":[1]}"#.to_owned(),
        format!(r#"{{"ids":{}}}"#, ids.expect("it is JSON")),
        format!(r#"{{"authors":["{author}"]}}"#),
        format!(r##"{{"#t":["{a}"]}}"##),
        format!(r##"{{"#t":["{a}"],"authors":["{author}"],"kinds":[1,7]}}"##),
    ] {
        let all = scene.hits_at(NOW, vec![filter(&text)]).await;
        assert_eq!(all.iter().map(|hit| hit.id).collect::<Vec<_>>(), expected, "{text}");
        let places = all.iter().map(Hit::order).enumerate().map(|(nth, place)| (nth + 1, place));
        // Between ids of one second, before all and after all.
        let between = all.iter().enumerate().map(|(nth, hit)| {
            let mut id = *hit.id.as_bytes();
            id[31] ^= 1;
            let id = EventId::from_bytes(id);
            (nth + usize::from(id > hit.id), Order(Reverse(hit.created_at), id))
        });
        let zero = EventId::from_bytes([0; 32]);
        let ends =
            [(0, newest), (all.len(), oldest)].map(|(nth, at)| (nth, Order(Reverse(at), zero)));
        for (nth, after) in places.chain(between).chain(ends) {
            for limit_max in [1, 2, 3, PLENTY] {
                let query = Query {
                    filters: vec![filter(&text)],
                    after: Some(after),
                    now: NOW,
                    limit_max,
                    rows_max: PLENTY,
                    bodies_max: PLENTY,
                };
                let found = scene.store().query(query).await.expect("it is answered");
                let rest = &all[nth..];
                assert_eq!(found.hits, rest[..limit_max.min(rest.len())], "{text} {after:?}");
                assert_eq!(found.bodies.len(), found.hits.len());
            }
        }
    }
}

pub async fn answers_do_not_depend_on_hidden_events(scene: Scene) {
    scene.carry("a").await;
    let versions: Vec<Admitted> = (0..30).map(|nth| article("x", nth, "a")).collect();
    let _ = scene.batch(versions.iter().cloned().map(Act::Publish).collect()).await;
    let newest = versions.last().expect("there are some");
    let (a, author) = (topic('a'), alice().pubkey());
    for text in [
        format!(r##"{{"#t":["{a}"],"limit":3}}"##),
        format!(r#"{{"authors":["{author}"],"kinds":[30023],"limit":3}}"#),
        r##"{"#d":["x"],"limit":3}"##.to_owned(),
        format!(r#"{{"ids":["{}","{}"]}}"#, id(&versions[3]), id(newest)),
    ] {
        assert_eq!(scene.found(&text).await, ids(&[newest]), "{text}");
    }
}
