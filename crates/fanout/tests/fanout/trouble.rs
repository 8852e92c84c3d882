//! A feed that cannot be read for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Cursor, FeedRow};
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_store::conformance::double::Double;
use kukuri_store::{FeedError, Model, Store, StoreError};
use kukuri_testkit::generate::World;
use tokio::time::timeout;

const WAIT_MAX: Duration = Duration::from_secs(30);

struct Away {
    model: Model,
    away: AtomicBool,
}

#[async_trait]
impl Double for Away {
    fn behind(&self) -> &dyn Store {
        &self.model
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the server is away".into()).into()),
            false => self.model.feed(after, rows_max).await,
        }
    }
}

/// Whoever asks how the node is learns that nothing is delivered, and when that is over.
#[tokio::test]
async fn trouble_is_told_as_long_as_it_lasts() {
    let store = Arc::new(Away { model: Model::default(), away: AtomicBool::new(true) });
    let config = FanoutConfig { poll_interval: Duration::from_millis(1), ..FanoutConfig::STANDARD };
    let fanout = Fanout::start(store.clone(), Arc::new(World::now), config).await.unwrap();
    let mut trouble = fanout.trouble();
    let told = timeout(WAIT_MAX, trouble.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    assert!(told.is_some_and(|why| why.contains("the server is away")));
    store.away.store(false, Ordering::SeqCst);
    timeout(WAIT_MAX, trouble.wait_for(Option::is_none)).await.unwrap().unwrap();
}
