//! Real processes: one that is stopped for longer than its lease, one that is stopped while it writes, and
//! one that a row ends each time.
//!
//! Each is this very program, told by its environment to be a consumer. All of them make the same store,
//! since the same commands give the same feed.

use std::io::{BufRead, Write, stdin};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use kukuri_feed::{RunnerConfig, Step};
use kukuri_store::{Model, Store};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;

use crate::notes::{KILL, Notes};
use crate::rig::{
    Ground, Running, WAIT_MAX, check_notes, check_offset, config, model, post, posts, runner,
};

const LEASE: Duration = Duration::from_secs(1);
/// A takeover is awaited for so many leases, since the machine may be busy.
const TAKEOVER_LEASES: u32 = 5;
const STOPS_MAX: usize = 20;
/// Restarts after which a row that ends its process is parked at the latest.
const RESTARTS_MAX: usize = 5;

const GROUND: &str = "KUKURI_TEST_GROUND";
const STALL_AT: &str = "KUKURI_TEST_STALL_AT";
const POSTS: &str = "KUKURI_TEST_POSTS";

/// What a child says, each at most once.
const READY: &str = "child: ready";
const STALLED: &str = "child: stalled";
const ACQUIRED: &str = "child: acquired";
const REFUSED: &str = "child: refused";
const DONE: &str = "child: done";

/// What all of them find in their stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Posts {
    Harmless,
    WithOneThatKills,
}

async fn store(posted: Posts) -> Arc<Model> {
    let store = model().await;
    posts(&*store, 0..150).await;
    if posted == Posts::WithOneThatKills {
        post(&*store, KILL).await;
    }
    posts(&*store, 150..300).await;
    store
}

struct Child {
    process: Process,
    stdin: Option<ChildStdin>,
}

impl Child {
    fn start(ground: &Ground, posted: Posts, stall_at: Option<Step>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::child", "--nocapture"]).stdin(Stdio::piped());
        command.env(GROUND, ground.address());
        if posted == Posts::WithOneThatKills {
            command.env(POSTS, KILL);
        }
        command.envs(stall_at.map(|step| (STALL_AT, format!("{step:?}"))));
        let mut process = Process::spawn(&mut command).unwrap();
        let stdin = process.stdin();
        Self { process, stdin }
    }

    fn says(&self, what: &str, limit: Duration) {
        let told = || self.process.lines_so_far().iter().any(|line| line == what).then_some(());
        let told = wait_for(what, limit, told);
        told.unwrap_or_else(|error| panic!("{error}: {}", self.process.stderr()));
    }

    /// Whether it has taken nothing over.
    fn is_idle(&self) -> bool {
        let words = |line: &&String| line.starts_with("child: ") && *line != READY;
        !self.process.lines_so_far().iter().any(|line| words(&line))
    }

    /// Stops it while nothing of it holds a lock on a file: a lease that is just being written down is not
    /// taken over (see the next test).
    async fn stop_between_writes(&self, ground: &Ground) {
        for _ in 0..STOPS_MAX {
            self.process.stop().unwrap();
            if ground.is_free().await {
                return;
            }
            self.process.cont().unwrap();
        }
        panic!("it never lets go of its lock: {}", self.process.stderr());
    }

    /// Lets it go on where it stalls.
    fn go(&mut self) {
        self.process.cont().unwrap();
        writeln!(self.stdin.as_mut().unwrap(), "go").unwrap();
    }

    fn end(mut self) {
        self.stdin = None;
        let ended = self.process.wait(WAIT_MAX).unwrap();
        assert!(ended.success(), "{}", self.process.stderr());
    }
}

/// No test of its own: what a process does that one of the others has started.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    let Ok(address) = std::env::var(GROUND) else { return };
    // A row that ends a worker ends this process.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort()
    }));
    let posted = std::env::var(POSTS).map_or(Posts::Harmless, |_| Posts::WithOneThatKills);
    let store: Arc<dyn Store> = store(posted).await;
    let ended = Arc::new(AtomicBool::new(false));
    let config = RunnerConfig { lease: LEASE, probe: Some(probe(Arc::clone(&ended))), ..config() };
    let ground = Ground::at_address(&address);
    let runner = runner(&store, &ground, &Notes::default(), config).await;
    println!("{READY}");
    let running = Running::start(runner);
    let (mut done, mut refused) = (false, false);
    running
        .until_within(WAIT_MAX * 10, "the end of the input", |report| {
            let caught_up = report.active().is_some_and(|active| active.lag_rows == 0);
            say_once(&mut done, caught_up, DONE);
            say_once(&mut refused, report.failures > 0, REFUSED);
            ended.load(Ordering::Relaxed)
        })
        .await;
    running.stop().await;
}

fn say_once(said: &mut bool, now: bool, what: &str) {
    if now && !std::mem::replace(said, true) {
        println!("{what}");
    }
}

/// Tells of the first hold, and stalls at a step until a line comes. Notices the end of the input.
fn probe(ended: Arc<AtomicBool>) -> kukuri_feed::Probe {
    let (sender, go) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let stall_at = std::env::var(STALL_AT).ok();
    let (go, acquired, stalled) = (Mutex::new(go), AtomicBool::new(false), AtomicBool::new(false));
    Arc::new(move |step| {
        if step == Step::Acquired && !acquired.swap(true, Ordering::Relaxed) {
            println!("{ACQUIRED}");
        }
        let here = stall_at.as_ref().is_some_and(|at| *at == format!("{step:?}"));
        if here && !stalled.swap(true, Ordering::Relaxed) {
            println!("{STALLED}");
            let _ = tokio::task::block_in_place(|| go.lock().unwrap().recv());
        }
    })
}

/// A consumer that has read all there was, before the posts.
async fn begun(ground: &Ground) {
    let store: Arc<dyn Store> = model().await;
    let running = Running::start(runner(&store, ground, &Notes::default(), config()).await);
    running.caught_up().await;
    running.stop().await;
}

async fn check(ground: &Ground, store: &dyn Store) {
    let home = ground.home().await;
    check_offset(store, &home).await.unwrap();
    check_notes(store, &home).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_is_stopped_for_two_leases_changes_nothing_any_more() {
    for ground in Ground::both() {
        let first = ground();
        for step in [Step::Read, Step::Projected] {
            let ground = first.fresh();
            begun(&ground).await;
            let mut owner = Child::start(&ground, Posts::Harmless, Some(step));
            owner.says(STALLED, WAIT_MAX);
            owner.stop_between_writes(&ground).await;
            let stopped_at = Instant::now();
            let other = Child::start(&ground, Posts::Harmless, None);
            // A process that has just begun makes its store first, for as long as a busy machine takes.
            other.says(READY, WAIT_MAX);
            other.says(ACQUIRED, LEASE * TAKEOVER_LEASES);
            other.says(DONE, WAIT_MAX);
            let twice = || (stopped_at.elapsed() >= LEASE * 2).then_some(());
            wait_for("twice the lease", WAIT_MAX, twice).unwrap();
            owner.go();
            // It tries to write what it had in hand.
            owner.says(REFUSED, WAIT_MAX);
            owner.end();
            other.end();
            check(&ground, &*store(Posts::Harmless).await).await;
        }
    }
}

/// It has SQLite's lock on the file, so there is nothing to be taken over; PostgreSQL ends its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_is_stopped_while_it_writes_goes_on_or_is_replaced() {
    for ground in Ground::both() {
        let ground = ground();
        begun(&ground).await;
        let mut owner = Child::start(&ground, Posts::Harmless, Some(Step::Applied));
        owner.says(STALLED, WAIT_MAX);
        owner.process.stop().unwrap();
        let stopped_at = Instant::now();
        let other = Child::start(&ground, Posts::Harmless, None);
        match &ground {
            Ground::Directory(_) | Ground::Foreign(_) => {
                let twice = || (stopped_at.elapsed() >= LEASE * 2).then_some(());
                wait_for("twice the lease", WAIT_MAX, twice).unwrap();
                assert!(other.is_idle());
            }
            Ground::Database { .. } => other.says(DONE, WAIT_MAX),
        }
        owner.go();
        owner.says(DONE, WAIT_MAX);
        owner.end();
        other.end();
        check(&ground, &*store(Posts::Harmless).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_ends_its_process_is_parked_after_a_few_restarts() {
    for ground in Ground::both() {
        let ground = ground();
        begun(&ground).await;
        let mut restarts = 0;
        loop {
            let mut child = Child::start(&ground, Posts::WithOneThatKills, None);
            let over = || {
                let done = child.process.lines_so_far().iter().any(|line| line == DONE);
                (done || !child.process.running().unwrap()).then_some(done)
            };
            if wait_for("the row, or an end", WAIT_MAX, over).unwrap() {
                child.end();
                break;
            }
            restarts += 1;
            assert!(restarts <= RESTARTS_MAX, "{}", child.process.stderr());
        }
        assert!(restarts > 1, "the row has ended processes");
        let store: Arc<dyn Store> = store(Posts::WithOneThatKills).await;
        let runner = runner(&store, &ground, &Notes::default(), config()).await;
        let parked = runner.parked(10).await.unwrap();
        assert_eq!(parked.len(), 1);
        assert!(parked[0].reason.contains("ended without a word"), "{parked:?}");
        check(&ground, &*store).await;
    }
}
