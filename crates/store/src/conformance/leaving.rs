//! Events leave topics: by retention, by capacity, or because the topic was removed.

use std::collections::BTreeSet;

use kukuri_core::{
    Act, Duplicate, IngestPolicy, MarkState, Outcome, Reason, Seq, UnlinkReason, Usage,
};
use kukuri_event::EventId;

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, briefs, delete, draft, id, ids, key, note, removed,
    set_policy, signed, topic, unlink, unlinked, upsert,
};

pub async fn an_event_leaves_one_topic_and_stays_in_the_other(scene: Scene) {
    scene.carry("ab").await;
    let event = note(1, "ab");
    scene.given(&[&event]).await;
    let (outcome, rows) = scene.act(unlink('a', &[&event], PURGE)).await;
    assert_eq!(outcome, unlinked(&[&event]));
    assert_eq!(rows, [delete(&event, 'a', "b", Reason::Retention)]);
    assert_eq!(scene.visible('a').await, []);
    assert_eq!(scene.visible('b').await, ids(&[&event]));
    let seq = scene.record(&event).await.expect("it is stored").seq;
    let body = scene.store().bodies(vec![seq]).await;
    assert_eq!(body, Ok(vec![Some(event.body().json().to_owned())]));
}

/// What left a topic does not come back to it while another keeps it; a topic that was removed is anew.
pub async fn what_left_a_topic_is_not_linked_again(scene: Scene) {
    scene.carry("abcd").await;
    let event = note(1, "abcd");
    scene.given(&[&event]).await;
    let limit = IngestPolicy { max_events: Some(0), ..IngestPolicy::default() };
    let _ = scene.act(set_policy('b', limit)).await;
    for (digit, reason) in [('a', PURGE), ('b', UnlinkReason::Capacity), ('c', UnlinkReason::Topic)]
    {
        assert_eq!(scene.act(unlink(digit, &[&event], reason)).await.0, unlinked(&[&event]));
    }
    scene.carry("b").await;
    let record = scene.record(&event).await.expect("it is stored");
    assert_eq!(record.left, [topic('a'), topic('b')]);
    let linked = (Outcome::Accepted, vec![upsert(&event, 'c', "d")]);
    assert_eq!(scene.publish(&event).await, linked);
    let known = (Outcome::Duplicate(Duplicate::Known), vec![]);
    assert_eq!(scene.publish(&event).await, known);
    assert_eq!(scene.visible('a').await, []);
    assert_eq!(scene.visible('b').await, []);
    assert_eq!(scene.visible('c').await, ids(&[&event]));
    let filter = format!(r##"{{"#t":["{}"],"ids":["{}"]}}"##, topic('a'), id(&event).to_hex());
    assert_eq!(scene.found(&filter).await, []);
}

pub async fn the_body_goes_with_the_last_link(scene: Scene) {
    scene.carry("ab").await;
    let event = note(1, "ab");
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    let (_, rows) = scene.act(unlink('b', &[&event], PURGE)).await;
    assert_eq!(rows, [delete(&event, 'b', "", Reason::Retention)]);
    assert_eq!(scene.record(&event).await, None);
    assert_eq!(scene.store().bodies(vec![Seq(1)]).await, Ok(vec![None]));
    assert_eq!(scene.found("{}").await, []);
    assert_eq!(scene.usage('b').await, Usage::default());
}

pub async fn a_purged_event_is_remembered(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let remembered = scene.dedupe(&event).await;
    assert!(remembered.is_some_and(|row| row.seq.is_some()));
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    assert_eq!(scene.dedupe(&event).await, remembered, "the id outlives the event");
    let not_kept = Outcome::Duplicate(Duplicate::NotKept);
    assert_eq!(scene.publish(&event).await, (not_kept, vec![]));
    assert_eq!(scene.visible('a').await, []);
}

pub async fn a_removed_topic_forgets_its_events(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], UnlinkReason::Topic)).await;
    assert_eq!(scene.dedupe(&event).await, None);
    let again = [upsert(&event, 'a', "")];
    assert_eq!(scene.publish(&event).await, (Outcome::Accepted, again.into()));
    let record = scene.record(&event).await.expect("it is stored again");
    assert_eq!(record.seq, Seq(3), "with a number of its own");
    assert_eq!(scene.store().bodies(vec![Seq(1)]).await, Ok(vec![None]));
}

/// What retention has taken out of one topic came back there when the last other topic that kept it was removed.
pub async fn a_removed_topic_lets_nothing_back_into_another(scene: Scene) {
    scene.carry("ab").await;
    let (event, version) = (note(1, "ab"), article("x", 2, "ab"));
    scene.given(&[&event, &version]).await;
    let _ = scene.act(unlink('a', &[&event, &version], PURGE)).await;
    let last = unlink('b', &[&event, &version], UnlinkReason::Topic);
    assert_eq!(scene.act(last).await.0, removed(&[&event, &version]));
    for gone in [&event, &version] {
        assert!(scene.dedupe(gone).await.is_some(), "it is remembered");
        let not_kept = Outcome::Duplicate(Duplicate::NotKept);
        assert_eq!(scene.publish(gone).await, (not_kept, vec![]));
    }
    let mark = scene.version(&key(&version)).await.and_then(|version| version.mark);
    assert_eq!(mark.map(|mark| mark.state), Some(MarkState::Evicted));
    assert_eq!(scene.visible('a').await, []);
}

pub async fn a_purged_winner_keeps_its_mark(scene: Scene) {
    scene.carry("a").await;
    let [old, winner] = [1, 2].map(|nth| article("x", nth, "a"));
    scene.given(&[&winner]).await;
    let _ = scene.act(unlink('a', &[&winner], PURGE)).await;
    let version = scene.version(&key(&winner)).await.expect("the key is known");
    let mark = version.mark.expect("the mark stays");
    assert_eq!((mark.event_id, mark.state), (id(&winner), MarkState::Evicted));
    assert_eq!(version.body, None);
    let stale = Outcome::Duplicate(Duplicate::Stale);
    assert_eq!(scene.publish(&old).await, (stale, vec![]));
    let not_kept = Outcome::Duplicate(Duplicate::NotKept);
    assert_eq!(scene.publish(&winner).await, (not_kept, vec![]));
}

pub async fn a_winner_of_a_removed_topic_comes_back(scene: Scene) {
    scene.carry("a").await;
    let [old, winner] = [1, 2].map(|nth| article("x", nth, "a"));
    scene.given(&[&old, &winner]).await;
    let _ = scene.act(unlink('a', &[&old, &winner], UnlinkReason::Topic)).await;
    let stale = Outcome::Duplicate(Duplicate::Stale);
    assert_eq!(scene.publish(&old).await, (stale, vec![]), "an older one does not");
    assert_eq!(scene.publish(&winner).await.1, [upsert(&winner, 'a', "")]);
    let version = scene.version(&key(&winner)).await.expect("the key is known");
    assert_eq!(version.mark.map(|mark| mark.state), Some(MarkState::Effective));
    assert_eq!(version.body.as_ref(), Some(winner.body()));
}

pub async fn hidden_events_leave_without_a_row(scene: Scene) {
    scene.carry("a").await;
    let [old, new] = [1, 2].map(|nth| article("x", nth, "a"));
    let gone = note(3, "a");
    let request = signed(&alice(), &draft(5, 4, "a").tag("e", id(&gone)));
    scene.given(&[&old, &new, &gone, &request]).await;
    assert_eq!(scene.usage('a').await.events, 4);
    let leave = unlink('a', &[&old, &gone], PURGE);
    assert_eq!(scene.act(leave).await, (removed(&[&old, &gone]), vec![]));
    assert_eq!(scene.usage('a').await.events, 2);
    assert_eq!(scene.visible('a').await, ids(&[&request, &new]));
    let version = scene.version(&key(&new)).await.expect("the key is known");
    assert_eq!(version.mark.map(|mark| mark.event_id), Some(id(&new)));
}

pub async fn leaving_and_coming_back_in_one_batch(scene: Scene) {
    scene.carry("a").await;
    let (event, version) = (note(1, "a"), article("x", 2, "a"));
    scene.given(&[&event, &version]).await;
    let decision = scene
        .batch(vec![
            unlink('a', &[&event, &version], UnlinkReason::Topic),
            Act::Publish(version.clone()),
            Act::Publish(event.clone()),
        ])
        .await;
    let rows = [
        delete(&event, 'a', "", Reason::Topic),
        delete(&version, 'a', "", Reason::Topic),
        upsert(&version, 'a', ""),
        upsert(&event, 'a', ""),
    ];
    assert_eq!(briefs(&decision.rows), rows);
    assert_eq!(scene.visible('a').await, ids(&[&version, &event]));
    let record = scene.record(&event).await.expect("it is stored");
    assert_eq!(record.seq, Seq(6));
    let body = scene.store().bodies(vec![Seq(1), Seq(6)]).await;
    assert_eq!(body, Ok(vec![None, Some(event.body().json().to_owned())]));
}

pub async fn what_is_not_there_cannot_leave(scene: Scene) {
    scene.carry("ab").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let before = super::dump(scene.store()).await;
    let elsewhere = unlink('b', &[&event], UnlinkReason::Topic);
    let unknown = Act::Unlink {
        topic: topic('a'),
        events: vec![EventId::from_bytes([9; 32])],
        reason: PURGE,
    };
    let nowhere = unlink('f', &[&event], PURGE);
    let expire = Act::Expire(vec![EventId::from_bytes([9; 32])]);
    for act in [elsewhere, unknown, nowhere, expire] {
        assert_eq!(scene.act_at(NOW, act).await, (removed(&[]), vec![]));
    }
    assert_eq!(super::dump(scene.store()).await, before);
}

pub async fn linked_lists_every_link_once(scene: Scene) {
    scene.carry("a").await;
    let (newest, hidden, oldest) = (note(9, "ab"), article("x", 5, "a"), note(1, "a"));
    let new_version = article("x", 6, "ab");
    scene.given(&[&newest, &hidden, &oldest, &new_version]).await;
    scene.carry("b").await;
    scene.given(&[&new_version, &newest]).await;
    let linked = async |digit, most| {
        let linked = scene.store().linked(topic(digit), most).await.expect("it is listed");
        let different: BTreeSet<EventId> = linked.iter().copied().collect();
        assert_eq!(different.len(), linked.len(), "each once");
        different
    };
    let all: BTreeSet<EventId> =
        ids(&[&newest, &hidden, &oldest, &new_version]).into_iter().collect();
    assert_eq!(linked('a', PLENTY).await, all);
    for most in 0..=4 {
        let some = linked('a', most).await;
        assert!(some.len() == most && some.is_subset(&all), "{most}: {some:?}");
    }
    assert_eq!(linked('b', PLENTY).await, ids(&[&new_version, &newest]).into_iter().collect());
    assert_eq!(linked('c', PLENTY).await, BTreeSet::new());
}
