use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kukuri_core::{Mapping, NetworkId};
use kukuri_event::Filter;
use kukuri_relay::Network;
use kukuri_store::Store;

use crate::exit;

/// A community node: takes in Nostr events of the topics it carries, keeps them under stated rules,
/// and tells every change in order on a feed.
#[derive(Debug, Parser)]
#[command(name = "kukuri-node", version, after_help = exit::HELP)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Puts a store around the store that was opened.
pub type Wrap = fn(Arc<dyn Store>) -> Arc<dyn Store>;

#[derive(Debug, Args)]
pub struct Common {
    /// Where everything is kept; made if it is not there.
    #[arg(long, global = true, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
    /// A PostgreSQL database to keep events in, in place of the data directory.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "KUKURI_DATABASE",
        hide_env_values = true
    )]
    pub database: Option<String>,
    /// A clock that stands still, for tests.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..=MAX_SECONDS))]
    pub now: Option<i64>,
    /// The network whose topics are meant: it is hashed with every topic name.
    #[arg(
        long,
        global = true,
        value_name = "ID",
        default_value = "kukuri:main:",
        value_parser = NetworkId::parse
    )]
    pub network: NetworkId,
    /// What stands between the commands and the store. No flag sets it: programs that are wrong on
    /// purpose do, to show that tests notice.
    #[arg(skip)]
    pub wrap: Option<Wrap>,
}

/// The year 9999: later times are typing errors, such as milliseconds.
const MAX_SECONDS: i64 = 253_402_300_799;

impl Common {
    /// What clap does not check, because its message would repeat a URL that may hold a password.
    pub fn check(&self) -> Result<(), &'static str> {
        let known =
            |url: &String| url.starts_with("postgres://") || url.starts_with("postgresql://");
        if self.database.as_ref().is_none_or(known) {
            return Ok(());
        }
        Err(
            "--database (or KUKURI_DATABASE) is no PostgreSQL URL: expected postgres://user@host/database",
        )
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the node (the default).
    Run(RunArgs),
    /// Topics: the ids of names, and which ones this node carries.
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Take in events from a file, one JSON object per line, as strfry exports them.
    #[command(after_help = exit::HELP)]
    Import(ImportArgs),
    /// Print stored events, one JSON object per line.
    Export(ExportArgs),
    /// Print the feed: every change of every event in every topic, one JSON object per line.
    Feed(FeedArgs),
    /// Check what is stored and say what to do about it.
    #[command(after_help = exit::HELP)]
    Doctor(DoctorArgs),
}

/// How the node meets the world.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where clients connect. Put a proxy that speaks TLS in front of it to be reached from outside.
    #[arg(long, value_name = "ADDR", env = "KUKURI_LISTEN", default_value = "127.0.0.1:7777")]
    pub listen: SocketAddr,
    /// The address by which clients know the relay, such as wss://relay.example; may be repeated.
    /// Proofs of keys (NIP-42) are bound to it. Without it: ws:// and the address it listens on.
    #[arg(long, value_name = "URL", env = "KUKURI_URL", value_delimiter = ',', value_parser = relay_url)]
    pub url: Vec<String>,
    /// The name people see.
    #[arg(long, value_name = "TEXT", env = "KUKURI_NAME", default_value = "kukuri community node")]
    pub name: String,
    /// What becomes of events and questions without a topic: refused, or taken for kukuri:global, so
    /// that any Nostr client can use the node.
    #[arg(long, value_enum, env = "KUKURI_TOPICLESS", default_value_t = TopiclessChoice::Reject)]
    pub topicless: TopiclessChoice,
    /// Whether clients have to prove who they are (NIP-42).
    #[arg(long, value_enum, env = "KUKURI_AUTH", default_value_t = AuthChoice::Off)]
    pub auth: AuthChoice,
    /// Proxies whose X-Forwarded-For is believed, as addresses or ranges; may be repeated.
    #[arg(long, value_name = "NET", env = "KUKURI_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxy: Vec<Network>,
}

/// Anything else could never match what a client says.
fn relay_url(text: &str) -> Result<String, &'static str> {
    let host = text.strip_prefix("wss://").or_else(|| text.strip_prefix("ws://"));
    host.filter(|host| !host.is_empty() && !host.starts_with('/'))
        .map(|_| text.to_owned())
        .ok_or("expected ws://HOST or wss://HOST")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopiclessChoice {
    Reject,
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthChoice {
    Off,
    Required,
}

impl Default for Command {
    /// What runs when no command is named: the node, as the environment says.
    fn default() -> Self {
        match Cli::try_parse_from(["kukuri-node", "run"]) {
            Ok(Cli { command: Some(command), .. }) => command,
            Ok(_) => unreachable!("a command was named"),
            Err(error) => error.exit(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Print the id of a name, without carrying it.
    Id {
        name: String,
        #[arg(long, value_enum, default_value_t = MappingChoice::V1)]
        mapping: MappingChoice,
    },
    /// Carry a topic from now on; prints its id.
    Add {
        name: String,
        #[arg(long, value_enum, default_value_t = MappingChoice::V1)]
        mapping: MappingChoice,
    },
    /// List the topics this node carries or has carried.
    List {
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Stop taking in and serving a topic; its events stay.
    Disable { name_or_id: String },
    /// Carry a disabled topic again.
    Enable { name_or_id: String },
    /// Disable a topic and forget its events. Can be interrupted and run again.
    Remove { name_or_id: String },
}

/// How a name becomes an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MappingChoice {
    /// Trimmed and lowercased.
    V1,
    /// As v1, and full-width and half-width forms are one.
    V2,
    /// Both ids, for a migration.
    Both,
}

impl MappingChoice {
    pub fn mappings(self) -> &'static [Mapping] {
        match self {
            Self::V1 => &[Mapping::V1],
            Self::V2 => &[Mapping::V2],
            Self::Both => &[Mapping::V1, Mapping::V2],
        }
    }
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file, or - for stdin.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Take in events that are older than the memory of ids, too.
    #[arg(long)]
    pub any_age: bool,
    /// Write one JSON object per input line, once what it says is durable; - for stdout.
    #[arg(long, value_name = "FILE|-")]
    pub report: Option<PathBuf>,
    /// How long to wait when storage is full or away, before giving up.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub patience: Duration,
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A NIP-01 filter. With a limit, the newest events come first; otherwise the oldest.
    #[arg(long, value_name = "JSON", value_parser = Filter::parse)]
    pub filter: Option<Filter>,
    /// Only events that were taken in after this feed row.
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
}

#[derive(Debug, Args)]
pub struct FeedArgs {
    /// Begin after this row; without it, with the oldest row that is kept.
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
    /// Go on with new rows as they come.
    #[arg(long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How many signatures to verify.
    #[arg(long, value_name = "EVENTS", default_value_t = 1000)]
    pub sample: u64,
    /// Verify every signature.
    #[arg(long, conflicts_with = "sample")]
    pub all: bool,
    /// Findings and summary on stdout, one JSON object per line.
    #[arg(long)]
    pub json: bool,
}
