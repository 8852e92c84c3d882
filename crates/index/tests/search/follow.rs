//! The index as a consumer: it follows whatever happens to a store, is rebuilt beside itself, and holds
//! in the end what the store's state says, whichever way it came there.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Seq, UnixMillis};
use kukuri_event::Kind;
use kukuri_feed::{Consumer, Digest, Home, Runner, RunnerConfig, Sample};
use kukuri_index::{
    Ask, DocumentKey, Effects, Index, Kinds, Projection, SearchError, Searcher, Start,
};
use kukuri_store::{Entry, Model as StoreModel, Place, Store};
use kukuri_testkit::generate::{Seed, World, batches, script};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::rig::Rig;

/// Nothing that is waited for takes as long, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(120);
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

const WORLDS: u32 = 6;
const EVENTS: usize = 40;
const COMMANDS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g9_convergent_incremental_is_rebuilt() {
    let seed = Seed::of_run("g9_convergent_incremental_is_rebuilt");
    for rig in Rig::both().await {
        let store: Arc<dyn Store> = Arc::new(StoreModel::default());
        let config = RunnerConfig {
            batch_rows_max: 7,
            retired_keep: Duration::ZERO,
            ..RunnerConfig::standard()
        };
        let runner = Runner::open(Index::default(), Arc::clone(&store), rig.home.clone(), config);
        let runner = Arc::new(runner.await.expect("the runner opens"));
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (runner, stop) = (Arc::clone(&runner), stop.clone());
            async move { runner.run(stop).await }
        });
        for lot in 0..WORLDS {
            let world = World::new(seed.part(u64::from(lot)), lot, EVENTS);
            let mut dice = seed.part(u64::from(lot) + 100).dice();
            let commands = script(&world, &mut dice, COMMANDS);
            for (nth, batch) in batches(&commands, &mut dice).into_iter().enumerate() {
                store.apply(batch).await.expect("the model takes everything");
                // A new generation is built while things go on happening.
                if lot % 2 == 1 && nth == 3 {
                    runner.begin_rebuild().await.expect("a rebuild begins");
                }
            }
            settle(&runner, &*store).await;
            let expected = expected(&rig, &*store).await;
            assert_eq!(digest(&rig.home).await, expected, "{}: world {lot}", rig.name);
            assert_finds_all(&rig, &*store).await;
        }
        assert!(expected(&rig, &*store).await.rows > 0, "there was something to index");
        stop.cancel();
        timeout(LIMIT, running).await.expect("it stops").expect("it does not panic");
    }
}

/// While the index was built anew by another version of the program, the old one was asked for words that it
/// had never heard, and found nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_other_words_is_not_asked() {
    let seed = Seed::of_run("an_index_of_other_words_is_not_asked");
    for rig in Rig::both().await {
        let store: Arc<dyn Store> = Arc::new(StoreModel::default());
        let world = World::new(seed.part(0), 0, EVENTS);
        let mut dice = seed.part(1).dice();
        for batch in batches(&script(&world, &mut dice, COMMANDS), &mut dice) {
            store.apply(batch).await.expect("the model takes everything");
        }
        let version = Index::default().version();
        let other_kinds = Index::new(Kinds::new([Kind(1)]).expect("can be named")).version();
        assert_ne!(version, other_kinds);
        run_until_settled(&rig, &store).await;
        let searcher = Searcher::new(rig.home.clone());
        let effects = of_state(&*store).await;
        let (key, _) = effects.documents.first_key_value().expect("there is something to find");
        let ask = ask_for(&*store, key).await;
        let expected = searcher.search(&ask).await.expect("an answer");
        assert!(!expected.page.hits.is_empty());
        let of = |version: u32| format!("UPDATE consumer_offsets SET version = {version}");
        // Other kinds are other events in the same words: what it has found so far is right.
        rig.script(&of(other_kinds)).await;
        assert_eq!(searcher.search(&ask).await, Ok(expected.clone()), "{}", rig.name);
        for other in [version - 1, version + 1, other_kinds - (1 << 24), other_kinds + (1 << 24)] {
            rig.script(&of(other)).await;
            let answer = searcher.search(&ask).await;
            assert_eq!(answer, Err(SearchError::NotBuilt), "{}: {other}", rig.name);
        }
        run_until_settled(&rig, &store).await;
        assert_eq!(searcher.search(&ask).await, Ok(expected), "{}: built anew", rig.name);
    }
}

async fn run_until_settled(rig: &Rig, store: &Arc<dyn Store>) {
    let (home, config) = (rig.home.clone(), RunnerConfig::standard());
    let runner = Runner::open(Index::default(), Arc::clone(store), home, config).await;
    let (runner, stop) = (runner.expect("the runner opens"), CancellationToken::new());
    let settled = async {
        settle(&runner, &**store).await;
        stop.cancel();
    };
    let both = async { tokio::join!(settled, runner.run(stop.clone())) };
    timeout(LIMIT, both).await.expect("the index is built");
}

/// Until the index has read everything and nothing is being built.
async fn settle(runner: &Runner<Index>, store: &dyn Store) {
    let settled = async {
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            probes.tick().await;
            let report = runner.report(UnixMillis(0)).await.expect("a report");
            let head = store.bounds().await.expect("bounds").head;
            let there = report.active().is_some_and(|active| {
                active.state.cursor.seq == head && active.state.version == report.version
            });
            if there && report.building().is_none() {
                return;
            }
        }
    };
    timeout(LIMIT, settled).await.expect("the index follows");
}

/// The digest of what the state says, written at once elsewhere.
async fn expected(rig: &Rig, store: &dyn Store) -> Digest {
    rig.fresh(of_state(store).await).await
}

async fn digest(home: &Home) -> Digest {
    let mut snapshot = home.read().await.expect("begins to read");
    let active = home.active(snapshot.desk()).await.expect("is read").expect("is built");
    let digest = Index::default().digest(snapshot.desk(), active.generation, Sample::All).await;
    snapshot.end().await.expect("ends");
    digest.expect("the tables are read")
}

async fn of_state(store: &dyn Store) -> Effects {
    let kinds = Kinds::default();
    let mut projection = Projection::new(&kinds);
    for entry in store.page(Place::Records(None), usize::MAX).await.expect("the state") {
        let Entry::Record(record) = entry else { continue };
        for link in record.links.iter().filter(|_| record.is_effective()) {
            projection.arrive(record.event(), &link.topic, link.seq);
        }
    }
    projection.finish()
}

/// Asks for what a note says.
async fn ask_for(store: &dyn Store, key: &DocumentKey) -> Ask {
    let entries = store.page(Place::Records(None), usize::MAX).await.expect("the state");
    let content = entries.iter().find_map(|entry| match entry {
        Entry::Record(record) if record.event().id() == key.event_id => {
            Some(record.event().content().to_owned())
        }
        _ => None,
    });
    let start = Start::First { now: World::NOW };
    let text = content.expect("it is in the state");
    Ask::new(&text, vec![key.topic_id.clone()], start).expect("a number")
}

/// Every note that is visible is found by what it says, and nothing that is not.
async fn assert_finds_all(rig: &Rig, store: &dyn Store) {
    let searcher = Searcher::new(rig.home.clone());
    let effects = of_state(store).await;
    let mut model = kukuri_index::Model::default();
    model.apply(effects.clone());
    for (key, _) in effects.documents.iter().take(20) {
        let ask = ask_for(store, key).await;
        let answer = searcher.search(&ask).await.expect("an answer");
        assert_eq!(answer.page.hits, model.search(&ask, Seq::ZERO).hits, "{}", rig.name);
        assert!(answer.page.hits.iter().any(|hit| hit.event_id == key.event_id), "{}", rig.name);
    }
}
