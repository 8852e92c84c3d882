//! The node with a fault built in, chosen by `KUKURI_SABOTAGE`. The fault runs in `tests/torture`
//! kill it as they kill the node, and their checker must notice.

mod behind;
mod fault;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use behind::Database;
use clap::Parser;
use fault::Fault;
use kukuri_core::{
    Command, Cursor, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq, TopicId, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_node::cli::Cli;
use kukuri_store::{Entry, FeedError, Hits, Place, Query, QueryError, Store, StoreError};
use tokio::sync::watch;

/// Set before the store is opened.
static DATABASE: OnceLock<Database> = OnceLock::new();

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    let database = match &cli.common.database {
        Some(url) => Database::Postgres(url.clone()),
        None => Database::Sqlite(cli.common.data.join(kukuri_store_sqlite::FILE)),
    };
    DATABASE.set(database).expect("it is set once");
    cli.common.wrap = Some(wrap);
    kukuri_node::execute(cli)
}

fn wrap(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let database = DATABASE.get().expect("it was set before").clone();
    let name = std::env::var("KUKURI_SABOTAGE").expect("KUKURI_SABOTAGE names a fault");
    Arc::new(Sabotaged { store, fault: Fault::named(&name, database) })
}

/// A store that does one thing wrong when it writes.
struct Sabotaged {
    store: Arc<dyn Store>,
    fault: Fault,
}

#[async_trait]
impl Store for Sabotaged {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.fault.apply(&*self.store, batch).await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.store.facts(needs).await
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.store.query(query).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        self.store.bodies(events).await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        self.store.feed(after, rows_max).await
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        self.store.bounds().await
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.store.heads()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        self.store.topics().await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.store.linked(topic, events_max).await
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.store.expired(now, events_max).await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        self.store.reopen().await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        self.store.page(after, entries_max).await
    }
}
