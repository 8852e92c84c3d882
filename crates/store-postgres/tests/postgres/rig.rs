//! A cluster, stores on its databases, and events to put into them.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Admitted, Command, Decision, FeedRow, Outcome, TopicId, UnixMillis};
use kukuri_event::{Filter, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Query, Store, StoreError};
use kukuri_store_postgres::{Fsync, Options, PostgresStore};
use kukuri_testkit::postgres::{Cluster, Durability};
use tokio::time::timeout;

pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

/// Nothing that is waited for takes as long, however busy the machine is.
pub const LIMIT: Duration = Duration::from_secs(60);

pub const OPTIONS: Options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };

pub fn cluster() -> Cluster {
    Cluster::start(Durability::Fast).unwrap()
}

pub async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, OPTIONS).await.unwrap()
}

/// A store on an empty database, with one topic enabled, and the name of the database.
pub async fn store(cluster: &Cluster) -> (PostgresStore, String) {
    store_with(cluster, OPTIONS).await
}

pub async fn store_with(cluster: &Cluster, options: Options) -> (PostgresStore, String) {
    let url = cluster.create_database();
    let store = PostgresStore::open(&url, options).await.unwrap();
    enable(&store).await;
    (store, database(&url))
}

pub fn database(url: &str) -> String {
    url.rsplit('/').next().unwrap().to_owned()
}

pub fn topic() -> TopicId {
    TopicId::parse(&format!("kukuri:{}", "ab".repeat(32))).unwrap()
}

pub async fn enable(store: &PostgresStore) {
    let act = Act::carry(topic(), "test");
    apply(store, NOW.into(), vec![act]).await.unwrap();
}

/// The nth event of an author; a later one is newer.
pub fn note(author: u32, nth: i64) -> Admitted {
    let created_at = UnixSeconds(NOW.0 - 10_000 + nth);
    let draft = Draft::new(1, created_at).tag("t", topic()).content(format!("{author} {nth}"));
    Author::numbered(author).admit(&draft, NOW)
}

pub fn notes(author: u32, count: i64) -> Vec<Admitted> {
    (0..count).map(|nth| note(author, nth)).collect()
}

pub async fn apply(
    store: &PostgresStore,
    at: UnixMillis,
    acts: Vec<Act>,
) -> Result<Decision, StoreError> {
    let batch: Arc<[Command]> = acts.into_iter().map(|act| Command { at, act }).collect();
    timeout(LIMIT, store.apply(batch)).await.unwrap()
}

pub async fn publish_at(
    store: &PostgresStore,
    at: UnixMillis,
    events: &[Admitted],
) -> Result<Vec<Outcome>, StoreError> {
    let acts = events.iter().map(|event| Act::Publish(event.clone())).collect();
    apply(store, at, acts).await.map(|decision| decision.outcomes)
}

pub async fn publish(
    store: &PostgresStore,
    events: &[Admitted],
) -> Result<Vec<Outcome>, StoreError> {
    publish_at(store, NOW.into(), events).await
}

/// The whole feed, which must be without a hole.
pub async fn feed(store: &PostgresStore) -> Vec<FeedRow> {
    let start = store.bounds().await.unwrap().start();
    store.feed(start, usize::MAX).await.unwrap()
}

pub fn query(filter: &str, rows_max: usize) -> Query {
    let filters = vec![Filter::parse(filter).unwrap()];
    Query { filters, after: None, now: NOW, limit_max: 500, rows_max, bodies_max: 100 }
}

/// The JSON of all events that a filter finds, newest first.
pub async fn found(store: &PostgresStore, filter: &str) -> Vec<String> {
    let filters = vec![Filter::parse(filter).unwrap()];
    let query = Query {
        filters,
        after: None,
        now: NOW,
        limit_max: 10_000,
        rows_max: 100_000,
        bodies_max: 10_000,
    };
    let hits = store.query(query).await.unwrap().hits;
    let bodies = store.bodies(hits.iter().map(|hit| hit.event).collect()).await.unwrap();
    bodies.into_iter().map(|body| body.expect("what was found is there")).collect()
}

pub fn jsons(events: &[Admitted]) -> Vec<String> {
    events.iter().rev().map(|event| event.body().json().to_owned()).collect()
}
