//! Nobody takes another's turn: what is wrong with one topic is no reason to keep what has aged in the others,
//! and what leaves does not wait until space was given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Command, Cutoffs, Decision, IngestPolicy, Source, TopicId};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_node::upkeep::{Budget, CHUNK_EVENTS_MAX};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Dated, Scope, Store, StoreError, Tidied};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::home::Home;
use crate::rig::{DAY, Node, START, Time, topic};

const FULL: IngestPolicy = IngestPolicy {
    max_events: Some(1),
    retention_days: Some(400),
    max_bytes: None,
    max_lag_seconds: None,
    backfill: kukuri_core::Backfill::On,
    priority: kukuri_core::Priority::Normal,
    on_full: kukuri_core::OnFull::Evict,
};

/// Many times what it takes.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A store with pages that cannot be read.
struct Unreadable {
    store: Arc<dyn Store>,
    hits: AtomicU64,
}

impl Unreadable {
    fn unreadable<T>(&self) -> Result<T, StoreError> {
        self.hits.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Corrupt("a page that cannot be read".into()))
    }
}

#[async_trait]
impl Double for Unreadable {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn aged(
        &self,
        of: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        match of == topic('a') {
            true => self.unreadable(),
            false => self.store.aged(of, cutoffs, events_max).await,
        }
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        match of == Scope::Topic(topic('c')) {
            true => self.unreadable(),
            false => self.store.oldest(of, events_max).await,
        }
    }

    async fn expired(
        &self,
        _now: UnixSeconds,
        _events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.unreadable()
    }
}

async fn everyone_gets_a_turn(home: Home) {
    let time = Time::start();
    let store = Arc::new(Unreadable { store: home.open().await, hits: AtomicU64::new(0) });
    let mut node = Node::start(Arc::clone(&store) as Arc<dyn Store>, &time);
    for (digit, policy) in
        [('a', IngestPolicy::default()), ('b', IngestPolicy::default()), ('c', FULL), ('d', FULL)]
    {
        node.set_topic(digit, policy).await;
        for nth in 0..3 {
            let draft = Draft::new(1, UnixSeconds(START.0 - nth)).tag("t", topic(digit));
            assert_eq!(node.say(&Author::numbered(1).sign(&draft)).await, "");
        }
    }
    let head = node.store.bounds().await.expect("it can be read").head;
    for round in 0..3 {
        time.pass(if round == 0 { 31 * DAY } else { Duration::from_secs(60) });
        assert!(node.keeper.round().await.is_err(), "it is said that something failed");
        assert_eq!(store.hits.load(Ordering::SeqCst), 3 * (round + 1), "each had its turn");
    }
    let left = [('a', 3), ('b', 0), ('c', 3), ('d', 1)];
    for (digit, count) in left {
        assert_eq!(node.visible(digit).await.len(), count, "topic {digit}");
    }
    let floor = node.store.bounds().await.expect("it can be read").floor;
    assert_eq!(floor, head, "the feed was cut, which comes last");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_gets_a_turn_on_sqlite() {
    everyone_gets_a_turn(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_gets_a_turn_on_postgres() {
    everyone_gets_a_turn(Home::postgres()).await;
}

/// A store that gives no space back until something has left meanwhile.
struct Patient {
    store: Arc<dyn Store>,
    left: watch::Sender<()>,
    waited: AtomicBool,
}

#[async_trait]
impl Double for Patient {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let decision = self.store.apply(batch).await?;
        if decision.writes.records.iter().any(|change| change.after.is_none()) {
            self.left.send_replace(());
        }
        Ok(decision)
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        if !self.waited.swap(true, Ordering::SeqCst) {
            self.left.subscribe().changed().await.expect("the store lives");
        }
        self.store.tidy().await
    }
}

async fn events_leave_while_space_is_given_back(home: Home) {
    let time = Time::start();
    let left = watch::Sender::new(());
    let store = Patient { store: home.open().await, left, waited: AtomicBool::new(false) };
    let mut node = Node::start(Arc::new(store), &time);
    node.keeper = node.keeper.with_budget(Budget::STANDARD);
    node.set_topic('a', IngestPolicy::default()).await;
    // Space is given back beside the second chunk, if not beside the first one.
    let events = 3 * CHUNK_EVENTS_MAX;
    let author = Author::numbered(1);
    let texts: Vec<(String, Source)> = (0..events)
        .map(|nth| Draft::new(1, UnixSeconds(START.0 - nth as i64)).tag("t", topic('a')))
        .map(|draft| (author.sign(&draft), Source::Ws))
        .collect();
    for some in texts.chunks(CHUNK_EVENTS_MAX) {
        assert!(node.publish(some).await.iter().all(String::is_empty), "all are taken in");
    }
    time.pass(31 * DAY);
    let mut upkept = node.keeper.upkept();
    let all_left = async {
        while upkept.borrow_and_update().removed_links < events as u64 {
            node.keeper.round().await.expect("the round ends well");
        }
    };
    timeout(WAIT_MAX, all_left).await.expect("space is given back beside what leaves");
    assert_eq!(node.visible('a').await, Vec::<String>::new());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_leave_while_space_is_given_back_on_sqlite() {
    events_leave_while_space_is_given_back(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_leave_while_space_is_given_back_on_postgres() {
    events_leave_while_space_is_given_back(Home::postgres()).await;
}
