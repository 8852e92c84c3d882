//! How much is kept: limits of topics and of the node, and what a node that is short of room does.

use kukuri_core::ladder::{self, Cause, Move, Step};
use kukuri_core::{
    Act, Admitted, Allowance, Backfill, Capacity, Duplicate, IngestPolicy, MarkState, OnFull,
    Outcome, Priority, Reason, Rejection, Source, Storage, UnixMillis, UnlinkReason, Usage,
};

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, delete, draft, id, ids, key, note, removed,
    set_policy, signed, topic, unlink, upsert, usage,
};
use super::signing::admit_from;
use crate::Scope;

fn refused(why: Rejection) -> (Outcome, Vec<super::scene::Brief>) {
    (Outcome::Refused(why), vec![])
}

fn events(max_events: u64, on_full: OnFull) -> IngestPolicy {
    IngestPolicy { max_events: Some(max_events), on_full, ..IngestPolicy::default() }
}

fn allow(allowance: Allowance) -> Act {
    Act::Allow(allowance)
}

fn holds(max_events: u64) -> Capacity {
    Capacity { max_events: Some(max_events), max_bytes: None }
}

pub async fn a_full_topic_refuses_one_more(scene: Scene) {
    let _ = scene.act(set_policy('a', events(2, OnFull::Refuse))).await;
    let [one, two, three] = [1, 2, 3].map(|nth| note(nth, "a"));
    scene.given(&[&one, &two]).await;
    assert_eq!(scene.publish(&three).await, refused(Rejection::TopicFull));
    assert_eq!(scene.dedupe(&three).await, None, "it may come again");
    let known = Outcome::Duplicate(Duplicate::Known);
    assert_eq!(scene.publish(&one).await, (known, vec![]));
    let _ = scene.act(unlink('a', &[&one], PURGE)).await;
    scene.given(&[&three]).await;
    assert_eq!(scene.usage('a').await, usage(&[&two, &three]));
}

pub async fn a_topic_without_bytes_left_refuses(scene: Scene) {
    let [one, two] = [1, 2].map(|nth| note(nth, "a"));
    let exactly = usage(&[&one, &two]).bytes;
    let bytes = |max_bytes| IngestPolicy {
        max_bytes: Some(max_bytes),
        on_full: OnFull::Refuse,
        ..IngestPolicy::default()
    };
    let _ = scene.act(set_policy('a', bytes(exactly - 1))).await;
    scene.given(&[&one]).await;
    assert_eq!(scene.publish(&two).await, refused(Rejection::TopicFull));
    let _ = scene.act(set_policy('a', bytes(exactly))).await;
    scene.given(&[&two]).await;
}

pub async fn a_deletion_always_finds_room(scene: Scene) {
    let _ = scene.act(set_policy('a', events(1, OnFull::Refuse))).await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let full = Allowance { capacity: holds(1), on_full: OnFull::Refuse, ..Allowance::STANDARD };
    let _ = scene.act(allow(full)).await;
    let request = signed(&alice(), &draft(5, 2, "a").tag("e", event.event().id()));
    scene.given(&[&request]).await;
    assert_eq!(scene.visible('a').await, ids(&[&request]));
    assert_eq!(scene.usage('a').await.events, 2, "what is hidden still counts");
}

pub async fn an_event_goes_to_the_topics_that_have_room(scene: Scene) {
    scene.carry("bc").await;
    let _ = scene.act(set_policy('a', events(0, OnFull::Refuse))).await;
    let event = note(1, "abc");
    let rows = vec![upsert(&event, 'b', ""), upsert(&event, 'c', "b")];
    assert_eq!(scene.publish(&event).await, (Outcome::Accepted, rows));
}

pub async fn a_known_event_that_finds_no_room_is_a_duplicate(scene: Scene) {
    scene.carry("b").await;
    let event = note(1, "ab");
    scene.given(&[&event]).await;
    let _ = scene.act(set_policy('a', events(0, OnFull::Refuse))).await;
    let known = Outcome::Duplicate(Duplicate::Known);
    assert_eq!(scene.publish(&event).await, (known, vec![]));
    let _ = scene.act(set_policy('a', events(1, OnFull::Refuse))).await;
    let linked = (Outcome::Accepted, vec![upsert(&event, 'a', "b")]);
    assert_eq!(scene.publish(&event).await, linked);
}

pub async fn a_version_that_finds_no_room_changes_nothing(scene: Scene) {
    let _ = scene.act(set_policy('a', events(1, OnFull::Refuse))).await;
    let [old, new] = [1, 2].map(|nth| article("x", nth, "a"));
    scene.given(&[&old]).await;
    let before = super::dump(scene.store()).await;
    assert_eq!(scene.publish(&new).await, refused(Rejection::TopicFull));
    assert_eq!(super::dump(scene.store()).await, before);
}

pub async fn a_topic_gives_up_no_more_than_it_must(scene: Scene) {
    let _ = scene.act(set_policy('a', events(2, OnFull::Evict))).await;
    let made = [1, 2, 3, 4].map(|nth| note(nth, "a"));
    scene.given(&made.iter().collect::<Vec<_>>()).await;
    let all: Vec<&Admitted> = made.iter().collect();
    let (outcome, rows) = scene.act(unlink('a', &all, UnlinkReason::Capacity)).await;
    assert_eq!(outcome, removed(&all[..2]));
    let gone = [&made[0], &made[1]].map(|event| delete(event, 'a', "", Reason::Capacity));
    assert_eq!(rows, gone);
    assert_eq!(scene.visible('a').await, ids(&[&made[3], &made[2]]));
    let not_kept = Outcome::Duplicate(Duplicate::NotKept);
    assert_eq!(scene.publish(&made[0]).await, (not_kept, vec![]));
}

pub async fn a_topic_that_refuses_gives_up_nothing(scene: Scene) {
    scene.carry("a").await;
    let [one, two] = [1, 2].map(|nth| note(nth, "a"));
    scene.given(&[&one, &two]).await;
    let _ = scene.act(set_policy('a', events(1, OnFull::Refuse))).await;
    let leave = unlink('a', &[&one, &two], UnlinkReason::Capacity);
    assert_eq!(scene.act(leave).await, (removed(&[]), vec![]));
}

pub async fn the_node_counts_each_body_once(scene: Scene) {
    scene.carry("ab").await;
    let (both, one) = (note(1, "ab"), note(2, "a"));
    let [old, new] = [3, 4].map(|nth| article("x", nth, "b"));
    scene.given(&[&both, &one, &old, &new]).await;
    assert_eq!(scene.node().await.usage, usage(&[&both, &one, &old, &new]));
    let _ = scene.act(unlink('a', &[&both, &one], PURGE)).await;
    assert_eq!(scene.node().await.usage, usage(&[&both, &old, &new]));
    let _ = scene.act(unlink('b', &[&both, &old], UnlinkReason::Topic)).await;
    assert_eq!(scene.node().await.usage, usage(&[&new]));
}

pub async fn a_full_node_refuses_or_evicts(scene: Scene) {
    scene.carry("ab").await;
    let [one, two, three] = [1, 2, 3].map(|nth| note(nth, "ab"));
    let full = Allowance { capacity: holds(2), on_full: OnFull::Refuse, ..Allowance::STANDARD };
    let _ = scene.act(allow(full)).await;
    scene.given(&[&one, &two]).await;
    assert_eq!(scene.publish(&three).await, refused(Rejection::NodeFull));
    let evict = || Act::Evict { events: ids(&[&one, &two, &three]), to: Usage::default() };
    assert_eq!(scene.act(evict()).await, (removed(&[]), vec![]), "nothing leaves for others");
    let _ = scene.act(allow(Allowance { on_full: OnFull::Evict, ..full })).await;
    scene.given(&[&three]).await;
    let (outcome, rows) = scene.act(evict()).await;
    assert_eq!(outcome, removed(&[&one]), "as many as are too many");
    let gone = [('a', "b"), ('b', "")].map(|(t, rest)| delete(&one, t, rest, Reason::Capacity));
    assert_eq!(rows, gone);
    assert_eq!(scene.node().await.usage, usage(&[&two, &three]));
}

pub async fn the_last_step_of_the_ladder_evicts(scene: Scene) {
    scene.carry("a").await;
    let made = [1, 2, 3, 4].map(|nth| note(nth, "a"));
    scene.given(&made.iter().collect::<Vec<_>>()).await;
    let events = ids(&made.iter().collect::<Vec<_>>());
    let evict = || Act::Evict { events: events.clone(), to: Usage { events: 2, bytes: u64::MAX } };
    for step in [Step::None, Step::StopBackfill, Step::StopLowPriority] {
        let _ = scene.act(allow(Allowance { step, ..Allowance::STANDARD })).await;
        assert_eq!(scene.act(evict()).await, (removed(&[]), vec![]), "{step:?}");
    }
    let step = Step::EvictOldest;
    let _ = scene.act(allow(Allowance { step, ..Allowance::STANDARD })).await;
    assert_eq!(scene.act(evict()).await.0, removed(&[&made[0], &made[1]]));
    assert_eq!(scene.act(evict()).await, (removed(&[]), vec![]), "no more than to the mark");
}

pub async fn an_evicted_winner_never_comes_back(scene: Scene) {
    let _ = scene.act(set_policy('a', events(0, OnFull::Evict))).await;
    let event = article("x", 1, "a");
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], UnlinkReason::Capacity)).await;
    let mark = scene.version(&key(&event)).await.and_then(|version| version.mark);
    assert_eq!(mark.map(|mark| mark.state), Some(MarkState::Evicted));
    let not_kept = (Outcome::Duplicate(Duplicate::NotKept), vec![]);
    assert_eq!(scene.publish(&event).await, not_kept);
    let before = UnixMillis(UnixMillis::from(NOW).0 + 1);
    let (events, tombstones) = (ids(&[&event]), vec![]);
    let _ = scene.act(Act::Forget { events, tombstones, before }).await;
    assert_eq!(scene.dedupe(&event).await, None);
    assert_eq!(scene.publish(&event).await, not_kept, "the mark remembers it");
    scene.given(&[&article("x", 2, "a")]).await;
}

pub async fn storage_without_room_takes_deletions_alone(scene: Scene) {
    scene.carry("ab").await;
    let (event, other) = (note(1, "a"), note(2, "ab"));
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('b', &[&other], PURGE)).await;
    let storage = Storage::Full { reserve_bytes: 1 << 30 };
    let _ = scene.act(allow(Allowance { storage, ..Allowance::STANDARD })).await;
    assert_eq!(scene.publish(&other).await, refused(Rejection::StorageFull));
    let request = signed(&alice(), &draft(5, 3, "a").tag("e", event.event().id()));
    scene.given(&[&request]).await;
    assert_eq!(scene.visible('a').await, ids(&[&request]));
    let leave = unlink('a', &[&event], PURGE);
    assert_eq!(scene.act(leave).await.0, removed(&[&event]), "purging works");
    let _ = scene.act(allow(Allowance::STANDARD)).await;
    scene.given(&[&other]).await;
}

pub async fn the_last_move_of_the_ladder_is_kept(scene: Scene) {
    let allowance = Allowance { capacity: holds(5), ..Allowance::STANDARD };
    let _ = scene.act(allow(allowance)).await;
    assert_eq!(scene.node().await.past.last_move, None);
    let cause = Cause::Lag { topic: topic('a'), lag_seconds: 9, lag_seconds_max: 7 };
    for (to, reason) in [
        (Step::StopBackfill, ladder::Reason::Pressure(cause)),
        (Step::None, ladder::Reason::Relief),
    ] {
        let from = scene.node().await.allowance.step;
        let moved = Move { from, to, at: UnixMillis(77), reason };
        assert_eq!(scene.act(Act::Climb(moved.clone())).await, (Outcome::Done, vec![]));
        let node = scene.node().await;
        assert_eq!(node.allowance, Allowance { step: to, ..allowance });
        assert_eq!(node.past.last_move, Some(moved));
    }
    let _ = scene.act(allow(Allowance::STANDARD)).await;
    assert!(scene.node().await.past.last_move.is_some(), "settings do not change what has been");
}

/// Whoever opens a store looks at its disk, and changes nothing else that the node allows.
pub async fn the_room_of_the_disk_is_set_by_itself(scene: Scene) {
    scene.carry("a").await;
    let allowance =
        Allowance { capacity: holds(5), step: Step::StopBackfill, ..Allowance::STANDARD };
    let _ = scene.act(allow(allowance)).await;
    let storage = Storage::Full { reserve_bytes: 7 };
    assert_eq!(scene.act(Act::SetStorage(storage)).await, (Outcome::Done, vec![]));
    assert_eq!(scene.node().await.allowance, Allowance { storage, ..allowance });
    assert_eq!(scene.publish(&note(1, "a")).await, refused(Rejection::StorageFull));
    let _ = scene.act(Act::SetStorage(Storage::Open)).await;
    assert_eq!(scene.node().await.allowance, allowance);
    scene.given(&[&note(1, "a")]).await;
}

/// Deletions are events, and enough of them would fill any disk.
pub async fn the_last_of_the_reserve_is_for_purging(scene: Scene) {
    scene.carry("ab").await;
    let [old, new] = [1, 2].map(|nth| article("x", nth, "a"));
    let event = note(3, "a");
    let request = signed(&alice(), &draft(5, 4, "ab").tag("e", id(&event)));
    let known = signed(&alice(), &draft(5, 5, "ab").tag("e", id(&new)));
    scene.given(&[&event, &new]).await;
    let storage = Storage::Spent { reserve_bytes: 1 << 20 };
    let _ = scene.act(allow(Allowance { storage, ..Allowance::STANDARD })).await;
    let before = super::dump(scene.store()).await;
    for event in [&request, &known, &old, &note(6, "a")] {
        assert_eq!(scene.publish(event).await, refused(Rejection::StorageFull));
    }
    let duplicate = Outcome::Duplicate(Duplicate::Known);
    assert_eq!(scene.publish(&event).await, (duplicate, vec![]));
    assert_eq!(super::dump(scene.store()).await, before, "nothing was written");
    let leave = unlink('a', &[&event], PURGE);
    assert_eq!(scene.act(leave).await.0, removed(&[&event]), "purging works");
    let _ = scene.act(allow(Allowance::STANDARD)).await;
    scene.given(&[&request]).await;
}

pub async fn topics_of_low_priority_are_paused_first(scene: Scene) {
    scene.carry("b").await;
    let low = IngestPolicy { priority: Priority::Low, ..IngestPolicy::default() };
    let _ = scene.act(set_policy('a', low)).await;
    let [one, two, three] = [1, 2, 3].map(|nth| note(nth, "a"));
    let at = |step| allow(Allowance { step, ..Allowance::STANDARD });
    let _ = scene.act(at(Step::StopBackfill)).await;
    scene.given(&[&one]).await;
    let _ = scene.act(at(Step::StopLowPriority)).await;
    assert_eq!(scene.publish(&two).await, refused(Rejection::TopicPaused));
    let both = note(4, "ab");
    let elsewhere = (Outcome::Accepted, vec![upsert(&both, 'b', "")]);
    assert_eq!(scene.publish(&both).await, elsewhere);
    let request = signed(&alice(), &draft(5, 5, "a").tag("e", one.event().id()));
    scene.given(&[&request]).await;
    let _ = scene.act(at(Step::None)).await;
    scene.given(&[&two, &three]).await;
}

pub async fn backfill_is_stopped_first_of_all(scene: Scene) {
    scene.carry("a").await;
    let none = IngestPolicy { backfill: Backfill::Off, ..IngestPolicy::default() };
    let _ = scene.act(set_policy('b', none)).await;
    let filled = |nth, digits| admit_from(&note(nth, digits), Source::Backfill);
    scene.given(&[&filled(1, "a"), &note(2, "b")]).await;
    assert_eq!(scene.publish(&filled(3, "b")).await, refused(Rejection::NoBackfill));
    let step = Step::StopBackfill;
    let _ = scene.act(allow(Allowance { step, ..Allowance::STANDARD })).await;
    assert_eq!(scene.publish(&filled(4, "a")).await, refused(Rejection::NoBackfill));
    scene.given(&[&note(4, "a")]).await;
}

pub async fn the_oldest_are_given_up_first_and_current_versions_last(scene: Scene) {
    scene.carry("ab").await;
    let (newest, current, old) = (note(9, "a"), article("y", 1, "a"), note(2, "a"));
    let [history, version] = [3, 8].map(|nth| article("x", nth, "ab"));
    let elsewhere = note(4, "b");
    scene.given(&[&newest, &current, &old, &history, &version, &elsewhere]).await;
    let oldest =
        async |of: Scope, most| scene.store().oldest(of, most).await.expect("they are listed");
    let in_topic = ids(&[&old, &history, &newest, &current, &version]);
    let in_node = ids(&[&newest, &old, &history, &elsewhere, &current, &version]);
    for most in (0..=6).chain([PLENTY]) {
        let expected = |all: &[kukuri_event::EventId]| all[..most.min(all.len())].to_vec();
        assert_eq!(oldest(Scope::Topic(topic('a')), most).await, expected(&in_topic));
        assert_eq!(oldest(Scope::Node, most).await, expected(&in_node));
    }
    let in_other = ids(&[&history, &elsewhere, &version]);
    assert_eq!(oldest(Scope::Topic(topic('b')), PLENTY).await, in_other);
    assert_eq!(oldest(Scope::Topic(topic('f')), PLENTY).await, []);
}
