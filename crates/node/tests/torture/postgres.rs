//! A PostgreSQL that goes away under an import: stopped as by a crash, or cut off at a COMMIT whose
//! outcome the import then cannot know. The import goes on by itself; nothing is lost or doubled.

use std::sync::Arc;
use std::time::Duration;

use kukuri_testkit::condition::wait_for;
use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::proxy::{Cut, Proxy};

use crate::checker::History;
use crate::import::{Import, Plan};
use crate::load::Load;
use crate::rig::{self, Place, require_none};

const STOPS: usize = 5;
const CUTS: usize = 20;

/// How many stops must have hit lines that were sent and not answered yet.
const STOPS_IN_FLIGHT_MIN: usize = 3;

const LINES_PER_STOP: usize = 2_000;
const LINES_PER_CUT: usize = 1_500;
const ANSWERS_MAX: usize = 400;
/// How far the import may be ahead of its answers, so that it does not come to its end before all
/// faults have happened; and how far it is when one happens.
const WINDOW: usize = 1_000;
const AHEAD: usize = 800;
const PATIENCE_SECONDS: u32 = 120;

/// How long the next commit may take to come by.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(60);

struct Bench {
    cluster: Cluster,
    database: String,
    load: Arc<Load>,
    dice: Dice,
}

impl Bench {
    async fn start(seed: Seed, lines: usize) -> Bench {
        let cluster = Cluster::start(Durability::Durable).expect("PostgreSQL starts");
        let url = cluster.create_database();
        let database = url.rsplit('/').next().expect("an address has a database").to_owned();
        let load = Arc::new(Load::new(seed, lines));
        let bench = Bench { cluster, database, load, dice: seed.part(1).dice() };
        let store = bench.place().open().await.expect("a new store opens");
        bench.load.carry(&*store).await.expect("a new store takes topics");
        bench
    }

    fn place(&self) -> Place {
        Place::Postgres(self.cluster.url(&self.database))
    }

    fn import(&self, place: &Place) -> Import {
        let plan =
            Plan { window: WINDOW, patience_seconds: PATIENCE_SECONDS, ..Plan::new(&self.load) };
        Import::start(place, plan)
    }

    fn work_on(&mut self, import: &mut Import) {
        let more = 1 + self.dice.below(ANSWERS_MAX);
        assert!(import.wait_for_answers(more), "the import ended: {}", import.stderr());
        assert!(import.wait_for_sent(AHEAD), "nobody reads any more");
    }

    /// The rest of the import, and what it left.
    async fn finish(&self, test: &str, mut import: Import) {
        let status = import.finish();
        let code = status.code();
        assert!(matches!(code, Some(0 | 3)), "{test}: {code:?}: {}", import.stderr());
        let mut history = History::new(&self.load);
        import.tell(&mut history);
        assert_eq!(history.unanswered(), 0, "an import that ended well has answered every line");
        require_none(test, &self.place().check(&history).await);
        require_none(test, &self.place().doctor());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_outlives_crashes_of_the_server() {
    let test = "postgres::an_import_outlives_crashes_of_the_server";
    for seed in rig::seed(test).rounds() {
        let mut bench = Bench::start(seed, STOPS * LINES_PER_STOP).await;
        let mut import = bench.import(&bench.place());
        let mut in_flight = 0;
        for _ in 0..STOPS {
            bench.work_on(&mut import);
            in_flight += usize::from(import.is_in_flight());
            bench.cluster.stop_immediate().expect("the server stops");
            bench.cluster.start_again().expect("the server recovers");
        }
        bench.finish(test, import).await;
        println!("{test}, seed {seed}: {STOPS} crashes, {in_flight} with lines in flight");
        assert!(in_flight >= STOPS_IN_FLIGHT_MIN, "only {in_flight} crashes hit lines in flight");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_unknown_outcome_lose_nothing_and_double_nothing() {
    let test = "postgres::commits_of_unknown_outcome_lose_nothing_and_double_nothing";
    for seed in rig::seed(test).rounds() {
        let mut bench = Bench::start(seed, CUTS * LINES_PER_CUT).await;
        let proxy = Proxy::start(bench.cluster.port()).expect("loopback has a free port");
        let mut import = bench.import(&Place::Postgres(proxy.url(&bench.database)));
        let mut cuts = [Cut::BeforeCommit, Cut::AfterCommit].repeat(CUTS / 2);
        bench.dice.shuffle(&mut cuts);
        for (nth, cut) in cuts.into_iter().enumerate() {
            bench.work_on(&mut import);
            proxy.cut(cut);
            let done = nth as u64 + 1;
            wait_for("a cut", COMMIT_WAIT_MAX, || {
                import.take_answers();
                (proxy.cuts() == done).then_some(())
            })
            .expect("an import that has lines commits them");
        }
        bench.finish(test, import).await;
        println!("{test}, seed {seed}: {CUTS} commits cut, half of them before they were done");
    }
}
