//! A lane ends by draining or by being dropped; either way everybody hears.

use std::time::Duration;

use kukuri_core::Outcome;
use kukuri_lane::{DrainError, LaneConfig, LaneError};

use crate::rig::{Fault, Rig, away, lane, note, notes, publish, publish_all};

const CONFIG: LaneConfig = LaneConfig::STANDARD;
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_is_queued_and_takes_nothing_more() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let first = lane.submit(publish(&note(100))).await.unwrap();
    rig.called(1).await;
    let queued = lane.submit_all(publish_all(&notes(20))).await.unwrap();
    rig.fail(1, Fault::Before(away()));
    let (drained, ()) = tokio::join!(lane.drain(LONG), async {
        let refused = lane.run(publish(&note(101))).await;
        assert_eq!(refused, Err(LaneError::Closed));
        rig.let_through(3);
    });
    assert_eq!(drained.unwrap().commands, 21);
    assert_eq!(first.await, Ok(Outcome::Accepted));
    assert_eq!(queued.await, vec![Ok(Outcome::Accepted); 20]);
    assert_eq!(lane.run(publish(&note(102))).await, Err(LaneError::Closed));
    assert_eq!(lane.drain(LONG).await.unwrap().commands, 21, "draining twice is draining once");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_hears_that_the_lane_closes() {
    let rig = Rig::closed();
    let queue_commands_max = 1;
    let config = LaneConfig { queue_commands_max, ..CONFIG };
    let lane = lane(&rig, config).await;
    let first = lane.submit(publish(&note(0))).await.unwrap();
    rig.called(1).await;
    let second = lane.submit(publish(&note(1))).await.unwrap();
    let (waiting, drained) = tokio::join!(lane.run(publish(&note(2))), async {
        tokio::task::yield_now().await;
        rig.let_through(2);
        lane.drain(LONG).await
    });
    assert_eq!(waiting, Err(LaneError::Closed));
    assert!(drained.is_ok());
    assert!(first.await.is_ok() && second.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn draining_has_a_deadline() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let ticket = lane.submit(publish(&note(0))).await.unwrap();
    let short = Duration::from_secs(10);
    assert_eq!(lane.drain(short).await, Err(DrainError::Late(short)));
    assert_eq!(ticket.await, Err(LaneError::Closed));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_lane_stops_it() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let one = lane.submit(publish(&note(0))).await.unwrap();
    rig.called(1).await;
    let three = lane.submit_all(publish_all(&notes(3))).await.unwrap();
    let mut health = lane.health();
    drop(lane);
    assert_eq!(one.await, Err(LaneError::Closed));
    assert_eq!(three.await, vec![Err(LaneError::Closed); 3]);
    assert!(health.changed().await.is_err(), "the task is gone");
}

#[tokio::test(start_paused = true)]
async fn giving_up_a_ticket_does_not_give_up_the_command() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    drop(lane.submit(publish(&note(0))).await.unwrap());
    rig.let_through(1);
    lane.drain(LONG).await.unwrap();
    assert_eq!(rig.rows().await.len(), 1);
}
