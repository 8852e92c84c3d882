//! The last move of the ladder is the node's, and not of the process that made it; and a consumer that is
//! behind moves it as well.

use std::time::Duration;

use kukuri_core::ladder::{Cause, Move, Reason, Step};
use kukuri_core::{Capacity, IngestPolicy, Priority};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::UpkeepSettings;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::node_state;
use tokio::sync::watch;

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

/// Everything but the oldest events is given up for a consumer that is behind, and comes back when it has caught up.
async fn a_consumer_that_is_behind(home: Home) {
    let time = Time::start();
    let lag = watch::Sender::new(0);
    let mut node = Node::start(home.open().await, &time);
    node.hear(lag.subscribe());
    let patient = IngestPolicy { max_lag_seconds: Some(100), ..IngestPolicy::default() };
    node.set_topic('a', patient).await;
    let low = IngestPolicy { priority: Priority::Low, ..IngestPolicy::default() };
    node.set_topic('b', low).await;
    let note = |digit: char, nth: i64| {
        let draft = Draft::new(1, UnixSeconds(START.0 - nth)).tag("t", topic(digit));
        Author::numbered(1).sign(&draft)
    };
    let said = async |node: &Node, nth: i64| {
        (node.say(&note('a', nth)).await, node.say(&note('b', nth)).await)
    };
    let taken = String::new();
    let refused = "restricted: topic is paused, the node is short of room".to_owned();
    lag.send_replace(100);
    let mut steps = Vec::new();
    for minute in 0..8 {
        if minute == 2 {
            assert_eq!(said(&node, 0).await, (taken.clone(), taken.clone()));
            lag.send_replace(101);
        }
        node.keep().await;
        steps.push(last_move(&node).await.0);
        time.pass(MINUTE);
    }
    let (none, first, second) = (Step::None, Step::StopBackfill, Step::StopLowPriority);
    let expected = [none, none, none, first, second, second, second, second];
    assert_eq!(steps, expected, "the last step would be more rows for who is behind");
    let reason = last_move(&node).await.1.map(|moved| moved.reason.name());
    assert_eq!(reason, Some("lag"));
    assert_eq!(said(&node, 1).await, (taken.clone(), refused));
    assert_eq!(node.visible('a').await.len(), 2);
    lag.send_replace(0);
    for _ in 0..12 {
        node.keep().await;
        time.pass(MINUTE);
    }
    assert_eq!(last_move(&node).await.0, none);
    assert_eq!(said(&node, 2).await, (taken.clone(), taken));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_behind_moves_the_ladder_on_sqlite() {
    a_consumer_that_is_behind(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_behind_moves_the_ladder_on_postgres() {
    a_consumer_that_is_behind(Home::postgres()).await;
}
