//! Events that come for the first time, and again.

use kukuri_core::admission::Verdict;
use kukuri_core::{
    Act, Dedupe, Duplicate, Keep, Link, Outcome, Rejection, Seq, Sighting, Source, State,
    UnixMillis, Usage,
};
use kukuri_event::{Event, EventId};

use super::scene::{NOW, Scene, alice, draft, id, ids, note, signed, topic, upsert};
use super::signing;

pub async fn a_regular_event_is_stored_and_announced(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    let (outcome, rows) = scene.publish(&event).await;
    assert_eq!(outcome, Outcome::Accepted);
    assert_eq!(rows, [upsert(&event, 'a', "")]);
    assert_eq!(scene.visible('a').await, ids(&[&event]));
    let at = UnixMillis::from(NOW);
    let record = scene.record(&event).await.expect("it is stored");
    assert_eq!((record.seq, record.ingested_at), (Seq(1), at));
    assert_eq!((record.keep, record.state), (Keep::Standard, State::Effective));
    let link = Link { topic: topic('a'), seq: Seq(1) };
    assert_eq!(record.links, [link]);
    let remembered =
        Dedupe { first_seen_at: at, last_seen_at: at, seen_count: 1, seq: Some(Seq(1)) };
    assert_eq!(scene.dedupe(&event).await, Some(remembered));
}

pub async fn what_is_stored_is_the_canonical_text(scene: Scene) {
    scene.carry("a").await;
    // Every sort of character that JSON can spell in more than one way.
    let content = "\" \\ / \u{8} \u{c} \n \r \t \0 \u{1f} \u{7f} é 括り \u{1f98a} \u{2028}";
    let draft = draft(1, 1, "a").content(content).tag("r", content);
    let text = alice().sign(&draft);
    // The door gets escapes and blanks that nobody hashed, and a field that nobody knows.
    let spelt = text
        .replace('é', "\\u00e9")
        .replace('/', "\\/")
        .replace("\"kind\":", " \"seen_on\" : [{}] ,\n\"kind\" : ");
    let event = signing::admit(&spelt, NOW).expect("the values are the same");
    scene.given(&[&event]).await;
    let canonical = Event::parse(&text).expect("it is an event").to_json();
    let record = scene.record(&event).await.expect("it is stored");
    assert_eq!(record.body.json(), canonical);
    assert_eq!(record.event().content(), content);
    let bodies = scene.store().bodies(vec![record.seq]).await;
    assert_eq!(bodies, Ok(vec![Some(canonical)]));
}

pub async fn a_repeat_changes_nothing(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let before = super::dump(scene.store()).await;
    let again = Act::Publish(event.clone());
    let (outcome, rows) = scene.act_at(NOW.saturating_add(60), again).await;
    assert_eq!(outcome, Outcome::Duplicate(Duplicate::Known));
    assert_eq!(rows, []);
    assert_eq!(super::dump(scene.store()).await, before);
}

pub async fn repeats_within_a_batch_are_repeats(scene: Scene) {
    scene.carry("a").await;
    let (one, two) = (note(1, "a"), note(2, "a"));
    let batch = [&one, &two, &one, &two, &one].map(|event| Act::Publish(event.clone()));
    let decision = scene.batch(batch.into()).await;
    let again = Outcome::Duplicate(Duplicate::Known);
    let outcomes = [Outcome::Accepted, Outcome::Accepted, again.clone(), again.clone(), again];
    assert_eq!(decision.outcomes, outcomes);
    assert_eq!(decision.rows.len(), 2);
    assert_eq!(scene.visible('a').await, ids(&[&two, &one]));
}

pub async fn an_ephemeral_event_leaves_no_trace(scene: Scene) {
    scene.carry("a").await;
    let before = super::dump(scene.store()).await;
    let event = signed(&alice(), &draft(20_001, 1, "a"));
    for _ in 0..2 {
        assert_eq!(scene.publish(&event).await, (Outcome::Ephemeral, vec![]));
    }
    assert_eq!(super::dump(scene.store()).await, before);
    let elsewhere = signed(&alice(), &draft(20_001, 1, "b"));
    let refused = Outcome::Refused(Rejection::TopicNotHandled);
    assert_eq!(scene.publish(&elsewhere).await, (refused, vec![]));
}

pub async fn an_event_without_a_handled_topic_is_refused(scene: Scene) {
    scene.carry("a").await;
    let before = super::dump(scene.store()).await;
    let refused = Outcome::Refused(Rejection::TopicNotHandled);
    assert_eq!(scene.publish(&note(1, "b")).await, (refused, vec![]));
    assert_eq!(super::dump(scene.store()).await, before);
}

pub async fn sightings_add_up(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let at = UnixMillis::from(NOW);
    let later = UnixMillis(at.0 + 5_000);
    let seen = |event_id: EventId, last_seen_at, count| Sighting { event_id, last_seen_at, count };
    let known = id(&event);
    let unknown = EventId::from_bytes([7; 32]);
    let sightings = vec![seen(known, later, 2), seen(unknown, later, 9), seen(known, at, 3)];
    let (outcome, rows) = scene.act(Act::Sightings(sightings)).await;
    assert_eq!((outcome, rows), (Outcome::Done, vec![]));
    let row = scene.dedupe(&event).await.expect("it is remembered");
    assert_eq!((row.first_seen_at, row.last_seen_at, row.seen_count), (at, later, 6));
    let most = vec![seen(known, at, u64::MAX)];
    let _ = scene.act(Act::Sightings(most)).await;
    let row = scene.dedupe(&event).await.expect("it is remembered");
    assert_eq!(row.seen_count, i64::MAX.unsigned_abs(), "it stops where a column ends");
    let events = super::dump(scene.store()).await;
    let dedupe = events.iter().filter(|e| matches!(e, crate::Entry::Dedupe(..)));
    assert_eq!(dedupe.count(), 1, "an id that never came is not remembered");
}

pub async fn the_source_and_the_swarm_are_on_the_row(scene: Scene) {
    scene.carry("ab").await;
    let sources = Source::ALL.iter().copied();
    for (nth, source) in sources.enumerate() {
        let nth = i64::try_from(nth).expect("a handful");
        let text = alice().sign(&draft(1, nth, "a"));
        let checked = signing::check(&text, NOW).expect("the event is good");
        let via = (source == Source::Gossip).then(|| topic('b'));
        let event = checked.admit(Verdict::Admit, source, via.clone());
        let event = event.expect("policy admits it");
        let decision = scene.batch(vec![Act::Publish(event)]).await;
        let row = &decision.rows[0];
        assert_eq!((row.source, row.via.clone()), (source, via));
    }
    let usage = scene.usage('a').await;
    assert_eq!(usage.events, Source::ALL.len() as u64);
}

pub async fn an_empty_batch_is_nothing(scene: Scene) {
    let decision = scene.batch(vec![]).await;
    assert_eq!((decision.base, decision.head()), (Seq::ZERO, Seq::ZERO));
    assert!(decision.writes.is_empty() && decision.outcomes.is_empty());
    assert_eq!(super::dump(scene.store()).await, []);
    assert_eq!(scene.usage('a').await, Usage::default());
}
