//! The last move of the ladder is the node's, and not of the process that made it; each one is in the log; and a
//! consumer that is behind moves it as well.

use std::time::Duration;

use kukuri_core::ladder::{Cause, Move, Reason, Step};
use kukuri_core::{Act, Allowance, Capacity, IngestPolicy, OnFull, Priority};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::UpkeepSettings;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::node_state;
use serde_json::Value;
use tokio::sync::watch;

use crate::home::Home;
use crate::log::Log;
use crate::rig::{Node, SETTINGS, START, Time, topic};

const MINUTE: Duration = Duration::from_secs(60);

pub async fn last_move(node: &Node) -> (Step, Option<Move>) {
    let state = node_state(&*node.store).await.expect("the node can be read");
    (state.allowance.step, state.past.last_move)
}

/// Takes in so many notes of one topic.
async fn hold_notes(node: &Node, count: i64) {
    node.set_topic('a', IngestPolicy::default()).await;
    for nth in 0..count {
        let draft = Draft::new(1, UnixSeconds(START.0 - nth)).tag("t", topic('a'));
        assert_eq!(node.say(&Author::numbered(1).sign(&draft)).await, "");
    }
}

async fn a_move_survives_a_restart(home: Home) {
    let time = Time::start();
    let capacity = Capacity { max_events: Some(10), max_bytes: None };
    let settings = UpkeepSettings { capacity, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, None);
    hold_notes(&node, 10).await;
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

/// A node whose limits stay as they are lets the oldest go until everything that it gave up can come back. Events
/// left only until it was just below where the pressure begins, and so the ladder stayed up for ever.
async fn the_ladder_comes_down_by_itself(home: Home) {
    let time = Time::start();
    let capacity = Capacity { max_events: Some(100), max_bytes: None };
    let settings = UpkeepSettings { capacity, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, None);
    hold_notes(&node, 100).await;
    let log = Log::begin();
    let mut steps = Vec::new();
    // Three minutes up, some to let go of a hundredth in each, and three times five down.
    for _ in 0..60 {
        node.keep().await;
        time.pass(MINUTE);
        steps.push(last_move(&node).await.0);
    }
    let highest = steps.iter().max().copied();
    assert_eq!((highest, steps.last().copied()), (Some(Step::EvictOldest), Some(Step::None)));
    // Nine tenths of the soft limit, which is nine tenths of a hundred.
    assert_eq!(node.visible('a').await.len(), 81);
    assert_eq!(moves_said(&log), moves(&steps));
    node.end().await;
}

/// From where to where the ladder moved, by where it was found minute by minute.
fn moves(steps: &[Step]) -> Vec<(String, String)> {
    let found = [Step::None].iter().chain(steps);
    let moved = found.zip(steps).filter(|(from, to)| from != to);
    moved.map(|(from, to)| (from.as_str().to_owned(), to.as_str().to_owned())).collect()
}

/// The same by the log.
fn moves_said(log: &Log) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let said = log.said("the ladder moved");
    said.iter().map(|line| (text(&line["from"]), text(&line["to"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ladder_comes_down_by_itself_on_sqlite() {
    the_ladder_comes_down_by_itself(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ladder_comes_down_by_itself_on_postgres() {
    the_ladder_comes_down_by_itself(Home::postgres()).await;
}

/// An operator who wants new events refused keeps the old ones.
async fn who_refuses_lets_nothing_go(home: Home) {
    let time = Time::start();
    let capacity = Capacity { max_events: Some(10), max_bytes: None };
    let settings = UpkeepSettings { capacity, on_full: OnFull::Refuse, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, None);
    hold_notes(&node, 10).await;
    for _ in 0..10 {
        node.keep().await;
        time.pass(MINUTE);
    }
    assert_eq!(last_move(&node).await.0, Step::StopLowPriority);
    assert_eq!(node.visible('a').await.len(), 10);

    // As an older program left it, which knew of no top.
    let allowance = node_state(&*node.store).await.expect("the node can be read").allowance;
    let act = Act::Allow(Allowance { step: Step::EvictOldest, ..allowance });
    assert!(node.lane.run(act).await.expect("the lane answers").is_ok());
    node.resettle(settings);
    for _ in 0..2 {
        node.keep().await;
        time.pass(MINUTE);
        assert_eq!(last_move(&node).await.0, Step::StopLowPriority);
    }
    assert_eq!(node.visible('a').await.len(), 10);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_lets_nothing_go_on_sqlite() {
    who_refuses_lets_nothing_go(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_lets_nothing_go_on_postgres() {
    who_refuses_lets_nothing_go(Home::postgres()).await;
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
