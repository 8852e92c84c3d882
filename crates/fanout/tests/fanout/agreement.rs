//! Live delivery, stored query and the matcher agree, with thousands of filter groups at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Command, Record, TopicId};
use kukuri_event::{EventId, matches_any};
use kukuri_fanout::{Attached, Fanout, FanoutConfig, Mailbox, Subscription};
use kukuri_store::{Model, Query, Store};
use kukuri_store_postgres::{Fsync, PostgresStore};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::delivery;
use kukuri_testkit::generate::{Seed, World, arrivals, group};
use kukuri_testkit::postgres::{Cluster, Durability};

use crate::handoff::reach;
use crate::letterbox::Letterbox;

const EVENTS: usize = 400;
const SUBSCRIPTIONS: usize = 3_000;
const COMMANDS_PER_BATCH: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn live_stored_and_matcher_agree_in_memory() {
    agree(Arc::new(Model::default()), Seed::of_run("live_stored_and_matcher_agree_in_memory"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_stored_and_matcher_agree_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = SqliteStore::open(directory.path(), options).unwrap();
    agree(Arc::new(store), Seed::of_run("live_stored_and_matcher_agree_on_sqlite")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_stored_and_matcher_agree_on_postgres() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let options = kukuri_store_postgres::Options {
        fsync: Fsync::AnyForTests,
        ..kukuri_store_postgres::Options::STANDARD
    };
    let store = PostgresStore::open(&cluster.create_database(), options).await.unwrap();
    agree(Arc::new(store), Seed::of_run("live_stored_and_matcher_agree_on_postgres")).await;
}

async fn agree(store: Arc<dyn Store>, seed: Seed) {
    let (world, mut dice) = (World::new(seed, 0, EVENTS), seed.part(1).dice());
    let clock = Arc::new(World::now);
    let fanout = Fanout::start(Arc::clone(&store), clock, FanoutConfig::STANDARD).await.unwrap();
    let letterbox = Letterbox::new();
    let mailbox: Arc<dyn Mailbox> = letterbox.clone();
    let start = store.bounds().await.unwrap().start();
    let mut subscriptions = Vec::new();
    for _ in 0..SUBSCRIPTIONS {
        let filters = group(&world, &mut dice).into();
        let subscription = Subscription { key: fanout.new_key(), filters };
        let attached = fanout.attach(&subscription, &mailbox, start).await.unwrap();
        assert!(matches!(attached, Attached::Live(_)), "{attached:?}");
        subscriptions.push(subscription);
    }
    let acts = arrivals(&world, &mut seed.part(2).dice());
    let commands: Vec<Command> =
        acts.into_iter().map(|act| Command { at: World::now(), act }).collect();
    for batch in commands.chunks(COMMANDS_PER_BATCH) {
        store.apply(batch.into()).await.unwrap();
    }
    reach(&fanout, store.bounds().await.unwrap().head).await;

    let records = delivery::records(&*store, world.ids()).await.unwrap();
    let (mut matched, mut noticed) = (0, 0);
    for subscription in &subscriptions {
        let wanted = wanted(&records, subscription);
        assert_eq!(stored(&*store, subscription).await, wanted, "{:?}", subscription.filters);
        let live = letterbox.delivered(subscription.key);
        let live: Vec<EventId> = live.into_iter().map(|(_, id)| id).collect();
        let judge =
            |live: &[EventId]| delivery::judge(&records, &subscription.filters, live, World::NOW);
        judge(&live).unwrap_or_else(|why| panic!("{why}"));
        matched += wanted.len();
        // The judge sees what is missing.
        if let Some(one) = wanted.first() {
            let without: Vec<EventId> = live.into_iter().filter(|id| id != one).collect();
            noticed += usize::from(judge(&without).is_err());
            assert!(judge(&without).is_err(), "a gap is noticed");
        }
    }
    assert!(matched > 10_000, "only {matched} matches: the filters do not fit the world");
    assert!(noticed > 500, "only {noticed} groups match anything");
}

/// What the matcher says is there.
fn wanted(records: &[Record], subscription: &Subscription) -> BTreeSet<EventId> {
    let visible = records.iter().filter(|record| {
        let links: Vec<&TopicId> = record.topics().collect();
        record.is_effective()
            && record.expires_at().is_none_or(|end| end > World::NOW)
            && matches_any(&subscription.filters, record.event(), &links)
    });
    visible.map(|record| record.event().id()).collect()
}

/// What the store says is there.
async fn stored(store: &dyn Store, subscription: &Subscription) -> BTreeSet<EventId> {
    let query = Query {
        filters: subscription.filters.to_vec(),
        after: None,
        now: World::NOW,
        limit_max: usize::MAX,
        rows_max: 100_000,
        bodies_max: 0,
    };
    store.query(query).await.unwrap().hits.iter().map(|hit| hit.id).collect()
}
