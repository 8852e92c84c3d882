//! The topics that are carried now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::TopicId;
use kukuri_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

/// How soon a change by any process is followed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) type Carried = Arc<CarriedTopics>;

/// The topics that this node takes in and serves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CarriedTopics {
    pub ids: BTreeSet<TopicId>,
    /// What people call them.
    pub names: BTreeMap<TopicId, String>,
}

impl CarriedTopics {
    /// Those that everyone may know of who may read here, with their names: what is between a person and
    /// their own devices is nobody else's business.
    pub fn public(&self) -> impl Iterator<Item = (&TopicId, &str)> {
        let named = self.names.iter().map(|(topic, name)| (topic, name.as_str()));
        named.filter(|(topic, _)| !topic.as_str().starts_with("kukuri:user:"))
    }
}

pub(crate) async fn read(store: &dyn Store) -> Result<Carried, StoreError> {
    let topics = store.topics().await?.into_iter().filter(|(topic, _)| topic.enabled);
    let mut carried = CarriedTopics::default();
    for (topic, _) in topics {
        carried.ids.insert(topic.topic_id.clone());
        carried.names.insert(topic.topic_id, topic.name);
    }
    Ok(Arc::new(carried))
}

/// Follows the store for ever. While it cannot be read, what was known holds.
pub(crate) async fn follow(store: Arc<dyn Store>, carried: watch::Sender<Carried>) {
    loop {
        sleep(POLL_INTERVAL).await;
        if let Ok(now) = read(&*store).await {
            carried.send_if_modified(|before| {
                let changed = *before != now;
                if changed {
                    *before = now;
                }
                changed
            });
        }
    }
}
