mod consumer;
mod policy;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kukuri_core::{Mapping, NetworkId, TopicError};
use kukuri_event::Filter;
use kukuri_relay::{Network, NetworkError};
use kukuri_store::Store;
use kukuri_store_postgres::Wakeup;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::config::{Config, Layers, WakeupChoice};
use crate::exit;
pub use consumer::{ConsumerCommand, ParkedCommand, RebuildArgs};
pub use policy::{Before, PolicyArgs, PurgeArgs, Wish};

/// A community node: takes in Nostr events of the topics it carries, keeps them under stated rules,
/// and tells every change in order on a feed.
#[derive(Debug, Parser)]
#[command(name = "kukuri-node", version, after_help = exit::HELP)]
pub struct Cli {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Puts a store around the store that was opened.
pub type Wrap = fn(Arc<dyn Store>) -> Arc<dyn Store>;

/// What every command takes. What is not given here is looked for in the environment, then in the
/// configuration, and has a default.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// The configuration; `config --example` prints one.
    #[arg(long, global = true, value_name = "FILE", env = "KUKURI_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where everything is kept; made if it is not there [default: ./data].
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A PostgreSQL database to keep events in, in place of the data directory.
    #[arg(long, global = true, value_name = "URL")]
    pub database: Option<String>,
    /// A clock that stands still, for tests.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..=MAX_SECONDS))]
    pub now: Option<i64>,
    /// The network whose topics are meant: it is hashed with every topic name [default: kukuri:main:].
    #[arg(long, global = true, value_name = "ID", value_parser = network)]
    pub network: Option<String>,
    /// What stands between the commands and the store. No flag sets it: programs that are wrong on
    /// purpose do, to show that tests notice.
    #[arg(skip)]
    pub wrap: Option<Wrap>,
}

/// The year 9999: later times are typing errors, such as milliseconds.
const MAX_SECONDS: i64 = 253_402_300_799;

fn network(text: &str) -> Result<String, TopicError> {
    NetworkId::parse(text).map(|_| text.to_owned())
}

/// The store a command works on.
#[derive(Debug)]
pub struct Common {
    pub data: PathBuf,
    pub database: Option<String>,
    /// A directory on the disk of the database's server.
    pub database_directory: Option<PathBuf>,
    pub wakeup: Wakeup,
    pub now: Option<i64>,
    pub network: NetworkId,
    pub wrap: Option<Wrap>,
}

impl Common {
    pub fn new(config: &Config, args: &CommonArgs) -> Self {
        Self {
            data: config.data.clone(),
            database: config.database.clone(),
            database_directory: config.capacity.database_directory.clone(),
            wakeup: match config.wakeup {
                WakeupChoice::Notify => Wakeup::Notify,
                WakeupChoice::Poll => Wakeup::PollOnly,
            },
            now: args.now,
            network: NetworkId::parse(&config.network).expect("settings are checked"),
            wrap: args.wrap,
        }
    }

    /// The option that names a place of the same sort, for advice.
    pub fn place_option(&self, place: &str) -> String {
        let option = if self.database.is_some() { "--database" } else { "--data" };
        format!("{option} {place}")
    }
}

impl Cli {
    /// Where settings come from.
    pub fn layers(&self) -> Layers {
        let CommonArgs { data, database, network, .. } = &self.common;
        let text = |text: &String| Value::from(text.as_str());
        let data = data.as_ref().map(|data| Value::from(data.to_string_lossy().into_owned()));
        let common = [
            ("data", data),
            ("database", database.as_ref().map(text)),
            ("network", network.as_ref().map(text)),
        ];
        let run = match &self.command {
            Some(Command::Run(run)) => run.settings(),
            _ => Vec::new(),
        };
        let flags = common.into_iter().chain(run);
        Layers {
            flags: flags.filter_map(|(key, value)| Some((key, value?))).collect(),
            // What is no text is no setting of ours.
            environment: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            file: self.common.config.clone(),
        }
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
    /// Fetch what another node has of a topic and this one has missed. The node may go on running.
    #[command(after_help = exit::HELP)]
    Sync(SyncArgs),
    /// Print stored events, one JSON object per line.
    Export(ExportArgs),
    /// Print the feed: every change of every event in every topic, one JSON object per line.
    Feed(FeedArgs),
    /// Check what is stored and say what to do about it.
    #[command(after_help = exit::HELP)]
    Doctor(DoctorArgs),
    /// Copy the store, as it is at one moment, into a directory. The node may go on running.
    #[command(after_help = exit::HELP)]
    Backup {
        /// Made if it is not there; must be empty.
        dir: PathBuf,
    },
    /// Make a store from a backup, where --data or --database points and none is yet.
    #[command(after_help = exit::HELP)]
    Restore {
        /// What `backup` has filled.
        dir: PathBuf,
    },
    /// Let go of old events now, by the policies in force or by a time. Can be interrupted and run again.
    #[command(after_help = exit::HELP)]
    Purge(PurgeArgs),
    /// Consumers of the feed, such as search: how they are doing, and what can be done about it.
    #[command(subcommand)]
    Consumer(ConsumerCommand),
    /// Other nodes: how they can reach this one, and how it is doing among them.
    #[command(subcommand)]
    Gossip(GossipCommand),
    /// What the node holds, topic by topic, what it allows, and where the feed begins and ends.
    Status {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print the settings that are in force, as a configuration, without secrets.
    Config {
        /// Print a configuration with all settings, what they mean and their defaults.
        #[arg(long)]
        example: bool,
    },
}

/// How the node meets the world. The configuration has more settings.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// Where clients connect [default: 127.0.0.1:7777]. Put a proxy that speaks TLS in front of it to
    /// be reached from outside.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where /healthz, /readyz and /metrics are [default: 127.0.0.1:7778].
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// The address by which clients know the relay, such as wss://relay.example; may be repeated.
    /// Proofs of keys (NIP-42) are bound to it. Without it: ws:// and the address it listens on.
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = relay_url)]
    pub url: Vec<String>,
    /// The name people see.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// What becomes of events and questions without a topic: refused (the default), or taken for
    /// kukuri:global, so that any Nostr client can use the node.
    #[arg(long, value_enum)]
    pub topicless: Option<TopiclessChoice>,
    /// Whether clients have to prove who they are (NIP-42) [default: off].
    #[arg(long, value_enum)]
    pub auth: Option<AuthChoice>,
    /// Proxies whose X-Forwarded-For is believed, as addresses or ranges; may be repeated.
    #[arg(long, value_name = "NET", value_delimiter = ',', value_parser = proxy)]
    pub trusted_proxy: Vec<String>,
}

impl RunArgs {
    fn settings(&self) -> Vec<(&'static str, Option<Value>)> {
        let list = |list: &Vec<String>| (!list.is_empty()).then(|| Value::from(list.clone()));
        vec![
            ("relay.listen", self.listen.map(|at| Value::from(at.to_string()))),
            ("admin.listen", self.admin.map(|at| Value::from(at.to_string()))),
            ("relay.urls", list(&self.url)),
            ("relay.name", self.name.clone().map(Value::from)),
            ("relay.topicless", self.topicless.map(word_of)),
            ("auth.mode", self.auth.map(word_of)),
            ("relay.trusted_proxies", list(&self.trusted_proxy)),
        ]
    }
}

/// A choice as the configuration spells it.
fn word_of(choice: impl Serialize) -> Value {
    Value::try_from(choice).expect("a choice is a word")
}

fn proxy(text: &str) -> Result<String, NetworkError> {
    text.parse::<Network>().map(|_| text.to_owned())
}

/// Anything else could never match what a client says.
pub(crate) fn relay_url(text: &str) -> Result<String, &'static str> {
    let host = text.strip_prefix("wss://").or_else(|| text.strip_prefix("ws://"));
    host.filter(|host| !host.is_empty() && !host.starts_with('/'))
        .map(|_| text.to_owned())
        .ok_or("expected ws://HOST or wss://HOST")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TopiclessChoice {
    Reject,
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthChoice {
    Off,
    Required,
}

#[derive(Debug, Subcommand)]
pub enum GossipCommand {
    /// Print how other nodes can name this one in their gossip.peers, one form per line.
    Info,
    /// Print how the node that runs here is doing, topic by topic.
    Status {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
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
    /// Show or change how long and how much a topic keeps.
    Policy(PolicyArgs),
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

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The relay of the other node, which must reconcile (NIP-77), such as ws://127.0.0.1:7777.
    #[arg(long, value_name = "URL", value_parser = relay_url)]
    pub from: String,
    /// The topic, which this node must carry.
    #[arg(long, value_name = "NAME|ID")]
    pub topic: String,
    /// How many days back, at most what the topic keeps.
    #[arg(long, value_name = "DAYS", default_value_t = u32::MAX)]
    pub days: u32,
    /// Events that are fetched in a second; 0 is any number.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0)]
    pub rate: u32,
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
    /// How many events to verify the signatures of, and to look for by all that they are found by.
    #[arg(long, value_name = "EVENTS", default_value_t = 1000)]
    pub sample: u64,
    /// All events.
    #[arg(long, conflicts_with = "sample")]
    pub all: bool,
    /// Findings and summary on stdout, one JSON object per line.
    #[arg(long)]
    pub json: bool,
}
