//! Every class of error, before and after a commit: nothing is lost, nothing doubled, and nothing
//! acknowledged that is not durable.

use std::collections::BTreeMap;
use std::time::Duration;

use kukuri_core::{Duplicate, Outcome, Seq};
use kukuri_event::EventId;
use kukuri_lane::{Answer, BatchLimits, Health, LaneConfig, LaneError};
use kukuri_store::StoreError;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::rig::{Fault, Rig, away, lane, note, notes, publish, publish_all};

const CONFIG: LaneConfig = LaneConfig::STANDARD;
const ACCEPTED: Answer = Ok(Outcome::Accepted);
const KNOWN: Answer = Ok(Outcome::Duplicate(Duplicate::Known));

fn conflict() -> StoreError {
    StoreError::Conflict { head: Seq(9) }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_run_again() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    (0..5).for_each(|call| rig.fail(call, Fault::Before(conflict())));
    assert_eq!(lane.run(publish(&note(0))).await, ACCEPTED);
    assert_eq!((lane.stats().conflicts, rig.calls()), (5, 6));
}

#[tokio::test(start_paused = true)]
async fn endless_conflicts_are_answered() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    (0..1000).for_each(|call| rig.fail(call, Fault::Before(conflict())));
    let answer = lane.run(publish(&note(0))).await;
    assert_eq!(answer, Err(LaneError::Unavailable(conflict())));
    assert_eq!(rig.calls(), u64::from(CONFIG.conflicts_max) + 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_run_again_and_never_doubles() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    rig.fail(0, Fault::After(away()));
    rig.fail(1, Fault::After(conflict()));
    let answers = lane.submit_all(publish_all(&notes(3))).await.unwrap().await;
    // It was committed by the first try, which nobody heard of: what counts is that it is OK.
    assert_eq!(answers, [KNOWN, KNOWN, KNOWN]);
    assert_eq!(rig.rows().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    (0..4).for_each(|call| rig.fail(call, Fault::Before(away())));
    let started = Instant::now();
    assert_eq!(lane.run(publish(&note(0))).await, ACCEPTED);
    // The pauses of 50, 100, 200 and 400 ms, and the granularity of the timer.
    let waited = started.elapsed();
    assert!((750..800).contains(&waited.as_millis()), "{waited:?}");
    assert_eq!(lane.stats().retries, 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_given_up_batch_by_batch() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    (0..10).for_each(|call| rig.fail(call, Fault::Before(away())));
    let started = Instant::now();
    let answer = lane.run(publish(&note(0))).await;
    assert_eq!(answer, Err(LaneError::Unavailable(away())));
    assert_eq!(answer.unwrap_err().to_string(), "error: storage unavailable");
    assert!(started.elapsed() <= CONFIG.unavailable_wait_max);
    assert_eq!(lane.run(publish(&note(0))).await, ACCEPTED);
    assert_eq!(*lane.health().borrow(), Health::Running);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_unavailable() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let started = Instant::now();
    let answer = lane.run(publish(&note(0))).await;
    assert!(matches!(answer, Err(LaneError::Unavailable(_))), "{answer:?}");
    assert!(started.elapsed() < CONFIG.apply_wait_max + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_told_and_asked_again_by_the_next_batch() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let full = StoreError::Full("no space".into());
    rig.fail(0, Fault::Before(full.clone()));
    let answer = lane.run(publish(&note(0))).await;
    assert_eq!(answer, Err(LaneError::Full(full)));
    assert_eq!(answer.unwrap_err().to_string(), "error: storage full");
    assert_eq!(lane.run(publish(&note(0))).await, ACCEPTED);
    assert_eq!(lane.stats().batches_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn after_an_io_error_nothing_is_ok_until_a_clean_reopen() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let io = StoreError::Io("fsync".into());
    rig.fail(0, Fault::After(io.clone()));
    (0..3).for_each(|_| rig.fail_reopen(away()));
    let failed = Err(LaneError::Failed(io.clone()));
    assert_eq!(lane.run(publish(&note(0))).await, failed);
    // The rig panics if the lane asks it to write before it was opened again.
    assert_eq!(lane.run(publish(&note(1))).await, failed);
    assert_eq!(*lane.health().borrow(), Health::Failed(io));
    let mut health = lane.health();
    health.wait_for(|health| *health == Health::Running).await.unwrap();
    assert_eq!(lane.run(publish(&note(1))).await, ACCEPTED);
    assert_eq!(lane.run(publish(&note(0))).await, KNOWN);
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_store_is_never_written_again() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let corrupt = StoreError::Corrupt("page 7".into());
    rig.fail(0, Fault::Before(corrupt.clone()));
    let refused = Err(LaneError::Corrupt(corrupt.clone()));
    assert_eq!(lane.run(publish(&note(0))).await, refused);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(lane.run(publish(&note(0))).await, refused);
    assert_eq!(*lane.health().borrow(), Health::Corrupt(corrupt));
    assert_eq!(rig.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reopen_that_finds_damage_ends_the_writing() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    rig.fail(0, Fault::Before(StoreError::Io("disk".into())));
    rig.fail_reopen(StoreError::Corrupt("page 7".into()));
    assert!(lane.run(publish(&note(0))).await.is_err());
    let mut health = lane.health();
    let damaged = |health: &Health| matches!(health, Health::Corrupt(_));
    health.wait_for(damaged).await.unwrap();
    assert!(matches!(lane.run(publish(&note(0))).await, Err(LaneError::Corrupt(_))));
}

fn fault() -> impl Strategy<Value = Fault> {
    let error = prop_oneof![
        4 => Just(away()),
        2 => Just(conflict()),
        2 => Just(StoreError::Full("space".into())),
        1 => Just(StoreError::Io("disk".into())),
    ];
    (error, any::<bool>()).prop_map(|(error, committed)| match (error, committed) {
        // A store without space and one with another head have written nothing.
        (error @ (StoreError::Full(_) | StoreError::Conflict { .. }), _) => Fault::Before(error),
        (error, false) => Fault::Before(error),
        (error, true) => Fault::After(error),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Senders that send again after an error, against faults at random calls.
    #[test]
    fn faults_at_random_lose_nothing_and_double_nothing(
        faults in prop::collection::hash_map(0_u64..60, fault(), 0..40),
        parcels in prop::collection::vec(1_i64..12, 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run_with_faults(faults.into_iter().collect(), parcels));
    }
}

async fn run_with_faults(faults: BTreeMap<u64, Fault>, parcels: Vec<i64>) {
    let rig = Rig::open();
    let commands_max = 5;
    let batch = BatchLimits { commands_max, ..BatchLimits::STANDARD };
    let lane = lane(&rig, LaneConfig { batch, ..CONFIG }).await;
    faults.into_iter().for_each(|(call, fault)| rig.fail(call, fault));
    let mut next = 0;
    let mut sent = Vec::new();
    for size in parcels {
        let events: Vec<_> = (next..next + size).map(note).collect();
        next += size;
        loop {
            let answers = lane.submit_all(publish_all(&events)).await.unwrap().await;
            let head = rig.rows().await;
            for (event, answer) in events.iter().zip(&answers) {
                let stored = head.iter().any(|row| row.event_id == event.event().id());
                assert!(answer.is_err() || stored, "acknowledged and not there");
            }
            if answers.iter().all(Result::is_ok) {
                break;
            }
            lane.health().wait_for(|health| *health == Health::Running).await.unwrap();
        }
        sent.extend(events.iter().map(|event| event.event().id()));
    }
    let rows = rig.rows().await;
    let mut fed: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
    fed.sort_unstable();
    sent.sort_unstable();
    assert_eq!(fed, sent, "every event once");
    let seqs = rows.iter().map(|row| row.seq.0);
    assert!(seqs.eq(1..=i64::try_from(sent.len()).unwrap()), "gapless");
}
