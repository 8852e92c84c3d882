//! A feed that cannot be read for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Act, Cursor, Facts, FeedRow, ReadSet, TopicId};
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{FeedError, Model, Store, StoreError};
use kukuri_testkit::generate::World;
use tokio::time::timeout;

const WAIT_MAX: Duration = Duration::from_secs(30);

struct Away {
    model: Model,
    feed: AtomicBool,
    bodies: AtomicBool,
}

impl Away {
    fn error() -> StoreError {
        StoreError::Unavailable("the server is away".into())
    }
}

#[async_trait]
impl Double for Away {
    fn behind(&self) -> &dyn Store {
        &self.model
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        match self.feed.load(Ordering::SeqCst) {
            true => Err(Self::error().into()),
            false => self.model.feed(after, rows_max).await,
        }
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        match self.bodies.load(Ordering::SeqCst) {
            true => Err(Self::error()),
            false => self.model.facts(needs).await,
        }
    }
}

/// Whoever asks how the node is learns that nothing is delivered, and when that is over.
#[tokio::test]
async fn trouble_is_told_as_long_as_it_lasts() {
    let (feed, bodies) = (AtomicBool::new(true), AtomicBool::new(true));
    let store = Arc::new(Away { model: Model::default(), feed, bodies });
    crate::slow::apply(&*store, vec![Act::carry(TopicId::global(), "")]).await;
    let config = FanoutConfig { poll_interval: Duration::from_millis(1), ..FanoutConfig::STANDARD };
    let fanout = Fanout::start(store.clone(), Arc::new(World::now), config).await.unwrap();
    let mut trouble = fanout.trouble();
    let mut until = async |some: bool| {
        let told = trouble.wait_for(|trouble| trouble.is_some() == some);
        timeout(WAIT_MAX, told).await.unwrap().unwrap().clone()
    };
    assert!(until(true).await.is_some_and(|why| why.contains("the server is away")));
    store.feed.store(false, Ordering::SeqCst);
    until(false).await;
    // Rows without their bodies are of no use either.
    let draft = Draft::new(1, World::NOW).tag("t", TopicId::global().as_str());
    let event = Author::numbered(1).admit(&draft, World::NOW);
    crate::slow::apply(&*store, vec![Act::Publish(event)]).await;
    until(true).await;
    store.bodies.store(false, Ordering::SeqCst);
    until(false).await;
    crate::handoff::reach(&fanout, store.model.bounds().await.unwrap().head).await;
}
