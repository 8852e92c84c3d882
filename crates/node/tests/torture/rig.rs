//! Where stores live, the programs that work on them, and how often things are done.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kukuri_event::UnixSeconds;
use kukuri_store::Store;
use kukuri_store_postgres::{Fsync, PostgresStore};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::generate::Seed;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use crate::checker::{Finding, History};
use crate::load::NOW;

/// How long a server may take to notice that a client is gone.
const DEAD_WAIT_MAX: Duration = Duration::from_secs(60);

/// Without commits that wait for the disk; the node reads it, too.
pub const UNSAFE_FOR_TESTS: &str = "KUKURI_TEST_UNSAFE";

/// Findings that are shown; a broken run may have thousands.
const SHOWN_MAX: usize = 20;

/// The seed of a test of this binary.
pub fn seed(test: &str) -> Seed {
    Seed::of_run(&format!("-p kukuri-node -E 'binary(torture) and test(={test})'"))
}

/// What is run: the node as it is, or with a fault built in.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    Node,
    Sabotaged(&'static str),
}

impl Program {
    fn command(self) -> Command {
        match self {
            Self::Node => Command::new(env!("CARGO_BIN_EXE_kukuri-node")),
            Self::Sabotaged(kind) => {
                let mut command = Command::new(sabotaged());
                command.env("KUKURI_SABOTAGE", kind);
                command
            }
        }
    }
}

/// The example is built with the tests of its package and lies beside them.
fn sabotaged() -> PathBuf {
    let node = Path::new(env!("CARGO_BIN_EXE_kukuri-node"));
    let path = node.with_file_name("examples").join("sabotaged");
    assert!(
        path.is_file(),
        "{} is missing: build it with the tests, without --test",
        path.display()
    );
    path
}

/// Where a store is.
#[derive(Clone, Debug)]
pub enum Place {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Place {
    /// The program with the arguments that name this place and the clock.
    pub fn command(&self, program: Program) -> Command {
        self.command_at(program, NOW)
    }

    /// As [`Place::command`], at another time.
    pub fn command_at(&self, program: Program, now: UnixSeconds) -> Command {
        let (flag, value): (_, OsString) = match self {
            Self::Sqlite(directory) => ("--data", directory.into()),
            Self::Postgres(url) => ("--database", url.into()),
        };
        let mut command = program.command();
        command.env_remove(UNSAFE_FOR_TESTS).env_remove("KUKURI_DATABASE");
        // Disks are small here, and full where a test is about that.
        command.env("KUKURI_CAPACITY_DISK_RESERVE_MIB", "0");
        command.arg(flag).arg(value).arg("--now").arg(now.0.to_string());
        command
    }

    /// Runs the node to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(Program::Node).args(arguments).output();
        output.expect("the node can be started")
    }

    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        self.open_parted(kukuri_store_postgres::Options::STANDARD.partition_rows_min).await
    }

    /// As [`Place::open`]; if this makes the store, and it has partitions, they hold so many numbers.
    pub async fn open_parted(&self, rows_min: u32) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Sqlite(directory) => {
                Arc::new(SqliteStore::open(directory, kukuri_store_sqlite::Options::standard(1))?)
            }
            Self::Postgres(url) => {
                let options = kukuri_store_postgres::Options {
                    fsync: Fsync::AnyForTests,
                    partition_rows_min: rows_min,
                    ..kukuri_store_postgres::Options::STANDARD
                };
                Arc::new(PostgresStore::open(url, options).await?)
            }
        })
    }

    /// Opens the store and checks it. A store that cannot be opened is a finding.
    pub async fn check(&self, history: &History<'_>) -> Vec<Finding> {
        match self.open().await {
            Ok(store) => {
                self.wait_for_the_dead().await;
                history.check(&*store).await
            }
            Err(error) => vec![Finding::Unreadable(format!("{error:#}"))],
        }
    }

    /// A server may still be at the commit of a client that was killed, or about to begin it. It is over
    /// when only the one store that the test has open can write. An embedded store died with its process; it
    /// is left as it is.
    pub async fn wait_for_the_dead(&self) {
        const WRITERS: &str = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'kukuri lane'";
        let Self::Postgres(url) = self else { return };
        let mut server = PgConnection::connect(url).await.expect("the server is there");
        wait_for_async("the dead", DEAD_WAIT_MAX, async || {
            let writers = sqlx::query_scalar(WRITERS).fetch_one(&mut server).await;
            let writers: i64 = writers.expect("the server answers");
            (writers <= 1).then_some(())
        })
        .await
        .expect("a server notices that its clients are gone");
    }

    /// What `doctor` says, if it says anything.
    pub fn doctor(&self) -> Vec<Finding> {
        let output = self.run(&["doctor"]);
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Vec::new() } else { vec![Finding::Program(text)] }
    }
}

/// A store of its own for a test, on the real disk, and what keeps it alive.
pub struct Home {
    pub place: Place,
    cluster: Option<Cluster>,
    _directory: Option<TempDir>,
}

impl Home {
    pub fn sqlite() -> Home {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let place = Place::Sqlite(directory.path().join("data"));
        Home { place, cluster: None, _directory: Some(directory) }
    }

    pub fn postgres(durability: Durability) -> Home {
        let cluster = Cluster::start_with(&Settings::new(durability)).expect("PostgreSQL starts");
        let place = Place::Postgres(cluster.create_database());
        Home { place, cluster: Some(cluster), _directory: None }
    }

    /// Writes behind the back of the store.
    pub fn sql(&self, sql: &str) {
        match (&self.place, &self.cluster) {
            (Place::Postgres(url), Some(cluster)) => {
                let database = url.rsplit('/').next().expect("an address has a database");
                let sql = format!("SET search_path = cn_relay; {sql}");
                cluster.sql(database, &sql).expect("the statement is good");
            }
            (Place::Sqlite(directory), _) => {
                let file = directory.join(kukuri_store_sqlite::FILE);
                let connection = rusqlite::Connection::open(file).expect("the file is there");
                connection.execute_batch(sql).expect("the statement is good");
            }
            (Place::Postgres(_), None) => unreachable!("a database of a test has a cluster"),
        }
    }
}

/// Fails the test if there is a finding.
pub fn require_none(what: &str, findings: &[Finding]) {
    let shown: Vec<String> = findings.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{what}: {} findings\n{}", findings.len(), shown.join("\n"));
}
