use std::sync::Arc;

use kukuri_core::{Command, Decision};
use kukuri_store::conformance::double::Double;
use kukuri_store::{Hits, Model, Query, QueryError, Store, StoreError};
use tokio::sync::Semaphore;

/// The topics of the rig are two commits.
const TOPIC_COMMITS: usize = 2;

/// A store that commits and answers when it may.
pub struct Held {
    behind: Model,
    pub commits: Semaphore,
    pub queries: Semaphore,
}

impl Held {
    /// It may make the topics of the rig, and answer so many questions.
    pub fn new(queries: usize) -> Arc<Self> {
        let (commits, queries) = (Semaphore::new(TOPIC_COMMITS), Semaphore::new(queries));
        Arc::new(Self { behind: Model::default(), commits, queries })
    }
}

#[async_trait::async_trait]
impl Double for Held {
    fn behind(&self) -> &dyn Store {
        &self.behind
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.commits.acquire().await.unwrap().forget();
        self.behind.apply(batch).await
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.queries.acquire().await.unwrap().forget();
        self.behind.query(query).await
    }
}
