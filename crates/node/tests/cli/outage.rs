//! A PostgreSQL server that goes away and comes back.

use std::io::Write;

use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::process::Process;

use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::runtime::Runtime;

use crate::site::{LIMIT, NOW, Site, ids, notes};

fn says(process: &Process, words: &str) {
    wait_for(words, LIMIT, || process.stderr().contains(words).then_some(())).unwrap();
}

#[test]
fn an_import_with_patience_outlives_its_server() {
    let mut cluster = Cluster::start(Durability::Fast).unwrap();
    let site = Site::postgres(&cluster.create_database());
    let lines = notes(900);
    site.topics();
    let follower = site.spawn(&["feed", "--follow"]);
    let mut import = site.spawn(&["import", "-", "--patience", "300", "--report", "-"]);
    let mut stdin = import.stdin().unwrap();
    let mut send = |lines: &[String]| {
        lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    };
    send(&lines[..300]);
    let first = import.line(LIMIT).unwrap();
    assert!(first.contains("\"ok\":true"), "{first}");
    cluster.stop_fast().unwrap();
    send(&lines[300..]);
    says(&import, ": waiting for it");
    says(&follower, "trying again until it is back");
    cluster.start_again().unwrap();
    drop(stdin);
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(0), "{}", import.stderr());
    assert_eq!(site.exported(&[]), ids(&lines));
    for seq in 1..=900 {
        let row = follower.line(LIMIT).unwrap();
        assert!(row.starts_with(&format!("{{\"seq\":{seq},")), "{row}");
    }
    site.run(&["doctor", "--all"]).ok();
}

/// An import of 600 lines whose server goes away once 256 of them are in.
struct Cut {
    cluster: Cluster,
    site: Site,
    lines: Vec<String>,
    import: Process,
}

impl Cut {
    fn new(args: &[&str]) -> Self {
        let mut cluster = Cluster::start(Durability::Fast).unwrap();
        let site = Site::postgres(&cluster.create_database());
        let lines = notes(600);
        let mut import = site.spawn(&[&["import", "-", "--report", "-"], args].concat());
        let mut stdin = import.stdin().unwrap();
        lines[..256].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
        for _ in 0..256 {
            assert!(import.line(LIMIT).unwrap().contains("\"ok\":true"));
        }
        cluster.stop_fast().unwrap();
        lines[256..].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
        Self { cluster, site, lines, import }
    }

    /// The import ends with this code, and goes on from there when it is run again.
    fn ends(mut self, code: i32, words: &[&str]) {
        assert_eq!(self.import.wait(LIMIT).unwrap().code(), Some(code));
        let stderr = self.import.stderr();
        words.iter().for_each(|words| assert!(stderr.contains(words), "{words:?}: {stderr}"));
        self.cluster.start_again().unwrap();
        self.site.import(&self.lines).ok().says("duplicate                   256");
    }
}

#[test]
fn an_import_that_waits_can_be_interrupted_with_all_lines_read() {
    let cut = Cut::new(&["--patience", "300"]);
    says(&cut.import, ": waiting for it");
    cut.import.interrupt().unwrap();
    cut.ends(130, &["interrupted after line 256"]);
}

#[test]
fn an_import_without_patience_says_how_far_it_came() {
    let words = [
        "stdin: 256 events",
        "344 lines have no answer",
        "at line 257: error: storage unavailable",
    ];
    Cut::new(&[]).ends(1, &words);
}

/// Somebody else's lock keeps the server busy for ever: who interrupts once is told so, and who does it
/// twice has left.
#[test]
fn an_import_whose_server_hangs_can_be_left() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let database = cluster.create_database();
    let site = Site::postgres(&database);
    site.topics();
    let runtime = Runtime::new().unwrap();
    let (mut locking, mut looking) = locked(&runtime, &database, ALL_EVENTS);
    let lines = notes(300);
    let mut import = site.spawn(&["import", "-"]);
    let mut stdin = import.stdin().unwrap();
    lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    waits_for_a_lock(&runtime, &mut looking);
    import.interrupt().unwrap();
    says(&import, "interrupted: finishing what was begun; again to leave at once");
    import.interrupt().unwrap();
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(130), "{}", import.stderr());
    says(&import, "interrupted twice: leaving; run the same import again to go on");
    runtime.block_on(locking.execute("ROLLBACK")).unwrap();
    site.import(&lines).ok();
    assert_eq!(site.exported(&[]), ids(&lines));
}

/// Somebody else writes, and the purge waits for its turn: it can be interrupted, ends with what it has begun, and
/// goes on when it is run again.
#[test]
fn a_purge_that_waits_can_be_interrupted() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let database = cluster.create_database();
    let site = Site::postgres(&database);
    let lines = notes(600);
    site.import(&lines).ok();
    let runtime = Runtime::new().unwrap();
    let turn = "SELECT FROM cn_relay.lane FOR UPDATE";
    let (mut writing, mut looking) = locked(&runtime, &database, turn);
    let soon = (NOW.0 + 60).to_string();
    let args = ["purge", "--before", &soon];
    let mut purge = site.spawn(&args);
    waits_for_a_lock(&runtime, &mut looking);
    purge.interrupt().unwrap();
    runtime.block_on(writing.execute("ROLLBACK")).unwrap();
    assert_eq!(purge.wait(LIMIT).unwrap().code(), Some(130), "{}", purge.stderr());
    says(&purge, "interrupted after at least 0 events");
    let left = site.exported(&[]).len();
    assert!(left > 0 && left < lines.len(), "what was begun is finished: {left}");
    site.run(&args).ok().says(&format!("purged {left} events"));
    assert!(site.exported(&[]).is_empty());
    site.run(&["doctor", "--all"]).ok();
}

/// A dry run went on to its end, whoever asked it to stop. It has nothing to finish, and so leaves while it waits.
#[test]
fn a_dry_run_that_waits_can_be_interrupted() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let database = cluster.create_database();
    let site = Site::postgres(&database);
    let lines = notes(600);
    site.import(&lines).ok();
    let runtime = Runtime::new().unwrap();
    let (mut locking, mut looking) = locked(&runtime, &database, ALL_EVENTS);
    let soon = (NOW.0 + 60).to_string();
    let args = ["purge", "--before", &soon, "--dry-run"];
    let mut purge = site.spawn(&args);
    waits_for_a_lock(&runtime, &mut looking);
    // As a service manager does; the purge itself is interrupted as by Ctrl-C.
    purge.terminate().unwrap();
    assert_eq!(purge.wait(LIMIT).unwrap().code(), Some(130), "{}", purge.stderr());
    says(&purge, "interrupted after 0 events (0 bytes); nothing was changed");
    runtime.block_on(locking.execute("ROLLBACK")).unwrap();
    assert_eq!(site.exported(&[]), ids(&lines));
    site.run(&args).ok().says("would purge 600 events");
}

const ALL_EVENTS: &str = "LOCK TABLE cn_relay.events IN ACCESS EXCLUSIVE MODE";

/// Somebody who holds a lock, and somebody who sees who waits for it.
fn locked(runtime: &Runtime, database: &str, lock: &'static str) -> (PgConnection, PgConnection) {
    runtime.block_on(async {
        let mut locking = PgConnection::connect(database).await.unwrap();
        locking.execute("BEGIN").await.unwrap();
        locking.execute(lock).await.unwrap();
        (locking, PgConnection::connect(database).await.unwrap())
    })
}

fn waits_for_a_lock(runtime: &Runtime, looking: &mut PgConnection) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    wait_for("a writer that waits for the lock", LIMIT, || {
        let row = runtime.block_on(looking.fetch_one(waiting)).unwrap();
        (row.get::<i64, _>(0) > 0).then_some(())
    })
    .unwrap();
}
