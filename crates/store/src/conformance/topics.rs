//! Node-level subscriptions: what is carried, what it holds, and how a topic goes and comes back.

use kukuri_core::{
    Act, IngestPolicy, Keep, NodeTopic, Outcome, Reason, Rejection, UnixMillis, UnlinkReason, Usage,
};

use super::scene::{
    NOW, PURGE, Scene, alice, delete, draft, ids, note, removed, set_topic, signed, topic, topics,
    unlink, upsert, usage,
};

fn not_handled() -> Outcome {
    Outcome::Refused(Rejection::TopicNotHandled)
}

pub async fn a_topic_is_set_with_absolute_values(scene: Scene) {
    let set = |name: &str, wanted, retention_days| Act::SetTopic {
        topic_id: topic('a'),
        name: name.to_owned(),
        enabled: false,
        pinned: true,
        wanted,
        ingest_policy: IngestPolicy { retention_days, ..IngestPolicy::default() },
    };
    let row = |name: &str, wanted, retention_days, updated_at| NodeTopic {
        topic_id: topic('a'),
        name: name.to_owned(),
        enabled: false,
        pinned: true,
        wanted,
        ingest_policy: IngestPolicy { retention_days, ..IngestPolicy::default() },
        created_at: UnixMillis::from(NOW),
        updated_at: UnixMillis::from(updated_at),
    };
    let listed = async || scene.store().topics().await.expect("topics are listed");
    assert_eq!(scene.act(set("括り\0'\"", 3, None)).await, (Outcome::Done, vec![]));
    assert_eq!(listed().await, [(row("括り\0'\"", 3, None, NOW), Usage::default())]);
    let later = NOW.saturating_add(1);
    for _ in 0..2 {
        let _ = scene.act_at(later, set("", u32::MAX, Some(90))).await;
        let expected = row("", u32::MAX, Some(90), later);
        assert_eq!(listed().await, [(expected, Usage::default())]);
    }
}

pub async fn a_disabled_topic_takes_nothing_in_and_keeps_what_it_has(scene: Scene) {
    scene.carry("a").await;
    let (before, during) = (note(1, "a"), note(2, "a"));
    scene.given(&[&before]).await;
    assert_eq!(scene.act(set_topic('a', false)).await, (Outcome::Done, vec![]));
    assert_eq!(scene.publish(&during).await, (not_handled(), vec![]));
    assert_eq!(scene.publish(&before).await, (not_handled(), vec![]));
    assert_eq!(scene.visible('a').await, ids(&[&before]));
    assert_eq!(scene.usage('a').await, usage(&[&before]));
    scene.carry("a").await;
    scene.given(&[&during]).await;
    assert_eq!(scene.visible('a').await, ids(&[&during, &before]));
}

pub async fn a_topic_handled_later_is_linked_when_the_event_comes_again(scene: Scene) {
    scene.carry("b").await;
    let event = note(1, "abc");
    assert_eq!(scene.publish(&event).await.1, [upsert(&event, 'b', "")]);
    scene.carry("ac").await;
    assert_eq!(scene.visible('a').await, []);
    let rows = [upsert(&event, 'a', "b"), upsert(&event, 'c', "ab")];
    assert_eq!(scene.publish(&event).await, (Outcome::Accepted, rows.into()));
    for digit in "abc".chars() {
        assert_eq!(scene.visible(digit).await, ids(&[&event]));
        assert_eq!(scene.usage(digit).await, usage(&[&event]));
    }
    let record = scene.record(&event).await.expect("it is stored");
    let links: Vec<_> = record.links.iter().map(|link| (link.topic.clone(), link.seq.0)).collect();
    assert_eq!(links, [(topic('a'), 2), (topic('b'), 1), (topic('c'), 3)]);
    assert_eq!(record.seq.0, 1);
}

pub async fn an_event_is_linked_to_the_topics_that_are_handled(scene: Scene) {
    scene.carry("ab").await;
    let _ = scene.act(set_topic('b', false)).await;
    let event = note(1, "abc");
    assert_eq!(scene.publish(&event).await.1, [upsert(&event, 'a', "")]);
    assert_eq!(scene.visible('b').await, []);
    assert_eq!(scene.visible('c').await, []);
    assert_eq!(scene.usage('b').await, Usage::default());
}

pub async fn usage_counts_stored_bodies(scene: Scene) {
    scene.carry("ab").await;
    let (one, two) = (note(1, "ab"), note(2, "a"));
    scene.given(&[&one, &two]).await;
    let _ = scene.publish(&one).await;
    assert_eq!(scene.usage('a').await, usage(&[&one, &two]));
    assert_eq!(scene.usage('b').await, usage(&[&one]));
    let _ = scene.act(unlink('a', &[&one], PURGE)).await;
    assert_eq!(scene.usage('a').await, usage(&[&two]));
    assert_eq!(scene.usage('b').await, usage(&[&one]));
    let _ = scene.act(unlink('b', &[&one], PURGE)).await;
    assert_eq!(scene.usage('b').await, usage(&[]));
}

pub async fn a_topic_in_use_cannot_be_removed(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let before = super::dump(scene.store()).await;
    let remove = Act::RemoveTopic(topic('a'));
    assert_eq!(scene.act(remove).await, (Outcome::TopicInUse, vec![]));
    assert_eq!(super::dump(scene.store()).await, before);
}

pub async fn a_topic_can_be_removed_and_come_back(scene: Scene) {
    scene.carry("ab").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let leave = unlink('a', &[&event], UnlinkReason::Topic);
    let remove = Act::RemoveTopic(topic('a'));
    let decision = scene.batch(vec![leave, remove.clone(), remove]).await;
    assert_eq!(decision.outcomes, [removed(&[&event]), Outcome::Done, Outcome::Done]);
    let rows = [delete(&event, 'a', "", Reason::Topic)];
    assert_eq!(super::scene::briefs(&decision.rows), rows);
    let listed = scene.store().topics().await.expect("topics are listed");
    let listed: Vec<_> = listed.into_iter().map(|(row, _)| row.topic_id).collect();
    assert_eq!(listed, topics("b"));
    assert_eq!(scene.topic('a').await, (None, None), "its counters go with it");
    assert_eq!(scene.publish(&event).await.0, not_handled());
    scene.carry("a").await;
    assert_eq!(scene.publish(&event).await.1, [upsert(&event, 'a', "")]);
    assert_eq!(scene.usage('a').await, usage(&[&event]));
}

pub async fn longer_retention_moves_an_event_to_longer_keep(scene: Scene) {
    scene.carry("a").await;
    let longer = Act::SetTopic {
        topic_id: topic('b'),
        name: String::new(),
        enabled: true,
        pinned: false,
        wanted: 1,
        ingest_policy: IngestPolicy { retention_days: Some(31), ..IngestPolicy::default() },
    };
    let _ = scene.act(longer).await;
    let (short, long) = (note(1, "a"), note(2, "ab"));
    let request = signed(&alice(), &draft(5, 3, "a"));
    scene.given(&[&short, &long, &request]).await;
    assert_eq!(scene.record(&short).await.map(|r| r.keep), Some(Keep::Standard));
    assert_eq!(scene.record(&long).await.map(|r| r.keep), Some(Keep::Longer));
    let keep = scene.record(&request).await.map(|r| r.keep);
    assert_eq!(keep, Some(Keep::Longer), "deletions are kept longer than what they delete");
}
