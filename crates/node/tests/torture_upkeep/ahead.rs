//! A clock that is ahead: what left by it would not come back when it is set right.

use std::time::Duration;

use kukuri_core::IngestPolicy;
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};

use crate::home::Home;
use crate::rig::{DAY, Node, START, Time, topic};

/// Longer than anything is remembered for.
const AGE: Duration = Duration::from_secs(200 * 24 * 60 * 60);
const ROUND: Duration = Duration::from_secs(60);

fn note(nth: i64) -> String {
    let draft = Draft::new(1, UnixSeconds(START.0 + nth)).tag("t", topic('a'));
    Author::numbered(1).sign(&draft)
}

/// What is visible after a round, and whether the clock was doubted in it.
async fn round(node: &mut Node) -> (usize, bool) {
    node.keep().await;
    let doubted = node.keeper.upkept().borrow().clock_ahead > Duration::ZERO;
    (node.visible('a').await.len(), doubted)
}

/// Both clocks go on as they should.
fn pass(clocks: [&Time; 2], time: Duration) {
    clocks.iter().for_each(|clock| clock.pass(time));
}

async fn ahead(home: Home) {
    let (time, other) = (Time::start(), Time::start());
    let mut node = Node::start(home.open().await, &time);
    node.doubt(&other);
    node.set_topic('a', IngestPolicy::default()).await;
    for nth in 0..3 {
        assert_eq!(node.say(&note(nth)).await, "");
    }
    assert_eq!(round(&mut node).await, (3, false));
    time.pass(AGE);
    for _ in 0..2 {
        pass([&time, &other], ROUND);
        assert_eq!(round(&mut node).await, (3, true), "nothing leaves");
    }
    time.back(AGE);
    pass([&time, &other], ROUND);
    assert_eq!(round(&mut node).await, (3, false), "it was set right");
    assert_eq!(node.say(&note(0)).await, "duplicate: already have this event");
    assert_eq!(node.say(&note(3)).await, "", "nothing was forgotten: new events are not too old");
    // The control: as much time as is kept has really passed.
    pass([&time, &other], 31 * DAY);
    assert_eq!(round(&mut node).await, (0, false));
    node.end().await;
}

/// Who starts with such a clock has nothing to compare it with but the feed.
async fn ahead_at_start(home: Home) {
    let (time, other) = (Time::start(), Time::start());
    let mut node = Node::start(home.open().await, &time);
    node.set_topic('a', IngestPolicy::default()).await;
    assert_eq!(node.say(&note(0)).await, "");
    time.pass(91 * DAY);
    node.doubt(&other);
    assert_eq!(round(&mut node).await, (1, true));
    assert_eq!(node.say(&note(1)).await, "");
    pass([&time, &other], ROUND);
    assert_eq!(round(&mut node).await, (2, true), "what that clock has dated tells nothing");
    time.back(2 * DAY);
    node.doubt(&other);
    assert_eq!(round(&mut node).await, (1, false), "nodes are away for a while");
    node.end().await;
}

/// Some machines know the time only when somebody has told them.
async fn behind_at_start(home: Home) {
    let (time, other) = (Time::start(), Time::start());
    let mut node = Node::start(home.open().await, &time);
    node.set_topic('a', IngestPolicy::default()).await;
    assert_eq!(node.say(&note(0)).await, "");
    time.back(AGE);
    node.doubt(&other);
    for _ in 0..2 {
        assert_eq!(round(&mut node).await, (1, false));
        pass([&time, &other], DAY);
    }
    time.pass(AGE);
    assert_eq!(round(&mut node).await, (1, false), "to be set right is no jump");
    time.pass(2 * DAY);
    assert_eq!(round(&mut node).await, (1, true), "and now it is");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_clock_that_is_ahead_nothing_leaves_on_sqlite() {
    ahead(Home::sqlite()).await;
    ahead_at_start(Home::sqlite()).await;
    behind_at_start(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_clock_that_is_ahead_nothing_leaves_on_postgres() {
    ahead(Home::postgres()).await;
    ahead_at_start(Home::postgres()).await;
    behind_at_start(Home::postgres()).await;
}
