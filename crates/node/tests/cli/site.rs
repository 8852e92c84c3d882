//! A store of a test's own, and the program on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kukuri_core::TopicId;
use kukuri_event::{Event, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Row, raw_sql};
use tempfile::TempDir;

/// The second at which every command believes to run.
pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
pub const LIMIT: Duration = Duration::from_secs(120);

/// What a node that runs by the system's clock believes.
pub fn system_time() -> UnixSeconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    UnixSeconds(now.try_into().unwrap())
}

pub struct Site {
    dir: TempDir,
    database: Option<String>,
}

/// How a command ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The lines of stdout as JSON.
    pub fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "{words:?} is not in: {}", self.stderr);
        self
    }
}

impl Site {
    pub fn sqlite() -> Self {
        Self { dir: TempDir::new().unwrap(), database: None }
    }

    pub fn postgres(url: &str) -> Self {
        Self { database: Some(url.to_owned()), ..Self::sqlite() }
    }

    /// A place of the same sort that holds nothing.
    pub fn elsewhere(&self) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let Some(url) = &self.database else { return Self::sqlite() };
        let (server, name) = url.rsplit_once('/').unwrap();
        let name = format!("{name}_{}", MADE.fetch_add(1, Ordering::Relaxed));
        ask(url, &format!("CREATE DATABASE {name}"));
        Self::postgres(&format!("{server}/{name}"))
    }

    /// Takes the events away, and leaves what others have made of them.
    pub fn lose_events(&self) {
        if self.ask("DROP SCHEMA cn_relay CASCADE").is_some() {
            return;
        }
        for entry in fs::read_dir(self.path("data")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("events.db") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// A place of the other sort, which need not be there.
    pub fn other_back_end(&self) -> Self {
        match &self.database {
            Some(_) => Self::sqlite(),
            None => Self::postgres("postgres://postgres@127.0.0.1:1/none"),
        }
    }

    /// Until somebody has begun to restore a backup here, or has done so.
    pub fn wait_for_restore(&self) {
        wait_for("a restore", LIMIT, || match &self.database {
            Some(url) => {
                let working = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND query LIKE 'COPY%'";
                let made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'cn_relay'";
                [working, made].iter().any(|sql| ask(url, sql) > 0).then_some(())
            }
            None => {
                let files = ["events.db.partial", "events.db"];
                files.iter().any(|file| self.path("data").join(file).exists()).then_some(())
            }
        })
        .unwrap();
    }

    /// What an error about the place of the store advises.
    pub fn place_option(&self) -> &'static str {
        if self.database.is_some() { "check --database;" } else { "check --data;" }
    }

    /// What a statement answers with, where there is a server to ask.
    pub fn ask(&self, sql: &str) -> Option<i64> {
        self.database.as_deref().map(|url| ask(url, sql))
    }

    /// Whether the store lies on a disk that the program looks at without being told.
    pub fn has_own_disk(&self) -> bool {
        self.database.is_none()
    }

    /// Tells the program where the disk is, if it has to be told.
    pub fn show_disk<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self.has_own_disk() {
            true => command,
            false => command.env("KUKURI_CAPACITY_DATABASE_DIRECTORY", self.dir.path()),
        }
    }

    /// Where the test may write.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command on this store, at its time.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_now(args);
        command.arg("--now").arg(NOW.0.to_string());
        command
    }

    /// The command on this store, at the system's time.
    pub fn command_now(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kukuri-node"));
        command.args(args).arg("--data").arg(self.path("data"));
        // These tests are about what is said and stored; crash tests are about durability.
        command.env_remove("KUKURI_DATABASE").env("KUKURI_TEST_UNSAFE", "1");
        // Any free port: many nodes run at once.
        command.env("KUKURI_RELAY_LISTEN", "127.0.0.1:0").env("KUKURI_ADMIN_LISTEN", "127.0.0.1:0");
        if let Some(url) = &self.database {
            command.arg("--database").arg(url);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        ended(&mut self.command(args))
    }

    pub fn spawn(&self, args: &[&str]) -> Process {
        Process::spawn(self.command(args).stdin(Stdio::piped())).unwrap()
    }

    pub fn file(&self, name: &str, lines: &[String]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        path
    }

    /// Imports lines from a file.
    pub fn import(&self, lines: &[String]) -> Ended {
        let file = self.file("import.jsonl", lines);
        self.run(&["import", text(&file)])
    }

    pub fn topics(&self) -> Vec<Value> {
        self.run(&["topic", "list", "--json"]).ok().json()
    }

    /// The ids of all exported events, sorted.
    pub fn exported(&self, args: &[&str]) -> Vec<String> {
        let mut ids = self.exported_in_order(args);
        ids.sort_unstable();
        ids
    }

    pub fn exported_in_order(&self, args: &[&str]) -> Vec<String> {
        let ended = self.run(&[&["export"], args].concat()).ok();
        ended.stdout.lines().map(id).collect()
    }
}

/// Runs a statement and returns the number it answers with, if it answers.
fn ask(url: &str, sql: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        let rows = raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await.unwrap();
        rows.first().map_or(0, |row| row.get(0))
    })
}

pub fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A signed event of an author, some seconds old, on `kukuri:global`.
pub fn signed(author: u32, kind: u16, age: i64, tags: &[(&str, &str)]) -> String {
    let draft = Draft::new(kind, UnixSeconds(NOW.0 - age)).tag("t", TopicId::global());
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(author).sign(&draft)
}

pub fn note(age: i64) -> String {
    signed(1, 1, age, &[])
}

pub fn notes(count: i64) -> Vec<String> {
    (1..=count).map(note).collect()
}

pub fn id(line: &str) -> String {
    Event::parse(line).unwrap().id().to_hex()
}

pub fn ids(lines: &[String]) -> Vec<String> {
    let mut ids: Vec<String> = lines.iter().map(|line| id(line)).collect();
    ids.sort_unstable();
    ids
}
