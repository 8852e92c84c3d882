//! `topic policy`: how long and how much a topic keeps. What is not named stays as it is.

use anyhow::Context;
use kukuri_core::{Act, IngestPolicy};

use super::{find, label};
use crate::cli::{Common, PolicyArgs};
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, open};
use crate::output::Output;

pub async fn run(common: &Common, args: PolicyArgs) -> anyhow::Result<Exit> {
    let opened = open(common).await?;
    let topics = find(&*opened.store, &args.name_or_id, &common.network).await?;
    let lane = opened.lane();
    let mut out = Output::stdout();
    for (topic, _) in topics {
        let policy = changed(topic.ingest_policy.clone(), &args);
        if policy != topic.ingest_policy {
            let act = Act::SetTopic {
                topic_id: topic.topic_id.clone(),
                name: topic.name.clone(),
                enabled: topic.enabled,
                pinned: topic.pinned,
                wanted: topic.wanted,
                ingest_policy: policy.clone(),
            };
            let set = lane.run(act).await;
            let _outcome = set.with_context(|| format!("cannot change {}", label(&topic)))?;
            eprintln!("changed the policy of {}", label(&topic));
        }
        out.json(&policy)?;
    }
    lane.drain(DRAIN_WAIT_MAX).await?;
    out.flush()?;
    Ok(Exit::Done)
}

fn changed(policy: IngestPolicy, args: &PolicyArgs) -> IngestPolicy {
    IngestPolicy {
        retention_days: args.retention_days.map_or(policy.retention_days, |wish| wish.0),
        max_events: args.max_events.map_or(policy.max_events, |wish| wish.0),
        max_bytes: args.max_bytes.map_or(policy.max_bytes, |wish| wish.0),
        max_lag_seconds: args.max_lag_seconds.map_or(policy.max_lag_seconds, |wish| wish.0),
        backfill: args.backfill.map_or(policy.backfill, Into::into),
        priority: args.priority.map_or(policy.priority, Into::into),
        on_full: args.on_full.map_or(policy.on_full, Into::into),
    }
}
