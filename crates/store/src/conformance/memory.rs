//! What is remembered for a time, and who looks after it.

use kukuri_core::admission::{Age, Verdict};
use kukuri_core::{
    Act, Admitted, Allowance, Duplicate, FUTURE_SECONDS_BOUND, Fence, Holder, Lease, Outcome,
    Rejection, Removed, Source, Task, TombstoneKey, UnixMillis,
};
use kukuri_event::UnixSeconds;

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, draft, id, ids, note, signed, topic, unlink,
};
use super::signing::{Draft, check_by};
use crate::{Entry, Forgettable, Place};

const MINUTE_MS: u32 = 60_000;

/// A millisecond so many after everything happens.
fn after(millis: i64) -> UnixMillis {
    UnixMillis(UnixMillis::from(NOW).0 + millis)
}

fn forgotten(count: u64) -> Outcome {
    Outcome::Removed(Removed { events: count, ..Removed::default() })
}

fn forget(events: &[&Admitted], tombstones: Vec<TombstoneKey>, before: UnixMillis) -> Act {
    Act::Forget { events: ids(events), tombstones, before }
}

fn tombstone(target: &Admitted) -> TombstoneKey {
    TombstoneKey { target: id(target), pubkey: alice().pubkey() }
}

async fn forgettable(scene: &Scene, before: UnixMillis) -> Forgettable {
    scene.store().forgettable(before, PLENTY).await.expect("it is listed")
}

pub async fn ids_are_forgotten_after_their_time(scene: Scene) {
    scene.carry("a").await;
    let (event, [stale, winner]) = (note(1, "a"), [2, 3].map(|nth| article("x", nth, "a")));
    scene.given(&[&event, &winner]).await;
    assert_eq!(scene.publish(&stale).await.0, Outcome::Duplicate(Duplicate::Stale));
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    assert_eq!(forgettable(&scene, after(0)).await, Forgettable::default());
    let mut listed = forgettable(&scene, after(1)).await.events;
    listed.sort_unstable();
    let mut expected = ids(&[&event, &stale]);
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let all = [&event, &stale];
    assert_eq!(scene.act(forget(&all, vec![], after(0))).await, (forgotten(0), vec![]));
    assert!(scene.dedupe(&event).await.is_some());
    assert_eq!(scene.act(forget(&all, vec![], after(1))).await, (forgotten(2), vec![]));
    assert_eq!((scene.dedupe(&event).await, scene.dedupe(&stale).await), (None, None));
    assert_eq!(forgettable(&scene, after(1)).await, Forgettable::default());
}

pub async fn what_is_stored_is_not_forgotten(scene: Scene) {
    scene.carry("a").await;
    let (event, hidden) = (note(1, "a"), note(2, "a"));
    let request = signed(&alice(), &draft(5, 3, "a").tag("e", id(&hidden)));
    scene.given(&[&event, &hidden, &request]).await;
    let sighting = kukuri_core::Sighting { event_id: id(&event), last_seen_at: after(5), count: 2 };
    let _ = scene.act(Act::Sightings(vec![sighting])).await;
    assert_eq!(forgettable(&scene, after(PLENTY as i64)).await.events, []);
    let act = forget(&[&event, &hidden, &request], vec![], after(PLENTY as i64));
    assert_eq!(scene.act(act).await, (forgotten(0), vec![]));
    assert_eq!(scene.dedupe(&event).await.map(|row| row.seen_count), Some(3));
}

pub async fn deletions_are_forgotten_after_their_time(scene: Scene) {
    scene.carry("a").await;
    let (hidden, never) = (note(1, "a"), note(2, "a"));
    let request = draft(5, 3, "a").tag("e", id(&hidden)).tag("e", id(&never));
    let request = signed(&alice(), &request);
    scene.given(&[&hidden, &request]).await;
    let keys = vec![tombstone(&hidden), tombstone(&never)];
    assert_eq!(forgettable(&scene, after(0)).await.tombstones, []);
    let mut listed = forgettable(&scene, after(1)).await.tombstones;
    listed.sort_unstable();
    let mut expected = keys.clone();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(scene.act(forget(&[], keys.clone(), after(0))).await, (forgotten(0), vec![]));
    assert_eq!(scene.publish(&never).await.0, Outcome::Refused(Rejection::Deleted));
    assert_eq!(scene.act(forget(&[], keys, after(1))).await, (forgotten(2), vec![]));
    assert_eq!(scene.tombstone(&hidden, &alice()).await, None);
    let deleted = Outcome::Refused(Rejection::Deleted);
    assert_eq!(scene.publish(&hidden).await, (deleted, vec![]), "a deletion stays applied");
}

pub async fn a_second_request_is_remembered_from_then_on(scene: Scene) {
    scene.carry("a").await;
    let target = note(1, "a");
    let request = |nth| signed(&alice(), &draft(5, nth, "a").tag("e", id(&target)));
    scene.given(&[&request(2)]).await;
    let later = UnixSeconds(NOW.0 + 100);
    let _ = scene.act_at(later, Act::Publish(request(3))).await;
    let known = scene.tombstone(&target, &alice()).await.expect("it is remembered");
    assert_eq!(known.recorded_at, UnixMillis::from(later));
    assert_eq!(known.deletion_event_id, id(&request(2)));
}

/// The event again, through the one door that takes what may have been forgotten.
fn of_any_age(event: &Admitted) -> Admitted {
    let checked = check_by(event.body().json(), NOW, Age::Any).expect("it was admitted before");
    checked.admit(Verdict::Admit, Source::Import, None).expect("the verdict is to admit")
}

pub async fn what_was_forgotten_is_too_old(scene: Scene) {
    scene.carry("a").await;
    let (event, other) = (note(1, "a"), note(2, "a"));
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    assert_eq!(scene.publish(&event).await.0, Outcome::Duplicate(Duplicate::NotKept));
    assert_eq!(scene.node().await.past.forgotten_until, None);
    let _ = scene.act(forget(&[&event], vec![], after(1))).await;
    assert_eq!(scene.node().await.past.forgotten_until, Some(after(0)));
    // However long ids are remembered from now on, this one is not.
    let too_old = (Outcome::Refused(Rejection::TooOld), vec![]);
    for event in [&event, &other] {
        assert_eq!(scene.publish(event).await, too_old);
    }
    let reach = NOW.saturating_add(FUTURE_SECONDS_BOUND);
    for (created_at, expected) in
        [(reach, Outcome::Refused(Rejection::TooOld)), (reach.saturating_add(1), Outcome::Accepted)]
    {
        let young = Draft::new(1, created_at).tag("t", topic('a'));
        let young = alice().admit(&young, created_at);
        assert_eq!(scene.act_at(created_at, Act::Publish(young)).await.0, expected);
    }
    // Versions have marks, which are never forgotten.
    assert_eq!(scene.publish(&article("x", 3, "a")).await.0, Outcome::Accepted);
    assert_eq!(scene.publish(&of_any_age(&event)).await.0, Outcome::Accepted);
}

/// Nothing of its first time is left, as if the two had come in batches of their own.
pub async fn what_is_forgotten_and_comes_again_at_once_is_new(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    let again = Act::Publish(of_any_age(&event));
    let decision = scene.batch(vec![forget(&[&event], vec![], after(1)), again]).await;
    assert_eq!(decision.outcomes[1], Outcome::Accepted);
    let number = decision.rows.last().map(|row| row.seq);
    assert_eq!(scene.dedupe(&event).await.and_then(|row| row.seq), number);
    assert_eq!(forgettable(&scene, after(1)).await, Forgettable::default());
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    assert_eq!(scene.dedupe(&event).await.and_then(|row| row.seq), number);
    let all = scene.store().page(Place::Dedupe(None), PLENTY).await.expect("it is listed");
    let [Entry::Dedupe(listed, row)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((*listed, row.seq), (id(&event), number));
}

pub async fn how_much_was_forgotten_only_grows(scene: Scene) {
    scene.carry("a").await;
    let (early, late) = (note(1, "a"), note(2, "a"));
    let request = signed(&alice(), &draft(5, 3, "a").tag("e", id(&late)));
    scene.given(&[&early]).await;
    let _ = scene.act(unlink('a', &[&early], PURGE)).await;
    let _ = scene.act_at(seconds(5), Act::Publish(request)).await;
    let all = after(PLENTY as i64);
    let _ = scene.act(forget(&[], vec![tombstone(&late)], all)).await;
    let _ = scene.act(forget(&[&early], vec![], all)).await;
    assert_eq!(scene.node().await.past.forgotten_until, Some(seconds(5).into()));
}

/// A note may be dated long after the request for its deletion. Once it has come, the request is
/// remembered for as long as the note could be taken in.
pub async fn a_deletion_is_remembered_from_the_date_of_what_it_refused(scene: Scene) {
    scene.carry("a").await;
    let later = seconds(1_000_000);
    let target = alice().admit(&Draft::new(1, later).tag("t", topic('a')), later);
    let request = signed(&alice(), &draft(5, 1, "a").tag("e", id(&target)));
    scene.given(&[&request]).await;
    let refused = Outcome::Refused(Rejection::Deleted);
    assert_eq!(scene.act_at(later, Act::Publish(target.clone())).await, (refused, vec![]));
    let known = scene.tombstone(&target, &alice()).await.expect("it is remembered");
    assert_eq!(known.recorded_at, later.into());
    assert_eq!(forgettable(&scene, later.into()).await.tombstones, []);
    let key = vec![tombstone(&target)];
    assert_eq!(scene.act(forget(&[], key.clone(), later.into())).await, (forgotten(0), vec![]));
    let end = UnixMillis(UnixMillis::from(later).0 + 1);
    assert_eq!(forgettable(&scene, end).await.tombstones, key);
}

fn hold(holder: u64) -> Act {
    Act::Hold { task: Task::Upkeep, holder: Holder(holder), lease_ms: MINUTE_MS }
}

fn held(fence: u64, holder: u64, until: UnixSeconds) -> Outcome {
    let (fence, holder) = (Fence(fence), Some(Holder(holder)));
    Outcome::Held(Lease { fence, holder, until: until.into() })
}

fn seconds(seconds: i64) -> UnixSeconds {
    NOW.saturating_add(seconds)
}

pub async fn a_task_is_one_instances(scene: Scene) {
    assert_eq!(scene.act(hold(1)).await.0, held(1, 1, seconds(60)));
    assert_eq!(scene.act_at(seconds(59), hold(2)).await.0, Outcome::HeldElsewhere);
    assert_eq!(scene.act_at(seconds(30), hold(1)).await.0, held(1, 1, seconds(90)));
    assert_eq!(scene.act_at(seconds(60), hold(2)).await.0, Outcome::HeldElsewhere);
    let release = |holder| Act::Release { task: Task::Upkeep, holder: Holder(holder) };
    assert_eq!(scene.act(release(2)).await.0, Outcome::HeldElsewhere);
    assert_eq!(scene.act(release(1)).await.0, Outcome::Done);
    assert_eq!(scene.act_at(seconds(61), hold(2)).await.0, held(2, 2, seconds(121)));
    let lease = scene.node().await.leases.get(Task::Upkeep);
    assert_eq!(lease.map(|lease| lease.holder), Some(Some(Holder(2))));
}

pub async fn a_lease_that_ran_out_changes_hands(scene: Scene) {
    assert_eq!(scene.act(hold(1)).await.0, held(1, 1, seconds(60)));
    assert_eq!(scene.act_at(seconds(60), hold(2)).await.0, held(2, 2, seconds(120)));
    assert_eq!(scene.act_at(seconds(61), hold(1)).await.0, Outcome::HeldElsewhere);
}

pub async fn a_deposed_instance_moves_nothing(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    scene.given(&[&event]).await;
    let fenced = |fence, act| {
        let act = Box::new(act);
        Act::Fenced { task: Task::Upkeep, fence: Fence(fence), act }
    };
    let purge = || unlink('a', &[&event], PURGE);
    assert_eq!(scene.act(fenced(0, purge())).await, (Outcome::HeldElsewhere, vec![]));
    let _ = scene.act(hold(1)).await;
    let _ = scene.act_at(seconds(60), hold(2)).await;
    let before = super::dump(scene.store()).await;
    for act in [purge(), Act::Allow(Allowance::STANDARD), hold(1)] {
        let late = scene.act_at(seconds(61), fenced(1, act)).await;
        assert_eq!(late, (Outcome::HeldElsewhere, vec![]));
    }
    assert_eq!(super::dump(scene.store()).await, before);
    let (outcome, rows) = scene.act_at(seconds(200), fenced(2, purge())).await;
    assert!(outcome.is_ok() && rows.len() == 1, "who took it last may go on until another does");
}
