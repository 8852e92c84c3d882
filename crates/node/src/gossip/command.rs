//! `gossip`: how other nodes can reach this one, and how it is doing among them.

use anyhow::Context;
use kukuri_core::UnixMillis;
use kukuri_gossip::{GossipStatus, NodeKey, RelayUrl, peer};

use super::{directory, report};
use crate::cli::{Common, GossipCommand};
use crate::clock::clock;
use crate::config::{Config, GossipMode};
use crate::exit::Exit;
use crate::output::Output;

pub fn command(common: &Common, config: &Config, command: GossipCommand) -> anyhow::Result<Exit> {
    match command {
        GossipCommand::Info => info(common, config),
        GossipCommand::Status { json } => status(common, json),
    }
}

fn info(common: &Common, config: &Config) -> anyhow::Result<Exit> {
    let directory = directory(&common.data);
    let key = NodeKey::in_directory(&directory).context("this node has no key to gossip with")?;
    let running = report::read(&directory).and_then(|told| told.status);
    let hints = match running.filter(|status| status.id == key.id().to_string()) {
        Some(status) => status.peers,
        None => from_settings(&key, config),
    };
    let mut out = Output::stdout();
    hints.iter().try_for_each(|hint| out.line(hint))?;
    out.flush()?;
    let section = &config.gossip;
    match section.listen {
        _ if section.mode == GossipMode::Off => eprintln!("gossip is off (gossip.mode)"),
        Some(at) if at.ip().is_unspecified() => {
            eprintln!(
                "others reach it by the addresses of this machine: {}@HOST:{}",
                key.id(),
                at.port()
            );
        }
        None => eprintln!("nobody can connect to this node until gossip.listen is set"),
        Some(_) => {}
    }
    Ok(Exit::Done)
}

fn from_settings(key: &NodeKey, config: &Config) -> Vec<String> {
    let relays = config.gossip.relays.iter().map(|url| url.parse());
    let relays: Vec<RelayUrl> = relays.collect::<Result<_, _>>().expect("settings are checked");
    let listen = config.gossip.listen.filter(|at| at.port() > 0);
    peer::hints(key.id(), listen, &relays).iter().map(ToString::to_string).collect()
}

fn status(common: &Common, json: bool) -> anyhow::Result<Exit> {
    let told = report::read(&directory(&common.data));
    let mut out = Output::stdout();
    match told {
        Some(told) if json => out.json(&told)?,
        None if json => out.json(&serde_json::json!({ "state": "not_running" }))?,
        Some(told) => {
            out.line(&format!("gossip    {}", told.state))?;
            let now = clock(None)();
            let lines = told.status.iter().flat_map(|status| lines(status, now));
            lines.collect::<Vec<_>>().iter().try_for_each(|line| out.line(line))?;
        }
        None => out.line("gossip    no node that gossips runs here")?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn lines(status: &GossipStatus, now: UnixMillis) -> Vec<String> {
    let stats = &status.stats;
    let mut lines = vec![
        format!("id        {}", status.id),
        format!("peers     {} connected, {} muted", status.connected.len(), status.muted.len()),
        format!(
            "in        {} messages: {} accepted, {} known, {} refused, {} over a rate",
            stats.received, stats.accepted, stats.duplicates, stats.refused, stats.over_rate
        ),
        format!("out       {} broadcast, {} unheard", stats.broadcasts, stats.unheard),
        format!(
            "topics    {} of {} joined",
            status.joined(),
            status.topics.len() + status.left_out
        ),
        format!(
            "{:<9} {:>10} {:>10} {:>10}  topic",
            "state", "neighbours", "received", "broadcast"
        ),
    ];
    for topic in &status.topics {
        let seconds = topic.since.until(now).as_secs();
        lines.push(format!(
            "{:<9} {:>10} {:>10} {:>10}  {} for {seconds} s",
            topic.state,
            topic.neighbours.len(),
            topic.received,
            topic.broadcasts,
            topic.topic_id
        ));
    }
    lines
}
