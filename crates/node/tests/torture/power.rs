//! Power cuts: the disk is copied at a moment at which every process that writes to it stands still,
//! and the copy is opened as after a reboot. It holds what was synced, so everything that the report
//! had acknowledged by then must be there, and every row that a reader of the feed had seen. Without
//! syncs it must not: that shows that the cut cuts.

mod machine;

use std::sync::Arc;

use kukuri_core::Cursor;
use kukuri_store::Store;
use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::mount::Unmountable;
use tempfile::TempDir;

use crate::checker::{Finding, History};
use crate::import::{Import, Plan};
use crate::load::Load;
use crate::rig::{self, UNSAFE_FOR_TESTS, require_none};
use machine::{Commits, Machine};

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

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Answers,
    /// While the log is moved into the file.
    Checkpoint,
}

/// One import with many cuts.
struct Cutting {
    images: usize,
    commits: Commits,
    dice: Dice,
    load: Arc<Load>,
    /// Answers before the first cut.
    first: usize,
    cuts: usize,
    in_flight: usize,
    checkpoints: usize,
}

impl Cutting {
    fn new(images: usize, commits: Commits, seed: Seed, long_bytes: usize) -> Cutting {
        // Enough for the most cuts there may be.
        let lines = 2 * images * LINES_PER_IMAGE;
        let load = Arc::new(Load::new(seed, lines).after_long_notes(long_bytes));
        let first = load.lines.len() - lines;
        let dice = seed.part(1).dice();
        Cutting { images, commits, dice, load, first, cuts: 0, in_flight: 0, checkpoints: 0 }
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
        let mut file_bytes = machine.file_bytes();
        while self.wants_more() {
            self.cuts += 1;
            if self.wait_for_moment(machine, &mut import) == Moment::Answers {
                show(&*store, &mut history).await;
            }
            import.pause();
            // However that moment was found: since the last cut the log was moved, or is being moved.
            let bytes = machine.file_bytes();
            self.checkpoints += usize::from(bytes > file_bytes);
            file_bytes = bytes;
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

    /// On a machine where little happens between two cuts, a few more until the log was moved.
    fn wants_more(&self) -> bool {
        let waits = self.first > 0 && self.checkpoints == 0;
        self.cuts < self.images || (waits && self.cuts < 2 * self.images)
    }

    /// Some answers later, with more lines under way; or else right when the log is moved.
    fn wait_for_moment(&mut self, machine: &Machine, import: &mut Import) -> Moment {
        let size = machine.file_bytes();
        let grows = || machine.file_bytes() > size;
        let more = 1 + self.dice.below(ANSWERS_MAX);
        assert!(import.wait_for_answers_or(more, grows), "it ended: {}", import.stderr());
        if grows() {
            return Moment::Checkpoint;
        }
        assert!(import.wait_for_sent(AHEAD), "nobody reads any more");
        Moment::Answers
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
    for seed in rig::seed(test).rounds() {
        let machine = match make(Commits::Synced) {
            Ok(machine) => machine,
            Err(error) => return error.skip(test),
        };
        let mut cutting = Cutting::new(images, Commits::Synced, seed, machine.long_bytes());
        let findings = cutting.run(&machine).await;
        let Cutting { cuts, in_flight, checkpoints, .. } = cutting;
        println!(
            "{test}, seed {seed}: {cuts} images, {in_flight} with lines in flight, \
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
