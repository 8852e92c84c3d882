//! A look that fails takes nobody else's turn: what is wrong with one topic is no reason to keep what has aged
//! in the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Cutoffs, IngestPolicy, TopicId};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Dated, Scope, Store, StoreError};

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
