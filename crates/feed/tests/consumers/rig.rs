//! A store with a history, the tables of a consumer on either back end, and the checkers.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::admission::{Age, Verdict};
use kukuri_core::{Act, Allowance, Command, Cursor, Seq, Source, TopicId, UnixMillis};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_feed::{Home, Place, Report, Runner, RunnerConfig, Sync};
use kukuri_store::conformance::signing::{self, Author, Draft};
use kukuri_store::{Entry, Model, Store};
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::generate::{Dice, Seed, World, batches, untrimmed};
use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::scratch::Scratch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::notes::{self, Key, NAME, Notes, read_handled, read_notes};

pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Where the consumer's tables are.
pub enum Ground {
    Directory(Scratch),
    /// A directory of somebody else.
    Foreign(PathBuf),
    /// With the server, if it is not the test's own.
    Database {
        cluster: Option<Arc<Cluster>>,
        url: String,
    },
}

impl Ground {
    pub fn sqlite() -> Self {
        Self::Directory(Scratch::new().unwrap())
    }

    pub fn postgres() -> Self {
        let cluster = Arc::new(Cluster::start(Durability::Fast).unwrap());
        let url = cluster.create_database();
        Self::Database { cluster: Some(cluster), url }
    }

    pub fn at(url: String) -> Self {
        Self::Database { cluster: None, url }
    }

    /// What another process finds it by.
    pub fn address(&self) -> String {
        match self {
            Self::Directory(scratch) => scratch.path().to_str().unwrap().to_owned(),
            Self::Foreign(path) => path.to_str().unwrap().to_owned(),
            Self::Database { url, .. } => url.clone(),
        }
    }

    /// The ground of another process.
    pub fn at_address(address: &str) -> Self {
        match address.contains("://") {
            true => Self::at(address.to_owned()),
            false => Self::Foreign(address.into()),
        }
    }

    /// A new one of the same sort.
    pub fn fresh(&self) -> Self {
        match self {
            Self::Directory(_) | Self::Foreign(_) => Self::sqlite(),
            Self::Database { cluster, .. } => {
                let cluster = cluster.clone().expect("the server is not the test's own");
                Self::Database { url: cluster.create_database(), cluster: Some(cluster) }
            }
        }
    }

    /// Both, one after the other.
    pub fn both() -> [fn() -> Self; 2] {
        [Self::sqlite, Self::postgres]
    }

    pub fn place(&self) -> Place {
        match self {
            Self::Directory(scratch) => directory(scratch.path()),
            Self::Foreign(path) => directory(path),
            Self::Database { url, .. } => Place::Database { url: url.clone() },
        }
    }

    pub async fn home(&self) -> Home {
        Home::open(&self.place(), NAME).await.unwrap()
    }

    /// Whether somebody else can open and write to it now.
    pub async fn is_free(&self) -> bool {
        Home::open(&self.place(), NAME).await.is_ok()
    }
}

fn directory(path: &Path) -> Place {
    Place::Directory { directory: path.to_owned(), sync: Sync::OffForTests }
}

/// Fast enough for tests: whoever is gone is replaced soon.
pub fn config() -> RunnerConfig {
    RunnerConfig {
        lease: Duration::from_millis(300),
        poll_interval: Duration::from_millis(100),
        try_pauses: vec![Duration::ZERO; 5],
        backoff_min: Duration::from_millis(20),
        backoff_max: Duration::from_millis(100),
        retired_keep: Duration::from_millis(100),
        ..RunnerConfig::standard()
    }
}

pub async fn runner(
    store: &Arc<dyn Store>,
    ground: &Ground,
    notes: &Notes,
    config: RunnerConfig,
) -> Runner<Notes> {
    let home = ground.home().await;
    Runner::open(notes.clone(), Arc::clone(store), home, config).await.unwrap()
}

/// A runner at work.
pub struct Running {
    pub runner: Runner<Notes>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(runner: Runner<Notes>) -> Self {
        let stop = CancellationToken::new();
        let task = {
            let (runner, stop) = (runner.clone(), stop.clone());
            tokio::spawn(async move { runner.run(stop).await })
        };
        Self { runner, stop, task }
    }

    /// In good order.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// As a process that is killed.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub async fn report(&self) -> Report {
        self.runner.report(UnixMillis::from(NOW)).await.unwrap()
    }

    /// Until the active generation has read everything, and nothing is being built.
    pub async fn caught_up(&self) -> Report {
        self.until("the consumer to catch up", is_caught_up).await
    }

    pub async fn until(&self, what: &str, holds: impl FnMut(&Report) -> bool) -> Report {
        self.until_within(WAIT_MAX, what, holds).await
    }

    pub async fn until_within(
        &self,
        limit: Duration,
        what: &str,
        mut holds: impl FnMut(&Report) -> bool,
    ) -> Report {
        let mut last = None;
        let reported = wait_for_async(what, limit, async || {
            last = self.runner.report(UnixMillis::from(NOW)).await.ok();
            last.take_if(|report| holds(report))
        })
        .await;
        match reported {
            Ok(report) => report,
            Err(error) => panic!("{error}: {last:#?}"),
        }
    }
}

pub fn is_caught_up(report: &Report) -> bool {
    report.building().is_none()
        && report.active().is_some_and(|active| {
            active.lag_rows == 0 && active.lost.is_none() && active.state.halted.is_none()
        })
}

/// Takes one note from the tables of a consumer's first generation.
pub const LOSE_A_NOTE: &str = "DELETE FROM notes_g1 WHERE content IN
    (SELECT content FROM notes_g1 ORDER BY content LIMIT 1)";

/// Changes the tables of a consumer behind its back.
pub async fn script(home: &Home, sql: &str) {
    let mut writing = home.write().await.unwrap();
    writing.desk().script(sql).await.unwrap();
    writing.commit().await.unwrap();
}

/// Ends a consumer that has caught up, has parked nothing, and holds what it should.
pub async fn nothing_parked(running: Running, store: &dyn Store, home: &Home) {
    let report = running.caught_up().await;
    assert_eq!(report.active().unwrap().state.parked, 0);
    running.stop().await;
    check_offset(store, home).await.unwrap();
    check_notes(store, home).await.unwrap();
}

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(WAIT_MAX, work).await;
    done.unwrap_or_else(|_| panic!("waited for {what}"))
}

pub async fn model() -> Arc<Model> {
    let model = Arc::new(Model::default());
    welcome(&*model).await;
    model
}

/// Sees to it that posts are taken in, whatever a history has made of the node.
pub async fn welcome(store: &dyn Store) {
    apply(store, Act::Allow(Allowance::STANDARD)).await;
    apply(store, Act::carry(TopicId::global(), "")).await;
}

pub async fn apply(store: &dyn Store, act: Act) {
    let command = Command { at: NOW.into(), act };
    assert!(store.apply([command].into()).await.unwrap().outcomes[0].is_ok());
}

pub async fn post(store: &dyn Store, text: &str) -> EventId {
    let draft = Draft::new(1, NOW).tag("t", TopicId::global()).content(text);
    publish(store, &draft).await
}

pub async fn posts(store: &dyn Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        post(store, &format!("post {number}")).await;
    }
}

pub async fn publish(store: &dyn Store, draft: &Draft) -> EventId {
    // A history may have forgotten what is as old as this.
    let checked = signing::check_by(&Author::numbered(1).sign(draft), NOW, Age::Any).unwrap();
    let admitted = checked.admit(Verdict::Admit, Source::Ws, None).unwrap();
    let id = admitted.event().id();
    apply(store, Act::Publish(admitted)).await;
    id
}

/// A random history of a store: events that replace, delete and outlive each other, topics that come and
/// go, purges.
pub struct History {
    seed: Seed,
    lots: u32,
    dice: Dice,
    batches: Vec<Arc<[Command]>>,
}

impl History {
    pub fn new(seed: Seed) -> Self {
        Self { seed, lots: 0, dice: seed.dice(), batches: Vec::new() }
    }

    /// Lets a part of it happen.
    pub async fn go_on(&mut self, store: &dyn Store) {
        if self.batches.is_empty() {
            let world = World::new(self.seed.part(self.lots.into()), self.lots, 40);
            self.lots += 1;
            let commands = untrimmed(&world, &mut self.dice, 120);
            self.batches = batches(&commands, &mut self.dice);
            self.batches.reverse();
        }
        for _ in 0..=self.dice.below(4) {
            let Some(batch) = self.batches.pop() else { return };
            store.apply(batch).await.unwrap();
        }
    }
}

/// What a reader of all rows has to hold: the visible posts, topic by topic.
pub async fn visible(store: &dyn Store) -> BTreeMap<Key, Vec<u8>> {
    let entries = store.page(kukuri_store::Place::Records(None), usize::MAX).await.unwrap();
    let mut visible = BTreeMap::new();
    for entry in entries {
        let Entry::Record(record) = entry else { continue };
        if record.is_effective() && notes::wants(record.event().kind()) {
            for topic in record.topics() {
                let key = (record.event().id(), topic.as_str().to_owned());
                visible.insert(key, record.event().content().as_bytes().to_vec());
            }
        }
    }
    visible
}

/// Whether the active generation holds exactly what is visible, except for what is parked.
pub async fn check_notes(store: &dyn Store, home: &Home) -> Result<(), String> {
    let mut snapshot = home.read().await.unwrap();
    let active = home.active(snapshot.desk()).await.unwrap().expect("a generation is active");
    let found = read_notes(snapshot.desk(), active.generation).await.unwrap();
    let parked = parked(snapshot.desk(), active.generation.0).await;
    snapshot.end().await.unwrap();
    let mut wanted = visible(store).await;
    wanted.retain(|(id, _), _| !parked.1.contains(id));
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{} notes, {} visible posts", found.len(), wanted.len())),
    }
}

/// Whether the rows that were handled are those up to the offset, each once, except for what is parked.
/// Only of a generation that has come all the way by the feed.
pub async fn check_offset(store: &dyn Store, home: &Home) -> Result<(), String> {
    let mut snapshot = home.read().await.unwrap();
    let Some(active) = home.active(snapshot.desk()).await.unwrap() else { return Ok(()) };
    let handled = read_handled(snapshot.desk(), active.generation).await.unwrap();
    let parked = parked(snapshot.desk(), active.generation.0).await;
    snapshot.end().await.unwrap();
    let start = Cursor { seq: Seq::ZERO, ..active.cursor };
    let rows = store.feed(start, usize::MAX).await.unwrap();
    let wanted = rows.iter().filter(|row| row.seq <= active.cursor.seq && notes::wants(row.kind));
    let wanted: BTreeSet<i64> =
        wanted.map(|row| row.seq.0).filter(|seq| !parked.0.contains(seq)).collect();
    if let Some((seq, times)) = handled.iter().find(|(_, times)| **times != 1) {
        return Err(format!("row {seq} was handled {times} times"));
    }
    let handled: BTreeSet<i64> = handled.into_keys().collect();
    let at = active.cursor.seq;
    if let Some(seq) = handled.difference(&wanted).next() {
        return Err(format!("row {seq} was handled, and the offset is {at}"));
    }
    match wanted.difference(&handled).next() {
        Some(seq) => Err(format!("row {seq} was not handled, and the offset is {at}")),
        None => Ok(()),
    }
}

/// The rows and the events that are parked.
async fn parked(
    desk: &mut kukuri_feed::Desk,
    generation: i64,
) -> (BTreeSet<i64>, BTreeSet<EventId>) {
    let sql = "SELECT seq, event_id FROM parked WHERE generation = $1";
    let rows = desk.rows(sql, vec![generation.into()]).await.unwrap();
    let id = |row: &kukuri_feed::Row| EventId::from_bytes(row.blob(1).unwrap().try_into().unwrap());
    (rows.iter().map(|row| row.int(0).unwrap()).collect(), rows.iter().map(id).collect())
}
