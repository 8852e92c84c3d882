//! Starting relays, each with its limits out of the way, on real files and a real server.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::process::Process;

use crate::target::Target;

const START_WAIT_MAX: Duration = Duration::from_secs(60);
const STOP_WAIT_MAX: Duration = Duration::from_secs(60);
const TOPICS: usize = 10;
const MANY: &str = "100000";

/// A relay that ends with this.
pub struct Running {
    pub target: Target,
    /// Where a node tells of itself.
    admin: Option<String>,
    process: Process,
}

impl Running {
    /// What a node says of itself now, by the name of the metric.
    pub fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let admin = self.admin.as_ref().context("this relay tells nothing of itself")?;
        let mut socket = std::net::TcpStream::connect(admin)?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let mut lines = answer.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.find_map(|rest| rest.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {name} in {answer}"))?.parse()?)
    }

    /// What it has written to its log so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Ends as a service manager ends it.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.process.terminate()?;
        self.process.wait(STOP_WAIT_MAX)?;
        Ok(())
    }
}

/// A server with the memory that people give one, and a database in it.
pub struct Postgres {
    cluster: Cluster,
    url: String,
}

impl Postgres {
    pub fn start() -> anyhow::Result<Self> {
        let mut settings = Settings::new(Durability::Durable);
        settings.shared_buffers_mb = 512;
        let cluster = Cluster::start_with(&settings)?;
        let url = cluster.socket_url(&cluster.create_named());
        Ok(Self { cluster, url })
    }

    fn pid(&self) -> anyhow::Result<i32> {
        let file = fs::read_to_string(self.cluster.data_dir().join("postmaster.pid"))?;
        file.lines().next().and_then(|line| line.parse().ok()).context("the server has no pid")
    }
}

/// Where this node keeps what it has, and its program.
pub struct Home<'a> {
    pub name: &'a str,
    pub program: &'a Path,
    pub directory: &'a Path,
    pub postgres: Option<&'a Postgres>,
}

impl Home<'_> {
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--data").arg(self.directory.join(self.name));
        if let Some(postgres) = self.postgres {
            command.arg("--database").arg(&postgres.url);
        }
        command
    }

    /// Adds a topic by its name or its id, and returns its id.
    pub fn carry(&self, topic: &str) -> anyhow::Result<String> {
        let added = self.command().args(["topic", "add", topic]).output()?;
        let id = String::from_utf8(added.stdout)?.trim().to_owned();
        anyhow::ensure!(!id.is_empty(), "{}", String::from_utf8_lossy(&added.stderr));
        Ok(id)
    }

    /// Lets go of everything that is here by now.
    pub fn purge(&self) -> anyhow::Result<()> {
        let purged = self.command().args(["purge", "--before", "0h"]).output()?;
        anyhow::ensure!(purged.status.success(), "{}", String::from_utf8_lossy(&purged.stderr));
        Ok(())
    }

    /// The node, as a user would start it, with settings from the environment.
    pub fn start(&self, topics: Vec<String>, settings: &[(&str, &str)]) -> anyhow::Result<Running> {
        let mut run = self.command();
        run.args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        for limit in ["EVENTS_PER_IP", "EVENTS_PER_PUBKEY", "REQUESTS_PER_IP", "CONNECTS_PER_IP"] {
            run.env(format!("KUKURI_LIMITS_{limit}_PER_MINUTE"), "0");
        }
        for limit in ["CONNECTIONS_MAX", "CONNECTIONS_PER_IP_MAX", "HANDSHAKES_MAX"] {
            run.env(format!("KUKURI_LIMITS_{limit}"), MANY);
        }
        // The index of words has a bench of its own.
        run.env("KUKURI_SEARCH_MODE", "off");
        run.envs(settings.iter().copied());
        let process = Process::spawn(&mut run).context("the node does not start")?;
        let told = || process.stderr().contains("ready;").then(|| process.stderr());
        let banner = wait_for("the node", START_WAIT_MAX, told)?;
        let address = |before: &str, after: &str| {
            let words = banner.split_whitespace();
            let mut found = words.filter_map(|word| word.strip_prefix(before)?.strip_suffix(after));
            found.next().map(str::to_owned).with_context(|| format!("no {before} in {banner}"))
        };
        let url = format!("ws://{}", address("ws://", "")?);
        let admin = Some(address("http://", "/healthz,")?);
        let mut pids = vec![i32::try_from(process.id())?];
        if let Some(postgres) = self.postgres {
            pids.push(postgres.pid()?);
        }
        let target = Target { name: self.name.to_owned(), url, pids, topics };
        Ok(Running { target, admin, process })
    }
}

/// This node with a few topics.
pub fn node(
    program: &Path,
    name: &str,
    directory: &Path,
    postgres: Option<&Postgres>,
) -> anyhow::Result<Running> {
    let home = Home { name, program, directory, postgres };
    let topics = (0..TOPICS).map(|nth| home.carry(&format!("bench {nth}")));
    let topics = topics.collect::<anyhow::Result<Vec<String>>>()?;
    home.start(topics, &[])
}

/// nostr-rs-relay on SQLite, its only embedded store, with the settings it comes with but for limits.
pub async fn nostr_rs_relay(program: &Path, directory: &Path) -> anyhow::Result<Running> {
    let home = directory.join("nostr-rs-relay");
    fs::create_dir_all(&home)?;
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let config = home.join("config.toml");
    fs::write(
        &config,
        format!(
            "[info]\nrelay_url = \"ws://127.0.0.1:{port}/\"\n[network]\naddress = \"127.0.0.1\"\nport = {port}\n"
        ),
    )?;
    let mut command = Command::new(program);
    command.arg("--db").arg(&home).arg("--config").arg(&config).env("RUST_LOG", "error");
    let process = Process::spawn(command.stdin(Stdio::null())).context("it does not start")?;
    let connected = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
    wait_for("nostr-rs-relay", START_WAIT_MAX, connected)?;
    let topics = (0..TOPICS).map(|nth| format!("kukuri:{nth:064x}")).collect();
    let target = Target {
        name: "nostr-rs-relay".to_owned(),
        url: format!("ws://127.0.0.1:{port}/"),
        pids: vec![i32::try_from(process.id())?],
        topics,
    };
    Ok(Running { target, admin: None, process })
}
