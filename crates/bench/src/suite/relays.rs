//! Starting relays, each with its limits out of the way, on real files and a real server.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::process::Process;

use crate::target::Target;

const START_WAIT_MAX: Duration = Duration::from_secs(60);
const TOPICS: usize = 10;
const MANY: &str = "100000";

/// A relay that ends with this.
pub struct Running {
    pub target: Target,
    _process: Process,
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

/// This node, as a user would start it.
pub fn node(
    program: &Path,
    name: &str,
    directory: &Path,
    postgres: Option<&Postgres>,
) -> anyhow::Result<Running> {
    let command = || {
        let mut command = Command::new(program);
        command.arg("--data").arg(directory.join(name));
        if let Some(postgres) = postgres {
            command.arg("--database").arg(&postgres.url);
        }
        command
    };
    let topic = |nth: usize| {
        let added = command().args(["topic", "add", &format!("bench {nth}")]).output()?;
        let id = String::from_utf8(added.stdout)?.trim().to_owned();
        anyhow::ensure!(!id.is_empty(), "{}", String::from_utf8_lossy(&added.stderr));
        Ok(id)
    };
    let topics = (0..TOPICS).map(topic).collect::<anyhow::Result<Vec<String>>>()?;
    let mut run = command();
    run.args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    for limit in ["EVENTS_PER_IP", "EVENTS_PER_PUBKEY", "REQUESTS_PER_IP", "CONNECTS_PER_IP"] {
        run.env(format!("KUKURI_LIMITS_{limit}_PER_MINUTE"), "0");
    }
    for limit in ["CONNECTIONS_MAX", "CONNECTIONS_PER_IP_MAX", "HANDSHAKES_MAX"] {
        run.env(format!("KUKURI_LIMITS_{limit}"), MANY);
    }
    let process = Process::spawn(&mut run).context("the node does not start")?;
    let told = || process.stderr().contains("ready;").then(|| process.stderr());
    let banner = wait_for("the node", START_WAIT_MAX, told)?;
    let url = banner.split_whitespace().find(|word| word.starts_with("ws://"));
    let url = url.with_context(|| format!("no address in {banner}"))?.to_owned();
    let mut pids = vec![i32::try_from(process.id())?];
    if let Some(postgres) = postgres {
        pids.push(postgres.pid()?);
    }
    let target = Target { name: name.to_owned(), url, pids, topics };
    Ok(Running { target, _process: process })
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
    Ok(Running { target, _process: process })
}
