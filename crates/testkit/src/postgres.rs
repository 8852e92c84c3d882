//! A private PostgreSQL cluster in a directory of its own.

mod account;
mod binaries;
mod server;
mod tags;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::condition::wait_for;
use crate::port::lasting_port;
use crate::scratch::Scratch;
use account::Account;
use server::Server;

/// Recovery after an immediate stop belongs to it.
const START_LIMIT: Duration = Duration::from_secs(120);
const START_ATTEMPTS: u32 = 10;

const LOG_LINES_IN_ERRORS: usize = 20;

/// Whether commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// PostgreSQL's own defaults: for crash tests and measurements.
    Durable,
    /// Nothing waits for the disk: for tests of logic. An immediate stop loses commits.
    Fast,
}

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    pub durability: Durability,
    pub shared_buffers_mb: u32,
    /// Further settings of `postgresql.conf`, name and value; they win over all others.
    pub options: Vec<(String, String)>,
    /// Where the cluster lives, such as a mount; in a temporary directory without it. A cluster
    /// that is there already is started as it is. The directory stays when the cluster goes.
    pub home: Option<PathBuf>,
}

impl Settings {
    #[must_use]
    pub fn new(durability: Durability) -> Settings {
        Settings { durability, shared_buffers_mb: 32, options: Vec::new(), home: None }
    }

    fn lines(&self, socket_dir: &Path) -> String {
        let mut lines = vec![
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("unix_socket_directories = '{}'", socket_dir.display()),
            format!("shared_buffers = '{}MB'", self.shared_buffers_mb),
            "max_connections = 60".to_owned(),
            "timezone = 'UTC'".to_owned(),
        ];
        if self.durability == Durability::Fast {
            for name in ["fsync", "synchronous_commit", "full_page_writes"] {
                lines.push(format!("{name} = off"));
            }
        }
        for (name, value) in &self.options {
            lines.push(format!("{name} = '{value}'"));
        }
        lines.join("\n") + "\n"
    }
}

/// A cluster with trust authentication on loopback. Dropping it stops it.
#[derive(Debug)]
pub struct Cluster {
    account: Account,
    binaries: PathBuf,
    port: u16,
    server: Option<Server>,
    home: PathBuf,
    /// The socket and the log, and the data unless the settings name a home. Dropped last.
    scratch: Scratch,
}

impl Cluster {
    /// # Errors
    /// When there is no PostgreSQL or it does not start; the message ends with the server's log.
    pub fn start(durability: Durability) -> Result<Cluster> {
        Cluster::start_with(&Settings::new(durability))
    }

    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(settings: &Settings) -> Result<Cluster> {
        let scratch = Scratch::new().context("cannot make a directory for a cluster")?;
        let account = Account::choose()?;
        let home = settings.home.clone().unwrap_or_else(|| scratch.path().to_owned());
        account.own(scratch.path())?;
        account.own(&home)?;
        let mut cluster = Cluster {
            account,
            binaries: binaries::directory()?,
            port: lasting_port()?,
            server: None,
            home,
            scratch,
        };
        cluster.init()?;
        fs::write(cluster.data_dir().join("test.conf"), settings.lines(cluster.scratch.path()))?;
        cluster.start_first()?;
        Ok(cluster)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.home.join("data")
    }

    /// What the server has said so far.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self) -> Result<String> {
        let text = fs::read(self.log_file()).context("cannot read the server's log")?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The address of `database` over TCP.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The address of `database` on the server's own machine, without a network.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        let directory = self.scratch.path().display();
        format!("postgres:///{database}?host={directory}&port={}&user=postgres", self.port)
    }

    /// Makes an empty database that nobody else uses and returns its address over TCP.
    ///
    /// # Panics
    /// When the server refuses: a test cannot go on without it.
    pub fn create_database(&self) -> String {
        self.url(&self.create_named())
    }

    /// Makes an empty database that nobody else uses and returns its name.
    ///
    /// # Panics
    /// As [`Cluster::create_database`].
    pub fn create_named(&self) -> String {
        let name = format!("test_{:016x}", rand::random::<u64>());
        if let Err(error) = self.sql("postgres", &format!("CREATE DATABASE {name}")) {
            panic!("cannot create a database: {error:#}");
        }
        name
    }

    /// Runs `sql` in `database` and returns the rows as `psql` prints them, columns parted by `|`.
    ///
    /// # Errors
    /// The server's message.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let output = self
            .command("psql")
            .arg("--host")
            .arg(self.scratch.path())
            .args(["--port", &self.port.to_string(), "--username", "postgres"])
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", sql])
            .output()?;
        text(output).with_context(|| format!("in {sql}"))
    }

    /// Stops the server as a crash would: no checkpoint, recovery at the next start. Does nothing
    /// when it is not running.
    ///
    /// # Errors
    /// When the server does not end.
    pub fn stop_immediate(&mut self) -> Result<()> {
        self.stop(Signal::QUIT)
    }

    /// Stops the server in order. Does nothing when it is not running.
    ///
    /// # Errors
    /// When the server does not end.
    pub fn stop_fast(&mut self) -> Result<()> {
        self.stop(Signal::INT)
    }

    /// Starts a stopped server again, on the same port and data.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.server.is_none(), "the cluster runs already");
        self.run()
    }

    /// The processor time that all processes of the running server have used since it started.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.server
            .as_ref()
            .map_or(Duration::ZERO, |server| crate::cpu::time_of_family(server.pid()))
    }

    fn init(&self) -> Result<()> {
        let data_dir = self.data_dir();
        if data_dir.join("PG_VERSION").exists() {
            return Ok(());
        }
        // Operators' clusters rarely sort by bytes. This one does not either, so that SQL which
        // forgets to ask for the collation it needs is noticed.
        let output = self
            .command("initdb")
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"])
            .args(["--locale=C", "--locale-provider=icu", "--icu-locale=und"])
            .arg("--pgdata")
            .arg(&data_dir)
            .output()?;
        text(output).context("initdb failed")?;
        let file = data_dir.join("postgresql.conf");
        fs::write(&file, fs::read_to_string(&file)? + "\ninclude 'test.conf'\n")?;
        Ok(())
    }

    /// Another process may take the port between the choice and the start, so another one is tried.
    fn start_first(&mut self) -> Result<()> {
        for _ in 1..START_ATTEMPTS {
            match self.run() {
                Err(error) if format!("{error:#}").contains("Address already in use") => {
                    self.port = lasting_port()?;
                }
                outcome => return outcome,
            }
        }
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data_dir()).args(["-p", &self.port.to_string()]);
        let log = self.log_file();
        let log_start = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let server = Server::spawn(command, &log)?;
        let data_dir = self.data_dir();
        let ready = wait_for("the start of PostgreSQL", START_LIMIT, || {
            server.ended().then_some(false).or_else(|| server.ready(&data_dir).then_some(true))
        });
        if matches!(ready, Ok(true)) {
            self.server = Some(server);
            return Ok(());
        }
        let _ = server.stop(Signal::QUIT);
        let tail = log_tail(&log, log_start);
        ready?;
        bail!("PostgreSQL ended while it started:\n{tail}");
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn stop(&mut self, signal: Signal) -> Result<()> {
        if let Some(server) = &self.server {
            server.stop(signal)?;
            self.server = None;
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(&self.binaries.join(program));
        // The caller's own settings, such as PGHOST or its language, must not reach the programs.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("LC_ALL", "C").current_dir(self.scratch.path());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Signal::QUIT) {
            eprintln!("{error}");
        }
    }
}

fn text(output: Output) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn log_tail(log: &Path, from_byte: u64) -> String {
    let text = fs::read(log).unwrap_or_default();
    let start = usize::try_from(from_byte).map_or(0, |start| start.min(text.len()));
    let text = String::from_utf8_lossy(&text[start..]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_IN_ERRORS)..].join("\n")
}
