//! The laws that the rules keep, on the model. Every view in these runs panics when a rule asks for a
//! key that was not loaded. L2, that back ends agree, is the differential run of `node`.

mod batches;
mod convergence;
mod curated;
mod doors;
mod naive;
mod orders;
mod replay;
mod writes;

use std::sync::Arc;

use kukuri_core::{Act, Command, Decision, IngestPolicy, TopicId};
use kukuri_store::Store;

async fn apply(store: &dyn Store, batch: Arc<[Command]>) -> Decision {
    store.apply(batch).await.expect("the model takes every batch")
}

/// Carries a topic, or ceases to.
fn set_topic(topic: &TopicId, enabled: bool) -> Act {
    Act::SetTopic {
        topic_id: topic.clone(),
        name: String::new(),
        enabled,
        pinned: true,
        wanted: 0,
        ingest_policy: IngestPolicy::default(),
    }
}
