//! How long events are kept: by when they were taken in, by what they are, and by their topics.

use std::collections::BTreeSet;

use kukuri_core::{
    Act, Admitted, Allowance, Cutoffs, Duplicate, IngestPolicy, Outcome, Reason, Retention,
    UnixMillis, UnlinkReason,
};
use kukuri_event::{EventId, UnixSeconds};

use super::scene::{
    NOW, PLENTY, Scene, alice, article, delete, draft, id, ids, note, removed, set_policy, signed,
    topic, unlink, upsert,
};

/// A moment so many days after everything was taken in, and some seconds.
fn days(days: i64, seconds: i64) -> UnixSeconds {
    NOW.saturating_add(days * 24 * 60 * 60 + seconds)
}

fn keeps(days: u32) -> IngestPolicy {
    IngestPolicy { retention_days: Some(days), ..IngestPolicy::default() }
}

/// The event stays in the topic until so many days are over, to the second.
async fn leaves_after(scene: &Scene, digit: char, event: &Admitted, after: i64) {
    let leave = || unlink(digit, &[event], UnlinkReason::Retention);
    assert_eq!(scene.act_at(days(after, -1), leave()).await, (removed(&[]), vec![]), "{after} d");
    assert_eq!(scene.act_at(days(after, 0), leave()).await.0, removed(&[event]), "{after} d");
}

pub async fn a_regular_event_leaves_when_its_days_are_over(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    leaves_after(&scene, 'a', &event, 30).await;
    assert_eq!(scene.visible('a').await, []);
    let not_kept = Outcome::Duplicate(Duplicate::NotKept);
    assert_eq!(scene.publish(&event).await, (not_kept, vec![]));
}

pub async fn a_topic_keeps_events_for_its_own_days(scene: Scene) {
    let _ = scene.batch(vec![set_policy('a', keeps(3)), set_policy('b', keeps(90))]).await;
    let (short, long) = (note(1, "a"), note(2, "b"));
    scene.given(&[&short, &long]).await;
    leaves_after(&scene, 'a', &short, 3).await;
    leaves_after(&scene, 'b', &long, 90).await;
}

pub async fn history_leaves_sooner_and_never_later(scene: Scene) {
    scene.carry("a").await;
    let _ = scene.batch(vec![set_policy('b', keeps(3)), set_policy('c', keeps(90))]).await;
    for (digit, after) in [('a', 7), ('b', 3), ('c', 7)] {
        let digits = digit.to_string();
        let [old, new] = [1, 2].map(|nth| article(&digits, nth, &digits));
        scene.given(&[&old, &new]).await;
        leaves_after(&scene, digit, &old, after).await;
        assert_eq!(scene.visible(digit).await, ids(&[&new]));
    }
}

pub async fn deletions_stay_longer_and_never_shorter(scene: Scene) {
    scene.carry("a").await;
    let _ = scene.batch(vec![set_policy('b', keeps(3)), set_policy('c', keeps(365))]).await;
    for (nth, (digit, after)) in (1..).zip([('a', 180), ('b', 180), ('c', 365)]) {
        let request = signed(&alice(), &draft(5, nth, &digit.to_string()));
        scene.given(&[&request]).await;
        leaves_after(&scene, digit, &request, after).await;
    }
}

pub async fn current_versions_are_kept(scene: Scene) {
    let _ = scene.act(set_policy('a', keeps(1))).await;
    let event = article("x", 1, "a");
    scene.given(&[&event]).await;
    let leave = unlink('a', &[&event], UnlinkReason::Retention);
    assert_eq!(scene.act_at(days(10_000, 0), leave).await, (removed(&[]), vec![]));
    assert_eq!(scene.visible('a').await, ids(&[&event]));
}

pub async fn the_node_says_how_long_events_are_kept(scene: Scene) {
    scene.carry("a").await;
    let retention = Retention { regular_days: 2, history_days: 1, deletion_days: 4 };
    let _ = scene.act(Act::Allow(Allowance { retention, ..Allowance::STANDARD })).await;
    let (event, request) = (note(1, "a"), signed(&alice(), &draft(5, 2, "a")));
    let [old, new] = [3, 4].map(|nth| article("x", nth, "a"));
    scene.given(&[&event, &request, &old, &new]).await;
    leaves_after(&scene, 'a', &old, 1).await;
    leaves_after(&scene, 'a', &event, 2).await;
    leaves_after(&scene, 'a', &request, 4).await;
}

pub async fn a_stale_plan_removes_nothing(scene: Scene) {
    let _ = scene.act(set_policy('a', keeps(1))).await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let at = days(1, 0);
    let aged = scene.store().aged(topic('a'), Retention::STANDARD.cutoffs(&keeps(1), at.into()), 9);
    assert_eq!(aged.await, Ok(vec![(event.event().created_at(), id(&event))]));
    let planned = unlink('a', &[&event], UnlinkReason::Retention);
    let decision = scene.batch_at(at, vec![set_policy('a', keeps(2)), planned]).await;
    assert_eq!(decision.outcomes, [Outcome::Done, removed(&[])]);
    assert_eq!(scene.visible('a').await, ids(&[&event]));
}

pub async fn an_event_lives_as_long_as_one_of_its_topics_keeps_it(scene: Scene) {
    let _ = scene.batch(vec![set_policy('a', keeps(3)), set_policy('b', keeps(5))]).await;
    let event = note(1, "ab");
    scene.given(&[&event]).await;
    let leave = |digit| unlink(digit, &[&event], UnlinkReason::Retention);
    let rows = scene.act_at(days(4, 0), leave('a')).await.1;
    assert_eq!(rows, [delete(&event, 'a', "b", Reason::Retention)]);
    assert_eq!(scene.act_at(days(4, 0), leave('b')).await, (removed(&[]), vec![]));
    assert_eq!(scene.visible('b').await, ids(&[&event]));
    let rows = scene.act_at(days(5, 0), leave('b')).await.1;
    assert_eq!(rows, [delete(&event, 'b', "", Reason::Retention)]);
    assert_eq!(scene.record(&event).await, None);
}

pub async fn what_has_aged_in_a_topic_is_not_linked_there_again(scene: Scene) {
    let _ = scene.batch(vec![set_policy('a', keeps(3)), set_policy('b', keeps(5))]).await;
    let event = note(1, "abc");
    scene.given(&[&event]).await;
    let _ = scene.act_at(days(3, 0), unlink('a', &[&event], UnlinkReason::Retention)).await;
    let again = || Act::Publish(event.clone());
    let known = Outcome::Duplicate(Duplicate::Known);
    assert_eq!(scene.act_at(days(3, 0), again()).await, (known, vec![]));
    scene.carry("c").await;
    let linked = (Outcome::Accepted, vec![upsert(&event, 'c', "b")]);
    assert_eq!(scene.act_at(days(3, 0), again()).await, linked, "topics that keep it take it");
}

pub async fn a_purge_takes_what_was_taken_in_before_a_time(scene: Scene) {
    scene.carry("a").await;
    let (event, version) = (note(1, "a"), article("x", 2, "a"));
    scene.given(&[&event, &version]).await;
    let now = UnixMillis::from(NOW);
    let before = |time| unlink('a', &[&event, &version], UnlinkReason::Before(time));
    assert_eq!(scene.act(before(now)).await, (removed(&[]), vec![]));
    let (outcome, rows) = scene.act(before(UnixMillis(now.0 + 1))).await;
    assert_eq!(outcome, removed(&[&event, &version]));
    let gone = [&event, &version].map(|event| delete(event, 'a', "", Reason::Retention));
    assert_eq!(rows, gone);
}

pub async fn what_has_aged_is_listed(scene: Scene) {
    scene.carry("ab").await;
    let early = [note(1, "a"), signed(&alice(), &draft(5, 2, "a")), article("x", 3, "a")];
    let history = [article("y", 4, "ab"), article("y", 5, "a")];
    let elsewhere = note(6, "b");
    let all = early.iter().chain(&history).chain([&elsewhere]).collect::<Vec<_>>();
    scene.given(&all).await;
    let late = note(7, "a");
    assert_eq!(scene.act_at(days(1, 0), Act::Publish(late.clone())).await.0, Outcome::Accepted);
    let none = Cutoffs { regular: None, deletion: None, history: None, current: None };
    let now = Some(UnixMillis::from(NOW));
    let [regular, request, current] = &early;
    let aged = async |digit, cutoffs, most| {
        let aged = scene.store().aged(topic(digit), cutoffs, most).await.expect("it is listed");
        let different: BTreeSet<EventId> = aged.iter().map(|(_, id)| *id).collect();
        assert_eq!(different.len(), aged.len(), "each once");
        different
    };
    let set = |events: &[&Admitted]| events.iter().map(|event| id(event)).collect::<BTreeSet<_>>();
    for (cutoffs, expected) in [
        (none, vec![]),
        (Cutoffs { regular: now, ..none }, vec![regular]),
        (Cutoffs { deletion: now, ..none }, vec![request]),
        (Cutoffs { history: now, ..none }, vec![&history[0]]),
        (Cutoffs { current: now, ..none }, vec![current, &history[1]]),
        (Cutoffs::all(UnixMillis(UnixMillis::from(NOW).0 - 1)), vec![]),
        (
            Cutoffs::all(days(1, 0).into()),
            vec![regular, request, current, &history[0], &history[1], &late],
        ),
    ] {
        assert_eq!(aged('a', cutoffs, PLENTY).await, set(&expected), "{cutoffs:?}");
        for most in 0..expected.len() {
            let some = aged('a', cutoffs, most).await;
            assert!(some.len() == most && some.is_subset(&set(&expected)));
        }
    }
    let all = Cutoffs::all(days(1, 0).into());
    assert_eq!(aged('b', all, PLENTY).await, set(&[&history[0], &elsewhere]));
    assert_eq!(aged('f', all, PLENTY).await, set(&[]));
}
