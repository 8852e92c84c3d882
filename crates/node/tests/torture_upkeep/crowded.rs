//! More has to leave at once than a round has time for: every topic gets its turn, and nothing else waits for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Act, Command, Decision, IngestPolicy};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::Budget;
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Scope, Store, StoreError};
use tokio::time::timeout;

use crate::home::Home;
use crate::rig::{Node, START, Time, topic};

/// Of several that are to leave one does, and then there is no time left.
const NO_TIME: Budget = Budget {
    round: Some(Duration::ZERO),
    urgent: Some(Duration::ZERO),
    tidy: Some(Duration::ZERO),
};

/// Into this one more comes before each round than may be there.
const BUSY: char = 'a';
const CROWDED: [char; 3] = ['b', 'c', 'd'];
const EXPIRING: char = 'e';

async fn say(node: &Node, digit: char, nth: usize, expires: bool) {
    let now = node.time.now().seconds();
    let draft = Draft::new(1, now).tag("t", topic(digit)).tag("r", nth);
    let draft = match expires {
        true => draft.tag("expiration", now.0 + 30),
        false => draft,
    };
    assert_eq!(node.say(&Author::numbered(1).sign(&draft)).await, "");
}

async fn is_crowded(node: &Node, digit: char) -> bool {
    let found = node.store.oldest(Scope::Topic(topic(digit)), 2).await;
    found.expect("it can be read").len() > 1
}

async fn crowds(home: Home) {
    let time = Time::start();
    let mut node = Node::start(home.open().await, &time);
    node.keeper = node.keeper.with_budget(NO_TIME);
    let limited = IngestPolicy { max_events: Some(1), ..IngestPolicy::default() };
    node.set_topic(EXPIRING, IngestPolicy::default()).await;
    for digit in [BUSY].into_iter().chain(CROWDED) {
        node.set_topic(digit, limited.clone()).await;
        for nth in 0..3 {
            say(&node, digit, nth, false).await;
        }
    }
    for round in 1..=CROWDED.len() + 1 {
        for nth in 0..2 {
            say(&node, BUSY, 10 * round + nth, false).await;
        }
        say(&node, EXPIRING, round, true).await;
        time.pass(Duration::from_secs(60));
        node.keeper.round().await.expect("the round ends well");
        let expired = node.keeper.upkept().borrow().expired_events;
        assert_eq!(expired, round as u64, "what has expired waits for no topic");
        let mut crowded = 0;
        for digit in CROWDED {
            crowded += usize::from(is_crowded(&node, digit).await);
        }
        assert_eq!(crowded, CROWDED.len() + 1 - round, "one has its turn in each round");
    }
    let hidden = node.store.expired(UnixSeconds(i64::MAX), 9).await;
    assert_eq!(hidden, Ok(Vec::new()));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_crowded_topic_gets_its_turn_on_sqlite() {
    crowds(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_crowded_topic_gets_its_turn_on_postgres() {
    crowds(Home::postgres()).await;
}

/// A store to which one more comes for each that leaves.
struct Busy {
    store: Arc<dyn Store>,
    next: AtomicI64,
}

#[async_trait]
impl Double for Busy {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let decision = self.store.apply(batch).await?;
        for _ in decision.writes.records.iter().filter(|change| change.after.is_none()) {
            let nth = self.next.fetch_add(1, Ordering::SeqCst);
            let draft = Draft::new(1, START).tag("t", topic(BUSY)).tag("r", nth);
            let act = Act::Publish(Author::numbered(2).admit(&draft, START));
            self.store.apply([Command { at: START.into(), act }].into()).await?;
        }
        Ok(decision)
    }
}

/// Room was made for as long as there was somebody to make it for: for one event at a time, and for ever.
#[tokio::test(flavor = "multi_thread")]
async fn making_room_ends_where_there_is_room() {
    let time = Time::start();
    let store = Busy { store: Home::model().open().await, next: AtomicI64::new(0) };
    let mut node = Node::start(Arc::new(store), &time);
    let limited = IngestPolicy { max_events: Some(1), ..IngestPolicy::default() };
    node.set_topic(BUSY, limited).await;
    for nth in 0..3 {
        say(&node, BUSY, nth, false).await;
    }
    let round = timeout(Duration::from_secs(20), node.keeper.round()).await;
    round.expect("the round ends").expect("and ends well");
    assert_eq!(node.keeper.upkept().borrow().removed_links, 2, "as many as were too many");
    node.end().await;
}
