//! `topic remove`: a topic's events leave it chunk by chunk, and then the topic goes. Each chunk is
//! a command of its own, so that it can stop between any two and go on later.

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use kukuri_core::{Act, NodeTopic, Outcome, UnlinkReason};
use kukuri_lane::Lane;
use kukuri_store::Store;

use super::{Switch, find, label, set};
use crate::cli::Common;
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, open};
use crate::progress;
use crate::signal::Interrupts;

/// Events that leave in one command: few enough that other writers hardly notice.
const CHUNK_EVENTS_MAX: usize = 500;

pub async fn run(common: &Common, name_or_id: &str) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let opened = open(common).await?;
    let topics = find(&*opened.store, name_or_id, &common.network).await?;
    let lane = opened.lane();
    for (topic, usage) in &topics {
        let bar = progress::count(usage.events);
        bar.set_message("events removed");
        let removed = tokio::select! {
            removed = remove(&*opened.store, &lane, topic, &bar) => Some(removed),
            _ = interrupts.next() => None,
        };
        bar.finish_and_clear();
        let Some(removed) = removed else {
            // What was submitted is still finished; the rest is left for the next time.
            lane.drain(DRAIN_WAIT_MAX).await?;
            let done = bar.position();
            eprintln!(
                "interrupted: {} is disabled and {done} of its events are removed",
                label(topic)
            );
            eprintln!("run the same command again to remove the rest");
            return Ok(Exit::Interrupted);
        };
        removed.with_context(|| format!("cannot remove {}", label(topic)))?;
        eprintln!("removed {} with {} events", label(topic), bar.position());
    }
    lane.drain(DRAIN_WAIT_MAX).await?;
    Ok(Exit::Done)
}

async fn remove(
    store: &dyn Store,
    lane: &Lane,
    topic: &NodeTopic,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    // From here on nothing new is linked to it, whoever writes.
    set(lane, topic, Switch::Off).await?;
    let topic_id = &topic.topic_id;
    let mut last = Vec::new();
    loop {
        let events = store.linked(topic_id.clone(), CHUNK_EVENTS_MAX).await?;
        if events.is_empty() {
            break;
        }
        if events == last {
            bail!("its events do not leave: run doctor");
        }
        let act = Act::Unlink {
            topic: topic_id.clone(),
            events: events.clone(),
            reason: UnlinkReason::Topic,
        };
        let _outcome = lane.run(act).await?;
        bar.inc(events.len() as u64);
        last = events;
    }
    match lane.run(Act::RemoveTopic(topic_id.clone())).await? {
        Outcome::TopicInUse => bail!(
            "it was enabled again while it was being removed, or its counter is wrong: \
             run the command again, and doctor if that does not help"
        ),
        _ => Ok(()),
    }
}
