//! Reading the raw state: for audits, exports and comparisons.

use kukuri_core::{Act, Admitted, NodeKey, ReadSet, TombstoneKey};
use kukuri_event::EventId;

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, draft, filter, id, key, note, signed, topic, topics,
    unlink,
};
use super::{dump, dump_in_pages};
use crate::{Entry, Hit, Place, Walk};

/// A state with several rows in every table.
async fn furnish(scene: &Scene) -> Vec<Admitted> {
    scene.carry("cab").await;
    let mut events: Vec<Admitted> = (1..=5).map(|nth| note(nth, "abc")).collect();
    events.extend([article("x", 6, "a"), article("x", 7, "b"), article("", 8, "c")]);
    let absent = note(99, "a");
    let request = draft(5, 9, "a").tag("e", id(&events[0])).tag("e", id(&absent));
    events.push(signed(&alice(), &request));
    let _ = scene.batch(events.iter().cloned().map(Act::Publish).collect()).await;
    let _ = scene.act(unlink('b', &[&events[1]], PURGE)).await;
    events
}

pub async fn a_walk_sees_every_table_in_key_order(scene: Scene) {
    assert_eq!(dump(scene.store()).await, []);
    furnish(&scene).await;
    let entries = dump(scene.store()).await;
    let count = |wanted: fn(&Entry) -> bool| entries.iter().filter(|entry| wanted(entry)).count();
    assert_eq!(count(|e| matches!(e, Entry::Record(_))), 9);
    assert_eq!(count(|e| matches!(e, Entry::Dedupe(..))), 9);
    assert_eq!(count(|e| matches!(e, Entry::Version(..))), 2);
    assert_eq!(count(|e| matches!(e, Entry::Tombstone(..))), 2);
    assert_eq!(count(|e| matches!(e, Entry::Topic(..))), 3);
    assert_eq!(count(|e| matches!(e, Entry::Node(_))), 1);
    // 5 notes × 3 topics, 3 articles, 1 request; 1 superseded, 3 deleted, 1 unlinked.
    assert_eq!(count(|e| matches!(e, Entry::Row(_))), 19 + 5);
    for pair in entries.windows(2) {
        assert!(in_order(&pair[0].place(), &pair[1].place()), "{pair:?}");
    }
}

/// Whether one place comes before another: by table, then by key.
fn in_order(one: &Place, two: &Place) -> bool {
    match (one, two) {
        (Place::Records(one), Place::Records(two)) => one < two,
        (Place::Dedupe(one), Place::Dedupe(two)) => one < two,
        (Place::Versions(one), Place::Versions(two)) => one < two,
        (Place::Tombstones(one), Place::Tombstones(two)) => one < two,
        (Place::Topics(one), Place::Topics(two)) => one < two,
        (Place::Node(one), Place::Node(two)) => one < two,
        (Place::Feed(one), Place::Feed(two)) => one < two,
        _ => table(one) < table(two),
    }
}

fn table(place: &Place) -> usize {
    match place {
        Place::Records(_) => 0,
        Place::Dedupe(_) => 1,
        Place::Versions(_) => 2,
        Place::Tombstones(_) => 3,
        Place::Topics(_) => 4,
        Place::Node(_) => 5,
        Place::Feed(_) => 6,
    }
}

pub async fn pages_join_without_gap_or_repeat(scene: Scene) {
    furnish(&scene).await;
    let whole = dump(scene.store()).await;
    for entries_per_page in [1, 2, 3, 7] {
        let joined = dump_in_pages(scene.store(), entries_per_page).await;
        assert_eq!(joined, whole, "{entries_per_page} per page");
    }
    let from = Place::Feed(Some(kukuri_core::Seq(23)));
    let page = scene.store().page(from, 10).await.expect("it is read");
    assert_eq!(page.as_slice(), &whole[whole.len() - 1..]);
}

pub async fn facts_tell_absent_from_present(scene: Scene) {
    let events = furnish(&scene).await;
    let nobody = EventId::from_bytes([3; 32]);
    let tombstone = |target| TombstoneKey { target, pubkey: alice().pubkey() };
    let mut needs = ReadSet::default();
    needs.events.extend([id(&events[0]), nobody]);
    needs.tombstones.extend([tombstone(id(&events[0])), tombstone(nobody)]);
    let mut other_key = key(&events[5]);
    other_key.d = "unknown".to_owned();
    needs.versions.extend([key(&events[5]), other_key.clone()]);
    needs.topics.extend(topics("af"));
    needs.node = Some(NodeKey);
    let facts = scene.store().facts(needs).await.expect("facts are loaded");
    assert_eq!((facts.records.len(), facts.dedupe.len()), (2, 2));
    assert!(facts.records[&id(&events[0])].is_some() && facts.records[&nobody].is_none());
    assert!(facts.dedupe[&id(&events[0])].is_some() && facts.dedupe[&nobody].is_none());
    assert!(facts.tombstones[&tombstone(id(&events[0]))].is_some());
    assert!(facts.tombstones[&tombstone(nobody)].is_none());
    assert!(facts.versions[&key(&events[5])].is_some() && facts.versions[&other_key].is_none());
    assert!(facts.topics[&topic('a')].is_some() && facts.topics[&topic('f')].is_none());
    assert_eq!(facts.usage[&topic('a')], Some(scene.usage('a').await));
    assert_eq!(facts.usage[&topic('f')], None);
    assert_eq!(facts.node[&NodeKey].as_ref().map(|node| node.usage.events), Some(9));
    let empty = scene.store().facts(ReadSet::default()).await;
    assert_eq!(empty.expect("nothing is loaded"), kukuri_core::Facts::default());
}

pub async fn topics_are_listed_by_id(scene: Scene) {
    furnish(&scene).await;
    let listed = scene.store().topics().await.expect("topics are listed");
    let listed: Vec<_> = listed.into_iter().map(|(row, _)| row.topic_id).collect();
    assert_eq!(listed, topics("abc"));
}

/// Notes of which several share a second, one that is deleted and one that has expired.
async fn crowd(scene: &Scene) {
    scene.carry("ab").await;
    let said = |nth: i64, text: &str| draft(1, nth, "a").content(text.to_owned());
    for (nth, text) in [(1, "a"), (1, "b"), (1, "c"), (1, "d"), (2, "e"), (3, "f"), (3, "g")] {
        scene.given(&[&signed(&alice(), &said(nth, text))]).await;
    }
    let doomed = signed(&alice(), &said(4, "doomed"));
    let deletion = signed(&alice(), &draft(5, 5, "b").tag("e", id(&doomed)));
    let passing = said(6, "passing").tag("expiration", NOW.0 + 1);
    scene.given(&[&doomed, &deletion, &signed(&alice(), &passing), &note(7, "b")]).await;
}

async fn walked(scene: &Scene, text: &str, page_hits: usize) -> Vec<Hit> {
    let at = NOW.saturating_add(10);
    let mut walk = Walk::new(filter(text), at, PLENTY).in_pages_of(page_hits);
    let mut hits = Vec::new();
    while let Some(page) = walk.next(scene.store()).await.expect("a walk goes on") {
        assert!(!page.is_empty());
        hits.extend(page);
        assert!(hits.len() < 1000, "a walk comes to its end");
    }
    assert_eq!(walk.next(scene.store()).await.expect("a walk that has ended"), None);
    hits
}

pub async fn a_walk_finds_what_one_query_finds(scene: Scene) {
    crowd(&scene).await;
    let text = format!(r##"{{"#t":["{}"]}}"##, topic('a'));
    let at_once = scene.hits_at(NOW.saturating_add(10), vec![filter(&text)]).await;
    assert_eq!(at_once.len(), 7);
    for page_hits in 1..=9 {
        assert_eq!(walked(&scene, &text, page_hits).await, at_once, "pages of {page_hits}");
    }
}

pub async fn a_walk_ends_at_the_limit_of_its_filter(scene: Scene) {
    crowd(&scene).await;
    let all = format!(r##"{{"#t":["{}"]}}"##, topic('a'));
    let all = walked(&scene, &all, 3).await;
    for limit in 0..=8 {
        let text = format!(r##"{{"#t":["{}"],"limit":{limit}}}"##, topic('a'));
        for page_hits in [1, 2, 3, 100] {
            assert_eq!(walked(&scene, &text, page_hits).await, all[..limit.min(all.len())]);
        }
    }
}

/// However many events one second has, each page costs no more than another one does: anybody can write a
/// time on as many events as they like.
pub async fn a_walk_goes_on_within_a_second(scene: Scene) {
    let rows_max = 20;
    scene.carry("ab").await;
    let said = |nth: i64, text: &str| draft(1, nth, "ab").content(text.to_owned());
    let crowd = (0..60).map(|text| said(2, &text.to_string()));
    let around = [said(1, "older"), said(3, "newer")];
    let events = crowd.chain(around).map(|draft| Act::Publish(signed(&alice(), &draft)));
    let _ = scene.batch(events.collect()).await;
    let (a, b) = (topic('a'), topic('b'));
    for text in [
        format!(r##"{{"#t":["{a}"]}}"##),
        format!(r##"{{"#t":["{a}"],"kinds":[1]}}"##),
        format!(r##"{{"#t":["{a}","{b}"]}}"##),
    ] {
        let at_once = scene.hits_at(NOW, vec![filter(&text)]).await;
        assert_eq!(at_once.len(), 62);
        let mut walk = Walk::new(filter(&text), NOW, rows_max).in_pages_of(5);
        let mut hits = Vec::new();
        while let Some(page) = walk.next(scene.store()).await.expect("no page costs too much") {
            assert!(page.len() <= 5);
            hits.extend(page);
            assert!(hits.len() < 1000, "a walk comes to its end");
        }
        assert_eq!(hits, at_once, "{text}");
    }
}
