//! Load for relays over WebSocket: what publishing, asking and listening cost. Knows the protocol and
//! nothing of what is behind it, so that any relay can be measured; `suite` starts the relays itself.
//!
//! Every scenario prints one JSON object per line: latencies in microseconds, and the CPU of the relay
//! per operation where its process is known.

mod ears;
mod gossip;
mod load;
mod meter;
mod purge;
mod relays;
mod report;
mod scenario;
mod search;
mod socket;
mod suite;
mod sync;
mod target;

use clap::{Args, Parser, Subcommand};

use load::Load;
use target::Target;

/// Measures relays.
#[derive(Debug, Parser)]
#[command(name = "kukuri-bench", version)]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Publishes on several connections, each with so many events in flight.
    Ingest {
        #[command(flatten)]
        relay: RelayArgs,
        #[arg(long, default_value_t = 4)]
        connections: usize,
        #[arg(long, default_value_t = 64)]
        in_flight: usize,
        #[arg(long, default_value_t = 10_000)]
        events: usize,
    },
    /// Asks for the newest 100 events of a topic, again and again.
    Query {
        #[command(flatten)]
        relay: RelayArgs,
        #[arg(long, default_value_t = 4)]
        connections: usize,
        #[arg(long, default_value_t = 1_000)]
        requests: usize,
    },
    /// Publishes at a rate to so many subscribers; rate 0 is as fast as it goes.
    Fanout {
        #[command(flatten)]
        relay: RelayArgs,
        #[arg(long, default_value_t = 500)]
        subscribers: usize,
        #[arg(long, default_value_t = 200)]
        events: usize,
        #[arg(long, default_value_t = 20)]
        per_second: u32,
        /// Of the subscribers, how many do not read.
        #[arg(long, default_value_t = 0)]
        stalled: usize,
        /// Where subscribers connect, if it is another process.
        #[arg(long)]
        listen_at: Option<String>,
    },
    /// What publishing costs while so many subscriptions wait for other topics.
    Idle {
        #[command(flatten)]
        relay: RelayArgs,
        #[arg(long, default_value_t = 20_000)]
        subscriptions: usize,
        #[arg(long, default_value_t = 5_000)]
        events: usize,
    },
    /// What an idle connection and an idle subscription hold in memory.
    Memory {
        #[command(flatten)]
        relay: RelayArgs,
        #[arg(long, default_value_t = 1_000)]
        connections: usize,
    },
    /// Everything, on this node with both stores and on nostr-rs-relay if it is installed.
    Suite(suite::SuiteArgs),
    /// How much of its rate publishing keeps while this node lets go of aged events, with both stores.
    Purge(purge::PurgeArgs),
    /// How fast a node gets from another one what it has missed, and how many bytes it takes, with both stores.
    Sync(sync::SyncArgs),
    /// How soon an event gets from one node to another by gossip, and what it costs there, with both stores.
    Gossip(gossip::GossipArgs),
    /// How soon this node finds what was published, and what a stopped index costs, with both stores.
    Search(search::SearchArgs),
}

/// The relay under load.
#[derive(Args, Clone, Debug)]
struct RelayArgs {
    /// Its address.
    #[arg(long, value_name = "URL")]
    relay: String,
    /// Its processes, whose CPU and memory are measured.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<i32>,
    /// Topics it takes, the first of which gets the load.
    #[arg(long, value_name = "ID", value_delimiter = ',', default_value = "kukuri:global")]
    topics: Vec<String>,
}

impl RelayArgs {
    fn target(&self) -> Target {
        let (url, topics) = (self.relay.clone(), self.topics.clone());
        Target { name: url.clone(), url, pids: self.pid.clone(), topics }
    }
}

/// One thread makes the load: it shares the machine with what is measured, and threads that wake each
/// other would take from that.
#[tokio::main(worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let report = match Cli::parse().scenario {
        Scenario::Ingest { relay, connections, in_flight, events } => {
            let target = relay.target();
            let load = Load::of(&target.topics, events, 0);
            scenario::ingest(&target, load.lines, connections, in_flight).await?
        }
        Scenario::Query { relay, connections, requests } => {
            scenario::query(&relay.target(), connections, requests).await?
        }
        Scenario::Fanout { relay, subscribers, events, per_second, stalled, listen_at } => {
            let target = relay.target();
            let crowd = scenario::Crowd { subscribers, stalled, events, per_second };
            scenario::fanout(&target, &listen_at.unwrap_or(relay.relay), crowd, 1).await?
        }
        Scenario::Idle { relay, subscriptions, events } => {
            scenario::idle(&relay.target(), subscriptions, events).await?
        }
        Scenario::Memory { relay, connections } => {
            scenario::memory(&relay.target(), connections).await?
        }
        Scenario::Suite(args) => return suite::run(args).await,
        Scenario::Purge(args) => return purge::run(args).await,
        Scenario::Search(args) => return search::run(args).await,
        Scenario::Gossip(args) => return gossip::run(args).await,
        Scenario::Sync(args) => return sync::run(args).await,
    };
    report.print()
}
