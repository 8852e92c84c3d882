//! The index as a consumer: it follows whatever happens to a store, is rebuilt beside itself, and holds
//! in the end what the store's state says, whichever way it came there.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Seq, UnixMillis};
use kukuri_feed::{Consumer, Digest, Home, Runner, RunnerConfig, Sample};
use kukuri_index::{Ask, Effects, Index, Kinds, Projection, Searcher, Start};
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

/// Until the index has read everything and nothing is being built.
async fn settle(runner: &Runner<Index>, store: &dyn Store) {
    let settled = async {
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            probes.tick().await;
            let report = runner.report(UnixMillis(0)).await.expect("a report");
            let head = store.bounds().await.expect("bounds").head;
            let there = report.active().is_some_and(|active| active.state.cursor.seq == head);
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

/// Every note that is visible is found by what it says, and nothing that is not.
async fn assert_finds_all(rig: &Rig, store: &dyn Store) {
    let searcher = Searcher::new(rig.home.clone());
    let effects = of_state(store).await;
    let mut model = kukuri_index::Model::default();
    model.apply(effects.clone());
    for (key, _) in effects.documents.iter().take(20) {
        let entry = store.page(Place::Records(None), usize::MAX).await.expect("the state");
        let content = entry.iter().find_map(|entry| match entry {
            Entry::Record(record) if record.event().id() == key.event_id => {
                Some(record.event().content().to_owned())
            }
            _ => None,
        });
        let start = Start::First { now: World::NOW };
        let text = content.expect("it is in the state");
        let ask = Ask::new(&text, vec![key.topic_id.clone()], start).expect("a number");
        let answer = searcher.search(&ask).await.expect("an answer");
        assert_eq!(answer.page.hits, model.search(&ask, Seq::ZERO).hits, "{}", rig.name);
        assert!(answer.page.hits.iter().any(|hit| hit.event_id == key.event_id), "{}", rig.name);
    }
}
