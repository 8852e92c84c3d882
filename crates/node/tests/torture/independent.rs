//! G10: a consumer that stalls in the middle of a batch, is stopped, or is broken, delays neither those who
//! write nor the other consumers, which keep their tables beside its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Act, Command, TopicId, UnixMillis};
use kukuri_event::Kind;
use kukuri_feed::{
    Consumer, ConsumerName, Desk, DeskError, Digest, Generation, Home as Tables,
    Place as TablesPlace, Poison, Report, Runner, RunnerConfig, Sample, Sync, Update, Wish,
};
use kukuri_index::{Effects, Index};
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::postgres::Durability;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::load::NOW;
use crate::rig::{Home, Place};

const SICK: ConsumerName = ConsumerName::new("sick");
const WELL: ConsumerName = ConsumerName::new("well");

/// Nothing that is waited for takes as long, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);
const NOTES: u32 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    /// It stands still with its transaction open.
    Stalled,
    /// It can handle nothing.
    Broken,
}

/// The search, under another name and in a state of health.
struct Patient {
    name: ConsumerName,
    index: Index,
    health: watch::Receiver<Health>,
    stalls: Arc<AtomicBool>,
}

#[async_trait]
impl Consumer for Patient {
    type Effects = Effects;

    fn name(&self) -> ConsumerName {
        self.name
    }

    fn version(&self) -> u32 {
        self.index.version()
    }

    fn wants(&self, kind: Kind) -> bool {
        self.index.wants(kind)
    }

    fn project(&self, updates: &[Update]) -> Result<Effects, Poison> {
        match *self.health.borrow() {
            Health::Broken => Err(Poison("it is broken".to_owned())),
            Health::Well | Health::Stalled => self.index.project(updates),
        }
    }

    async fn create(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        self.index.create(desk, generation).await
    }

    async fn apply(
        &self,
        desk: &mut Desk,
        generation: Generation,
        effects: Effects,
    ) -> Result<(), DeskError> {
        self.index.apply(desk, generation, effects).await?;
        let mut health = self.health.clone();
        self.stalls.store(*health.borrow() == Health::Stalled, Ordering::Relaxed);
        let recovered = health.wait_for(|health| *health != Health::Stalled).await;
        recovered.map(|_| ()).map_err(|_| DeskError::Unavailable("the test is over".to_owned()))
    }

    async fn digest(
        &self,
        desk: &mut Desk,
        generation: Generation,
        sample: Sample,
    ) -> Result<Digest, DeskError> {
        self.index.digest(desk, generation, sample).await
    }

    async fn discard(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        self.index.discard(desk, generation).await
    }
}

/// A consumer at work.
struct Ward {
    runner: Runner<Patient>,
    health: watch::Sender<Health>,
    stalls: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Ward {
    async fn open(name: ConsumerName, store: &Arc<dyn Store>, place: &TablesPlace) -> Self {
        let (health, received) = watch::channel(Health::Well);
        let (stalls, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let index = Index::default();
        let patient = Patient { name, index, health: received, stalls: Arc::clone(&stalls) };
        let home = Tables::open(place, name).await.expect("the tables open");
        // Nobody waits between the tries of a row.
        let try_pauses = vec![Duration::ZERO; 2];
        let config = RunnerConfig { try_pauses, ..RunnerConfig::standard() };
        let runner = Runner::open(patient, Arc::clone(store), home, config).await;
        let runner = runner.expect("the runner opens");
        let task = tokio::spawn({
            let (runner, stop) = (runner.clone(), stop.clone());
            async move { runner.run(stop).await }
        });
        Self { runner, health, stalls, stop, task }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Report) -> bool) {
        let reported = wait_for_async(what, LIMIT, async || {
            self.runner.report(UnixMillis::from(NOW)).await.ok().filter(|report| holds(report))
        });
        reported.await.expect("it comes to that");
    }

    async fn caught_up(&self, what: &str) {
        self.until(what, |report| lag(report) == Some(0)).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("it does not panic");
    }
}

fn lag(report: &Report) -> Option<u64> {
    report.active().map(|active| active.lag_rows)
}

/// Each note is acknowledged before the next one is written.
async fn publish(store: &dyn Store, name: &str, count: u32) {
    for nth in 0..count {
        let draft = Draft::new(1, NOW).content(format!("{name} {nth}"));
        let draft = draft.tag("t", TopicId::global());
        let act = Act::Publish(Author::numbered(1).admit(&draft, NOW));
        let batch = Arc::new([Command { at: NOW.into(), act }]);
        let applied = tokio::time::timeout(LIMIT, store.apply(batch)).await;
        let applied = applied.expect("writers do not wait").expect("the store takes it");
        assert!(applied.outcomes[0].is_ok(), "{:?}", applied.outcomes[0]);
    }
}

async fn g10_independent(home: Home) {
    let store = home.place.open().await.expect("a new store opens");
    let carry = Command { at: NOW.into(), act: Act::carry(TopicId::global(), String::new()) };
    store.apply(Arc::new([carry])).await.expect("a new store takes topics");
    let place = match &home.place {
        Place::Sqlite(directory) => {
            TablesPlace::Directory { directory: directory.clone(), sync: Sync::OffForTests }
        }
        Place::Postgres(url) => TablesPlace::Database { url: url.clone() },
    };
    let sick = Ward::open(SICK, &store, &place).await;
    let well = Ward::open(WELL, &store, &place).await;
    for ward in [&sick, &well] {
        ward.caught_up("both begin").await;
    }

    sick.health.send_replace(Health::Stalled);
    publish(&*store, "before it stalls", 1).await;
    let stalls = async || sick.stalls.load(Ordering::Relaxed).then_some(());
    wait_for_async("it stalls in its transaction", LIMIT, stalls).await.expect("it stalls");
    publish(&*store, "stalled", NOTES).await;
    well.caught_up("the other one goes on beside one that stalls").await;
    let report = sick.runner.report(UnixMillis::from(NOW)).await.expect("a report");
    assert_eq!(lag(&report), Some(u64::from(NOTES) + 1), "it stood still all the while");
    sick.health.send_replace(Health::Well);
    sick.caught_up("it recovers").await;

    sick.runner.wish(Wish::Paused).await.expect("it is paused");
    publish(&*store, "paused", NOTES).await;
    well.caught_up("the other one goes on beside one that is stopped").await;
    sick.runner.wish(Wish::Running).await.expect("it goes on");
    sick.caught_up("it goes on").await;

    sick.health.send_replace(Health::Broken);
    publish(&*store, "broken", NOTES).await;
    well.caught_up("the other one goes on beside one that is broken").await;
    let halted = |report: &Report| report.active().is_some_and(|one| one.state.halted.is_some());
    sick.until("it halts", halted).await;
    publish(&*store, "halted", NOTES).await;
    well.caught_up("the other one goes on beside one that has halted").await;
    for ward in [sick, well] {
        ward.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g10_independent_on_sqlite() {
    g10_independent(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g10_independent_on_postgres() {
    g10_independent(Home::postgres(Durability::Durable)).await;
}
