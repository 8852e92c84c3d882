//! `topic`: the ids of names, and which topics this node carries.

mod policy;
mod remove;

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use kukuri_core::{Act, IngestPolicy, NetworkId, NodeTopic, TopicId, Usage};
use kukuri_lane::Lane;
use kukuri_store::Store;
use serde::Serialize;

use crate::cli::{Common, MappingChoice, TopicCommand};
use crate::config::Config;
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, open};
use crate::output::Output;

pub async fn run(common: &Common, config: &Config, command: TopicCommand) -> anyhow::Result<Exit> {
    let (network, topics_max) = (&common.network, config.limits.node_topics_max);
    match command {
        TopicCommand::Id { name, mapping } => print_ids(&ids(&name, mapping, network)?),
        TopicCommand::Add { name, mapping } => add(common, &name, mapping, topics_max).await,
        TopicCommand::List { json } => list(common, json).await,
        TopicCommand::Disable { name_or_id } => {
            switch(common, &name_or_id, Switch::Off, topics_max).await
        }
        TopicCommand::Enable { name_or_id } => {
            switch(common, &name_or_id, Switch::On, topics_max).await
        }
        TopicCommand::Policy(args) => policy::run(common, args).await,
        TopicCommand::Remove { name_or_id } => remove::run(common, &name_or_id).await,
    }
}

/// The ids of a name, each once.
fn ids(name: &str, mapping: MappingChoice, network: &NetworkId) -> anyhow::Result<Vec<TopicId>> {
    let mut ids = Vec::new();
    for mapping in mapping.mappings() {
        let id = TopicId::from_name(name, network, *mapping)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn print_ids(ids: &[TopicId]) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    for id in ids {
        out.line(id.as_str())?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

async fn add(
    common: &Common,
    name: &str,
    mapping: MappingChoice,
    topics_max: usize,
) -> anyhow::Result<Exit> {
    let ids = ids(name, mapping, &common.network)?;
    let opened = open(common).await?;
    check_room(&*opened.store, ids.iter(), topics_max).await?;
    let lane = opened.lane();
    for id in &ids {
        let known = find_id(&*opened.store, id).await?;
        let mut topic = known.unwrap_or_else(|| unnamed(id));
        // An id says nothing about the name, so it does not take away one that is known.
        if !name.trim().starts_with("kukuri:") {
            topic.name = name.trim().to_owned();
        }
        set(&lane, &topic, Switch::On).await?;
        eprintln!("carrying {}", label(&topic));
    }
    lane.drain(DRAIN_WAIT_MAX).await?;
    print_ids(&ids)
}

fn unnamed(id: &TopicId) -> NodeTopic {
    NodeTopic {
        topic_id: id.clone(),
        name: String::new(),
        enabled: true,
        pinned: true,
        wanted: 0,
        ingest_policy: IngestPolicy::default(),
        created_at: Default::default(),
        updated_at: Default::default(),
    }
}

/// What the operator wants of a topic. Carried means pinned: it stays without subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

async fn switch(
    common: &Common,
    name_or_id: &str,
    to: Switch,
    topics_max: usize,
) -> anyhow::Result<Exit> {
    let opened = open(common).await?;
    let topics = find(&*opened.store, name_or_id, &common.network).await?;
    if to == Switch::On {
        let ids = topics.iter().map(|(topic, _)| &topic.topic_id);
        check_room(&*opened.store, ids, topics_max).await?;
    }
    let lane = opened.lane();
    for (topic, _) in &topics {
        set(&lane, topic, to).await?;
        let verb = if to == Switch::On { "carrying" } else { "no longer carrying" };
        eprintln!("{verb} {}", label(topic));
    }
    lane.drain(DRAIN_WAIT_MAX).await?;
    Ok(Exit::Done)
}

/// Whether so many topics can be carried: all that are now, and these.
async fn check_room<'a>(
    store: &dyn Store,
    more: impl Iterator<Item = &'a TopicId>,
    topics_max: usize,
) -> anyhow::Result<()> {
    let topics = store.topics().await.context("cannot read the topics")?;
    let carried = topics.into_iter().map(|(topic, _)| topic).filter(|topic| topic.enabled);
    let mut carried: BTreeSet<TopicId> = carried.map(|topic| topic.topic_id).collect();
    let before = carried.len();
    carried.extend(more.cloned());
    if carried.len() > before && carried.len() > topics_max {
        bail!(
            "this node carries {before} topics, and may carry {topics_max} (limits.node_topics_max): \
             disable one, or raise the limit"
        );
    }
    Ok(())
}

async fn set(lane: &Lane, topic: &NodeTopic, to: Switch) -> anyhow::Result<()> {
    let act = Act::SetTopic {
        topic_id: topic.topic_id.clone(),
        name: topic.name.clone(),
        enabled: to == Switch::On,
        pinned: to == Switch::On,
        wanted: topic.wanted,
        ingest_policy: topic.ingest_policy.clone(),
    };
    let set = lane.run(act).await;
    let _outcome = set.with_context(|| format!("cannot change {}", label(topic)))?;
    Ok(())
}

async fn find_id(store: &dyn Store, id: &TopicId) -> anyhow::Result<Option<NodeTopic>> {
    let topics = store.topics().await.context("cannot read the topics")?;
    Ok(topics.into_iter().map(|(topic, _)| topic).find(|topic| topic.topic_id == *id))
}

/// The topics of the node that a text means: the one with this id, or all whose name it is or whose
/// id it maps to.
pub(crate) async fn find(
    store: &dyn Store,
    name_or_id: &str,
    network: &NetworkId,
) -> anyhow::Result<Vec<(NodeTopic, Usage)>> {
    let ids = ids(name_or_id, MappingChoice::Both, network)?;
    let name = name_or_id.trim().to_lowercase();
    let mut topics = store.topics().await.context("cannot read the topics")?;
    topics.retain(|(topic, _)| ids.contains(&topic.topic_id) || topic.name.to_lowercase() == name);
    if topics.is_empty() {
        bail!("no topic {name_or_id:?} here: kukuri-node topic list shows all of them");
    }
    Ok(topics)
}

pub(crate) fn label(topic: &NodeTopic) -> String {
    if topic.name.is_empty() {
        return topic.topic_id.to_string();
    }
    format!("{} ({:?})", topic.topic_id, topic.name)
}

/// One topic as `topic list --json` prints it.
#[derive(Serialize)]
pub(crate) struct Listed<'a> {
    topic_id: &'a str,
    name: &'a str,
    enabled: bool,
    pinned: bool,
    wanted: u32,
    ingest_policy: &'a IngestPolicy,
    events: u64,
    bytes: u64,
    created_at: i64,
    updated_at: i64,
}

async fn list(common: &Common, json: bool) -> anyhow::Result<Exit> {
    let opened = open(common).await?;
    let topics = opened.store.topics().await.context("cannot read the topics")?;
    let mut out = Output::stdout();
    if !json {
        out.line(&format!("{:<9} {:>10} {:>14}  topic", "state", "events", "bytes"))?;
    }
    for (topic, usage) in &topics {
        if json {
            out.json(&listed(topic, *usage))?;
            continue;
        }
        let state = if topic.enabled { "carried" } else { "disabled" };
        let (events, bytes) = (usage.events, usage.bytes);
        out.line(&format!("{state:<9} {events:>10} {bytes:>14}  {}", label(topic)))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

pub(crate) fn listed(topic: &NodeTopic, usage: Usage) -> Listed<'_> {
    Listed {
        topic_id: topic.topic_id.as_str(),
        name: &topic.name,
        enabled: topic.enabled,
        pinned: topic.pinned,
        wanted: topic.wanted,
        ingest_policy: &topic.ingest_policy,
        events: usage.events,
        bytes: usage.bytes,
        created_at: topic.created_at.0,
        updated_at: topic.updated_at.0,
    }
}
