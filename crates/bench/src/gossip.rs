//! What it takes for an event to get from one node to another by gossip, and what taking it in that way
//! costs beside taking it in from a client. Both nodes are processes, as users have them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::figure::figure;

use crate::load::Load;
use crate::relays::{Home, Postgres, Running};
use crate::report::Report;
use crate::scenario::{Crowd, fanout, ingest};

#[derive(Args, Debug)]
pub struct GossipArgs {
    /// The node's program.
    #[arg(long, value_name = "FILE", default_value = "target/release/kukuri-node")]
    node: PathBuf,
    /// Only the store whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Events that are taken in.
    #[arg(long, default_value_t = 10_000)]
    events: usize,
}

const TOPIC: &str = "bench gossip";
/// One that is carried while both nodes run.
const LATE_TOPIC: &str = "bench late";
/// A swarm holds some thousand messages for who is slow, and then drops them: so many at a time.
const ROUND_EVENTS: usize = 1000;
const ROUND_WAIT_MAX: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 64;
/// At low load.
const LIVE: Crowd = Crowd { subscribers: 1, stalled: 0, events: 200, per_second: 20 };

/// Limits: see "Speed" of the issue of gossip and backfill.
const LIVE_MILLIS_MAX: f64 = 25.0;
const COST_MAX: f64 = 2.0;
const JOINED_SECONDS_MAX: f64 = 2.0;

pub async fn run(args: GossipArgs) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in("target")?;
    for name in ["sqlite", "postgres"] {
        if name.contains(&args.only) {
            measure(name, directory.path(), &args).await?;
        }
    }
    Ok(())
}

async fn measure(name: &str, directory: &Path, args: &GossipArgs) -> anyhow::Result<()> {
    let postgres = || (name == "postgres").then(Postgres::start).transpose();
    let (of_one, of_two, of_three) = (postgres()?, postgres()?, postgres()?);
    let directory = tempfile::tempdir_in(directory)?;
    let home =
        |name, postgres| Home { name, program: &args.node, directory: directory.path(), postgres };
    let alone = home("alone", of_three.as_ref());
    let topic = alone.carry(TOPIC)?;
    let alone = alone.start(vec![topic.clone()], &[])?;
    let one = home("one", of_one.as_ref());
    one.carry(TOPIC)?;
    let first = gossiping(&one, &topic, "")?;
    let two = home("two", of_two.as_ref());
    two.carry(TOPIC)?;
    let second = gossiping(&two, &topic, &hint(&one)?)?;
    for node in [&first, &second] {
        // Its own topic, and the one that every node has.
        let joined =
            || node.metric("kukuri_gossip_topics_joined").ok().filter(|topics| *topics == 2);
        wait_for("the swarms", ROUND_WAIT_MAX, joined)?;
    }
    let live = fanout(&first.target, &second.target.url, LIVE, 1).await?;
    live.print()?;
    // In turns: a machine that is slow for a moment is slow for both.
    let (mut by_clients, mut by_gossip) = (0.0, 0.0);
    let turns = args.events.div_ceil(ROUND_EVENTS).max(1);
    for turn in 0..turns {
        let nth = turn * ROUND_EVENTS;
        let events = ROUND_EVENTS.min(args.events - nth);
        by_clients += taken_in(&alone, &alone, events, nth).await? / args.events as f64;
        by_gossip += taken_in(&first, &second, events, 1_000_000 + nth).await? / args.events as f64;
    }
    alone.stop()?;
    // What a node says of its gossip is a second old.
    let all = (args.events + LIVE.events) as u64;
    let accepted = || second.metric("kukuri_gossip_accepted_total").ok().filter(|n| *n >= all);
    let accepted = wait_for("the last event", ROUND_WAIT_MAX, accepted)?;
    let joined = joins(&one, &two, &first, &second).await?;
    first.stop()?;
    second.stop()?;
    Report::new("gossip", name)
        .with("events", args.events)
        .with("accepted", accepted)
        .rounded("cpu_us_per_event_by_clients", by_clients)
        .rounded("cpu_us_per_event_by_gossip", by_gossip)
        .print()?;
    let millis = live.number("live_p50_us") / 1000.0;
    figure(name, "published on one node, live on another, p50 ms", millis, Some(LIVE_MILLIS_MAX));
    figure(name, "CPU per event by gossip over by clients", by_gossip / by_clients, Some(COST_MAX));
    figure(name, "a topic is carried and received, s", joined, Some(JOINED_SECONDS_MAX));
    Ok(())
}

/// How many seconds it takes from telling a running node to carry a topic until it receives something of it.
async fn joins(
    one: &Home<'_>,
    two: &Home<'_>,
    first: &Running,
    second: &Running,
) -> anyhow::Result<f64> {
    let topic = one.carry(LATE_TOPIC)?;
    let known = || first.metric("kukuri_gossip_topics").ok().filter(|topics| *topics == 3);
    wait_for("the first node is in its swarm", ROUND_WAIT_MAX, known)?;
    let head = second.metric("kukuri_feed_head")?;
    let start = Instant::now();
    two.carry(LATE_TOPIC)?;
    for line in Load::of(&[topic], 500, 2_000_000).lines {
        ingest(&first.target, vec![line], 1, 1).await?;
        let received = || second.metric("kukuri_feed_head").ok().filter(|now| *now > head);
        if wait_for("an event", Duration::from_millis(50), received).is_ok() {
            return Ok(start.elapsed().as_secs_f64());
        }
    }
    anyhow::bail!("nothing of the topic was received")
}

/// Publishes at one node what another takes in, which may be the same; says how many microseconds of CPU
/// that takes the other.
async fn taken_in(
    from: &Running,
    at: &Running,
    events: usize,
    first: usize,
) -> anyhow::Result<f64> {
    let topics = &from.target.topics;
    let lines = Load::of(topics, events, first).lines;
    at.target.quiet().await;
    let (before, head) = (at.target.cpu(), at.metric("kukuri_feed_head")?);
    ingest(&from.target, lines, CONNECTIONS, IN_FLIGHT).await?;
    let wanted = head + events as u64;
    let all = || at.metric("kukuri_feed_head").ok().filter(|head| *head >= wanted);
    let head = wait_for("the events of a round", ROUND_WAIT_MAX, all)?;
    ensure!(head == wanted, "{head} rows, {wanted} were expected");
    Ok(at.target.cpu().saturating_sub(before).as_secs_f64() * 1e6)
}

fn gossiping(home: &Home<'_>, topic: &str, peer: &str) -> anyhow::Result<Running> {
    let settings = [
        ("KUKURI_GOSSIP_LISTEN", "127.0.0.1:0"),
        ("KUKURI_GOSSIP_PEERS", peer),
        ("KUKURI_GOSSIP_NEIGHBOUR_PER_MINUTE", "0"),
        ("KUKURI_GOSSIP_ALL_PER_MINUTE", "0"),
    ];
    home.start(vec![topic.to_owned()], &settings)
}

fn hint(home: &Home<'_>) -> anyhow::Result<String> {
    let info = String::from_utf8(home.command().args(["gossip", "info"]).output()?.stdout)?;
    info.lines().next().map(str::to_owned).context("the node does not say how it can be named")
}
