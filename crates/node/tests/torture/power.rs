//! Power cuts: the disk is copied at a moment at which every process that writes to it stands still,
//! and the copy is opened as after a reboot. It holds what was synced, so everything that the report
//! had acknowledged by then must be there, and every row that a reader of the feed had seen. Without
//! syncs it must not: that shows that the cut cuts.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use kukuri_core::Cursor;
use kukuri_store::Store;
use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::mount::{PowerCut, Restored, Unmountable};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;

use crate::checker::{Finding, History};
use crate::freeze::Frozen;
use crate::import::{Import, Plan};
use crate::load::Load;
use crate::rig::{self, Place, UNSAFE_FOR_TESTS, require_none};

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 128 * MIB;
const DISK_BYTES_POSTGRES: u64 = 320 * MIB;

/// A store moves its log into the file when it has grown to 32 MiB.
const LONG_BYTES: usize = 26 << 20;

const IMAGES: usize = 20;
const IMAGES_POSTGRES: usize = 6;
/// How many cuts of a run must have hit lines that were sent and not answered yet.
const IN_FLIGHT_PERCENT_MIN: usize = 50;

/// The most answers that a cut waits for, and how far the import may be ahead of what is known: a
/// busy machine must not let it come to the end of the load between two cuts.
const ANSWERS_MAX: usize = 300;
const WINDOW: usize = 1_000;
/// How far it has to be ahead when it is stopped.
const AHEAD: usize = 800;
const LINES_PER_IMAGE: usize = ANSWERS_MAX + WINDOW;
/// More rows than lie between two cuts.
const ROWS_MAX: usize = 10 * LINES_PER_IMAGE;

/// Whether commits wait for the disk. They do not in the negative control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commits {
    Synced,
    Unsynced,
}

/// A store on a disk whose power can be cut.
enum Machine {
    Sqlite { disk: PowerCut },
    Postgres { server: Box<Server>, disk: PowerCut },
}

struct Server {
    cluster: Cluster,
    database: String,
    settings: Settings,
}

impl Machine {
    fn sqlite(_: Commits) -> Result<Machine, Unmountable> {
        Ok(Machine::Sqlite { disk: PowerCut::mount(DISK_BYTES)? })
    }

    fn postgres(commits: Commits) -> Result<Machine, Unmountable> {
        let disk = PowerCut::mount(DISK_BYTES_POSTGRES)?;
        let mut settings = Settings::new(Durability::Durable);
        settings.home = Some(disk.path().to_owned());
        settings.options.push(("max_wal_size".into(), "64MB".into()));
        if commits == Commits::Unsynced {
            settings.options.push(("fsync".into(), "off".into()));
        }
        let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
        let url = cluster.create_database();
        // The test's cluster is made without syncs; that of a user has been there for long.
        let synced = Command::new("sync").arg("--file-system").arg(disk.path()).status();
        assert!(synced.is_ok_and(|status| status.success()), "the disk can be synced");
        let database = url.rsplit('/').next().expect("an address has a database").to_owned();
        let server = Box::new(Server { cluster, database, settings });
        Ok(Machine::Postgres { server, disk })
    }

    fn place(&self) -> Place {
        match self {
            Self::Sqlite { disk } => Place::Sqlite(disk.path().join("data")),
            Self::Postgres { server, .. } => Place::Postgres(server.cluster.url(&server.database)),
        }
    }

    /// The size of the embedded store's file, without its log.
    fn file_bytes(&self) -> u64 {
        match self.place() {
            Place::Sqlite(directory) => {
                fs::metadata(directory.join(kukuri_store_sqlite::FILE)).map_or(0, |data| data.len())
            }
            Place::Postgres(_) => 0,
        }
    }

    /// What has to be written before the first cut, so that the log is moved into the file during
    /// the cuts that follow.
    fn long_bytes(&self) -> usize {
        match self {
            Self::Sqlite { .. } => LONG_BYTES,
            Self::Postgres { .. } => 0,
        }
    }

    /// The disk as a cut would leave it now. The import stands still already.
    fn cut(&self) -> Restored {
        let image = match self {
            Self::Sqlite { disk } => disk.cut(),
            Self::Postgres { server, disk } => {
                let _frozen = Frozen::server(&server.cluster.data_dir());
                disk.cut()
            }
        };
        let image = image.expect("there is memory for an image");
        image.mount().expect("a journalling file system survives a cut")
    }

    /// Opens the store on a restored disk and checks it.
    async fn check(
        &self,
        restored: &Restored,
        history: &History<'_>,
        commits: Commits,
    ) -> Vec<Finding> {
        let server = match self {
            Self::Sqlite { .. } => {
                return check(&Place::Sqlite(restored.path().join("data")), history, commits).await;
            }
            Self::Postgres { server, .. } => server,
        };
        let home = Some(restored.path().to_owned());
        let settings = Settings { home, ..server.settings.clone() };
        // It names a process that a reboot would have ended.
        let _ = fs::remove_file(restored.path().join("data/postmaster.pid"));
        match Cluster::start_with(&settings) {
            Ok(cluster) => {
                check(&Place::Postgres(cluster.url(&server.database)), history, commits).await
            }
            Err(error) => vec![Finding::Unreadable(format!("{error:#}"))],
        }
    }
}

/// A server without syncs is one that `doctor` does not open.
async fn check(place: &Place, history: &History<'_>, commits: Commits) -> Vec<Finding> {
    let mut findings = place.check(history).await;
    if commits == Commits::Synced {
        findings.extend(place.doctor());
    }
    findings
}

/// One import with many cuts.
struct Cutting {
    images: usize,
    commits: Commits,
    dice: Dice,
    load: Arc<Load>,
    /// Answers before the first cut.
    first: usize,
    in_flight: usize,
    checkpoints: usize,
}

impl Cutting {
    fn new(images: usize, commits: Commits, seed: Seed, long_bytes: usize) -> Cutting {
        let lines = images * LINES_PER_IMAGE;
        let load = Arc::new(Load::new(seed, lines).after_long_notes(long_bytes));
        let first = load.lines.len() - lines;
        let dice = seed.part(1).dice();
        Cutting { images, commits, dice, load, first, in_flight: 0, checkpoints: 0 }
    }

    /// Cuts until there are enough images, or a finding.
    async fn run(&mut self, machine: &Machine) -> Vec<Finding> {
        let place = machine.place();
        let store = place.open().await.expect("a new store opens");
        self.load.carry(&*store).await.expect("a new store takes topics");
        let reports = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let unsynced = self.commits == Commits::Unsynced;
        let plan = Plan {
            window: WINDOW,
            report: Some(reports.path().join("report")),
            environment: unsynced.then_some((UNSAFE_FOR_TESTS, "1")).into_iter().collect(),
            ..Plan::new(&self.load)
        };
        let load = Arc::clone(&self.load);
        let mut history = History::new(&load);
        let mut import = Import::start(&place, plan);
        assert!(import.wait_for_answers(self.first), "the import ended: {}", import.stderr());
        for _ in 0..self.images {
            self.wait_for_moment(machine, &mut import);
            show(&*store, &mut history).await;
            import.pause();
            import.take_answers();
            import.tell(&mut history);
            self.in_flight += usize::from(import.is_in_flight());
            let restored = machine.cut();
            let findings = machine.check(&restored, &history, self.commits).await;
            if !findings.is_empty() {
                return findings;
            }
            import.resume();
        }
        Vec::new()
    }

    /// Some answers later, with more lines under way; or else right when the log is moved into the
    /// file.
    fn wait_for_moment(&mut self, machine: &Machine, import: &mut Import) {
        let size = machine.file_bytes();
        let grows = || machine.file_bytes() > size;
        let more = 1 + self.dice.below(ANSWERS_MAX);
        assert!(import.wait_for_answers_or(more, grows), "it ended: {}", import.stderr());
        if machine.file_bytes() > size {
            self.checkpoints += 1;
        } else {
            assert!(import.wait_for_sent(AHEAD), "nobody reads any more");
        }
    }
}

/// Tells the history what a reader of the feed can see at this moment.
async fn show(store: &dyn Store, history: &mut History<'_>) {
    let bounds = store.bounds().await.expect("the store answers");
    let after = Cursor { seq: history.last_shown(), ..bounds.start() };
    history.show(store.feed(after, ROWS_MAX).await.expect("the feed is whole"));
}

/// Every image is as it must be.
async fn hold(test: &str, images: usize, make: fn(Commits) -> Result<Machine, Unmountable>) {
    for seed in rig::rounds(rig::seed(test)) {
        let machine = match make(Commits::Synced) {
            Ok(machine) => machine,
            Err(error) => return error.skip(test),
        };
        let mut cutting = Cutting::new(images, Commits::Synced, seed, machine.long_bytes());
        let findings = cutting.run(&machine).await;
        let Cutting { in_flight, checkpoints, .. } = cutting;
        println!(
            "{test}, seed {seed}: {images} images, {in_flight} with lines in flight, \
             {checkpoints} while the log was moved into the file"
        );
        require_none(test, &findings);
        if machine.long_bytes() > 0 {
            assert!(checkpoints > 0, "no cut hit the move of the log into the file");
        }
        let min = images * IN_FLIGHT_PERCENT_MIN / 100;
        assert!(in_flight >= min, "only {in_flight} cuts hit lines in flight");
    }
}

/// Without syncs the same run finds a loss.
async fn lose(test: &str, images: usize, make: fn(Commits) -> Result<Machine, Unmountable>) {
    let machine = match make(Commits::Unsynced) {
        Ok(machine) => machine,
        Err(error) => return error.skip(test),
    };
    let mut cutting = Cutting::new(images, Commits::Unsynced, rig::seed(test), 0);
    let findings = cutting.run(&machine).await;
    let loss = |finding: &Finding| matches!(finding, Finding::Lost(_) | Finding::Unreadable(_));
    assert!(findings.iter().any(loss), "a cut without syncs lost nothing: {findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_durable_on_sqlite() {
    hold("power::g4_durable_on_sqlite", IMAGES, Machine::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_without_syncs_is_noticed_on_sqlite() {
    lose("power::g4_without_syncs_is_noticed_on_sqlite", IMAGES, Machine::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_durable_on_postgres() {
    hold("power::g4_durable_on_postgres", IMAGES_POSTGRES, Machine::postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_without_syncs_is_noticed_on_postgres() {
    lose("power::g4_without_syncs_is_noticed_on_postgres", IMAGES_POSTGRES, Machine::postgres)
        .await;
}
