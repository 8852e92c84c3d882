//! What a lane does beside committing: ephemeral events and sightings.

use std::time::Duration;

use kukuri_core::{Act, Duplicate, Outcome, Removed};
use kukuri_event::UnixSeconds;
use kukuri_lane::LaneConfig;
use kukuri_store::StoreError;
use kukuri_store::conformance::signing::{Author, Draft};

use crate::rig::{Fault, NOW, Rig, event, lane, note, notes, publish, publish_all};

const CONFIG: LaneConfig = LaneConfig::STANDARD;
const EPHEMERAL: u16 = 20_001;

#[tokio::test(start_paused = true)]
async fn ephemeral_events_are_passed_on_once_in_order_after_their_batch() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let mut listener = lane.ephemerals();
    let (a, b) = (event(EPHEMERAL, 1), event(EPHEMERAL, 2));
    let acts = vec![publish(&a), publish(&note(0)), publish(&b), publish(&a)];
    let tickets = lane.submit_all(acts).await.unwrap();
    rig.called(1).await;
    let early = tokio::time::timeout(Duration::from_secs(1), listener.next()).await;
    assert!(early.is_err(), "passed on before the batch was committed");
    rig.let_through(1);
    let passed = Ok(Outcome::Ephemeral);
    let again = Ok(Outcome::Duplicate(Duplicate::Known));
    let stored = Ok(Outcome::Accepted);
    assert_eq!(tickets.await, [passed.clone(), stored, passed, again]);
    for expected in [&a, &b] {
        let heard = listener.next().await.unwrap();
        assert_eq!(heard.event().id(), expected.event().id());
    }
    lane.drain(Duration::from_secs(1)).await.unwrap();
    drop(lane);
    assert!(listener.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_misses_the_oldest_and_they_are_counted() {
    let rig = Rig::open();
    let ephemerals_max = 4;
    let config = LaneConfig { ephemerals_max, ..CONFIG };
    let lane = lane(&rig, config).await;
    let mut listener = lane.ephemerals();
    let events: Vec<_> = (0..10).map(|nth| event(EPHEMERAL, nth)).collect();
    let answers = lane.submit_all(publish_all(&events)).await.unwrap().await;
    assert_eq!(answers, vec![Ok(Outcome::Ephemeral); 10]);
    for expected in &events[6..] {
        assert_eq!(listener.next().await.unwrap().event().id(), expected.event().id());
    }
    assert_eq!(lane.stats().ephemerals_dropped, 6);
}

#[tokio::test(start_paused = true)]
async fn duplicates_are_added_up_and_written_after_a_while() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let note = note(0);
    let acts = vec![publish(&note), publish(&note), publish(&note)];
    assert_eq!(lane.submit_all(acts).await.unwrap().await.len(), 3);
    lane.sighted([note.event().id()]);
    assert_eq!(rig.dedupe(&note).await.unwrap().seen_count, 1);
    tokio::time::advance(CONFIG.sightings_flush_interval).await;
    rig.called(2).await;
    assert_eq!(rig.dedupe(&note).await.unwrap().seen_count, 4);
    assert_eq!(rig.batch_sizes(), [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn sightings_are_written_when_the_lane_drains() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let note = note(0);
    for _ in 0..5 {
        assert!(lane.run(publish(&note)).await.is_ok());
    }
    lane.drain(Duration::from_secs(1)).await.unwrap();
    assert_eq!(rig.dedupe(&note).await.unwrap().seen_count, 5);
}

#[tokio::test(start_paused = true)]
async fn the_first_arrival_of_a_stale_version_is_no_sighting() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let version = |age: i64| {
        let draft = Draft::new(0, UnixSeconds(NOW.0 - age)).tag("t", "kukuri:global");
        Author::numbered(1).admit(&draft, NOW)
    };
    let (new, old) = (version(1), version(2));
    assert_eq!(lane.run(publish(&new)).await, Ok(Outcome::Accepted));
    let stale = Ok(Outcome::Duplicate(Duplicate::Stale));
    assert_eq!(lane.run(publish(&old)).await, stale);
    assert_eq!(lane.run(publish(&old)).await, stale);
    lane.drain(Duration::from_secs(1)).await.unwrap();
    assert_eq!(rig.dedupe(&old).await.unwrap().seen_count, 2);
}

#[tokio::test(start_paused = true)]
async fn sightings_are_bounded_and_what_is_dropped_is_counted() {
    let rig = Rig::open();
    let sightings_max = 3;
    let config = LaneConfig { sightings_max, ..CONFIG };
    let lane = lane(&rig, config).await;
    let events = notes(10);
    let acts = [publish_all(&events), publish_all(&events)].concat();
    assert_eq!(lane.submit_all(acts).await.unwrap().await.len(), 20);
    assert_eq!(lane.stats().sightings_dropped, 7);
    // A flush that fails is not tried again: it is best effort.
    rig.fail(1, Fault::Before(StoreError::Full("space".into())));
    lane.drain(Duration::from_secs(1)).await.unwrap();
    assert_eq!(lane.stats().sightings_dropped, 10);
}

#[tokio::test(start_paused = true)]
async fn heads_follow_the_store() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let mut heads = lane.heads();
    assert!(lane.run(publish(&note(0))).await.is_ok());
    assert_eq!(heads.borrow_and_update().0, 1);
    let nothing = Outcome::Removed(Removed::default());
    assert_eq!(lane.run(Act::Expire(Vec::new())).await, Ok(nothing));
    assert_eq!(lane.heads().borrow().0, 1);
}
