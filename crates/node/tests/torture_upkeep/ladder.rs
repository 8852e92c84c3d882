//! The last move of the ladder is the node's, and not of the process that made it.

use std::time::Duration;

use kukuri_core::ladder::{Cause, Move, Reason, Step};
use kukuri_core::{Capacity, IngestPolicy};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::UpkeepSettings;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::node_state;

use crate::home::Home;
use crate::rig::{Node, SETTINGS, START, Time, topic};

const MINUTE: Duration = Duration::from_secs(60);

async fn last_move(node: &Node) -> (Step, Option<Move>) {
    let state = node_state(&*node.store).await.expect("the node can be read");
    (state.allowance.step, state.past.last_move)
}

async fn a_move_survives_a_restart(home: Home) {
    let time = Time::start();
    let capacity = Capacity { max_events: Some(10), max_bytes: None };
    let settings = UpkeepSettings { capacity, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, None);
    node.set_topic('a', IngestPolicy::default()).await;
    for nth in 0..10 {
        let draft = Draft::new(1, UnixSeconds(START.0 - nth)).tag("t", topic('a'));
        assert_eq!(node.say(&Author::numbered(1).sign(&draft)).await, "");
    }
    node.keep().await;
    assert_eq!(last_move(&node).await, (Step::None, None));
    time.pass(MINUTE);
    node.keep().await;
    let reason = Reason::Pressure(Cause::Events { events: 10, events_max: 9 });
    let (from, to) = (Step::None, Step::StopBackfill);
    let up = Move { from, to, at: time.now(), reason };
    assert_eq!(last_move(&node).await, (to, Some(up.clone())));
    node.end().await;

    time.pass(MINUTE);
    let mut node = Node::start(home.open().await, &time);
    assert_eq!(last_move(&node).await, (to, Some(up.clone())));
    for minute in 0..=5 {
        assert_eq!(last_move(&node).await, (to, Some(up.clone())), "after {minute} minutes");
        node.keep().await;
        time.pass(MINUTE);
    }
    let (step, down) = last_move(&node).await;
    let down = down.expect("the ladder moved");
    assert_eq!((step, down.from, down.to), (Step::None, Step::StopBackfill, Step::None));
    assert_eq!(down.reason, Reason::Relief);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_survives_a_restart_on_sqlite() {
    a_move_survives_a_restart(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_survives_a_restart_on_postgres() {
    a_move_survives_a_restart(Home::postgres()).await;
}
