//! `purge`: lets go of old events now, instead of waiting for the running node's upkeep. Each chunk is a
//! command of its own, so that it can stop between any two and go on later.

mod foretell;
mod outlook;

use anyhow::{Context, bail};
use indicatif::{HumanCount, HumanDuration, ProgressBar};
use kukuri_core::{Belief, Look, NodeTopic, Removed, Stats, TopicId, UnixMillis, Usage, plan};
use kukuri_lane::Lane;
use kukuri_store::{Store, StoreError, Tidied, node_state};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::cli::{Common, PurgeArgs};
use crate::config::{ClockTrust, Config};
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, Opened, open_existing};
use crate::progress;
use crate::signal::Interrupts;
use crate::topic::{find, label};
use crate::upkeep::{
    Aging, Beat, Pace, Sweep, TIDY_INTERVAL, UpkeepSettings, belief_at_start, cutoffs_before,
};
use foretell::{Foresight, Foretold};

pub async fn run(common: &Common, config: &Config, args: PurgeArgs) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let opened = open_existing(common).await?;
    let now = (opened.clock)();
    let before = args.before.map(|before| before.at(now));
    if let Some(doubt) = doubt(&*opened.store, config, now).await? {
        if !args.dry_run {
            bail!("{doubt}: nothing was purged");
        }
        eprintln!("{doubt}: without --dry-run it would be refused");
    }
    let topics = match &args.topic {
        Some(topic) => find(&*opened.store, topic, &common.network).await?,
        None => opened.store.topics().await.context("cannot read the topics")?,
    };
    let looks = match before {
        Some(before) => of_time(&topics, before),
        None => planned(&*opened.store, config.upkeep(), &topics, now).await?,
    };
    if args.dry_run {
        return foretell(&*opened.store, &topics, &looks, &mut interrupts).await;
    }
    let lane = opened.lane();
    let lookout = opened.lookout(&lane, config.upkeep().disk_reserve_bytes);
    lookout.look().await.context("cannot look after the disk")?;
    let bar = progress::spinner();
    let mut total = Removed::default();
    let plan = Plan { topics, looks, before, now };
    let swept = tokio::select! {
        swept = sweep(&opened, &lane, plan, &bar, &mut total) => Some(swept),
        _ = interrupts.next() => None,
    };
    bar.finish_and_clear();
    if matches!(swept, Some(Ok(()))) {
        // What was purged may have made room.
        lookout.look().await.context("cannot look after the disk")?;
    }
    lane.drain(DRAIN_WAIT_MAX).await?;
    let Some(swept) = swept else {
        // What was on its way when the signal came has left as well, and nobody has counted it.
        let so_far = summed(total);
        eprintln!("interrupted after at least {so_far}; run the same command again to go on");
        return Ok(Exit::Interrupted);
    };
    swept.context("cannot go on purging")?;
    eprintln!("purged {}", summed(total));
    Ok(Exit::Done)
}

/// Why nothing may leave by this clock, unless the operator says that it is right: what has left does not come
/// back.
async fn doubt(
    store: &dyn Store,
    config: &Config,
    now: UnixMillis,
) -> anyhow::Result<Option<String>> {
    if config.retention.clock == ClockTrust::Believe {
        return Ok(None);
    }
    let belief = belief_at_start(store, now).await.context("cannot read the feed")?;
    let Belief::Ahead { by } = belief else { return Ok(None) };
    Ok(Some(format!(
        "the clock seems to be ahead: by it the feed ended {} ago; set it right, or, if it is right, say so \
         with KUKURI_RETENTION_CLOCK=believe",
        HumanDuration(by)
    )))
}

/// Events that left the node, and links to topics where they are more.
fn summed(removed: Removed) -> String {
    let gone = told(removed.gone);
    match removed.events == removed.gone.events {
        true => gone,
        false => format!("{gone} and {} links to topics", removed.events),
    }
}

fn told(usage: Usage) -> String {
    format!("{} events ({} bytes)", usage.events, HumanCount(usage.bytes))
}

/// What was taken in before a time, in each of the topics.
fn of_time(topics: &[(NodeTopic, Usage)], before: UnixMillis) -> Vec<Look> {
    let look = |(topic, _): &(NodeTopic, Usage)| Look::Aged {
        topic: topic.topic_id.clone(),
        cutoffs: cutoffs_before(before),
    };
    topics.iter().map(look).collect()
}

/// What the policies in force let go of. Memories and the feed are left to the running node, which knows
/// for how long it admits what it might have forgotten.
async fn planned(
    store: &dyn Store,
    settings: UpkeepSettings,
    topics: &[(NodeTopic, Usage)],
    now: UnixMillis,
) -> anyhow::Result<Vec<Look>> {
    let node = node_state(store).await.context("cannot read what the node holds")?;
    if node.allowance.retention != settings.retention {
        bail!(
            "the settings here keep events for other times ({:?}) than the node that ran last ({:?}): \
             give purge the same --config, or run the node with these settings first",
            settings.retention,
            node.allowance.retention
        );
    }
    let looks = plan(Stats { topics, node: &node }, settings.keeping, now).into_iter();
    Ok(looks.filter(|look| topic_of(look).is_some()).collect())
}

fn topic_of(look: &Look) -> Option<&TopicId> {
    match look {
        Look::Aged { topic, .. } | Look::OldestOfTopic(topic) => Some(topic),
        _ => None,
    }
}

/// What is to leave.
struct Plan {
    topics: Vec<(NodeTopic, Usage)>,
    looks: Vec<Look>,
    /// What was taken in before this leaves whatever its topics keep.
    before: Option<UnixMillis>,
    now: UnixMillis,
}

/// What leaves gives its space back meanwhile, and at the end.
async fn sweep(
    opened: &Opened,
    lane: &Lane,
    plan: Plan,
    bar: &ProgressBar,
    total: &mut Removed,
) -> anyhow::Result<()> {
    let (store, over) = (&*opened.store, Notify::new());
    if !bar.is_hidden() {
        bar.set_message("looking for what leaves");
        match outlook::links(store, &plan.topics, &plan.looks).await {
            Ok(Some(links)) => progress::turns_out(bar, links),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "nobody knows how much there is to purge"),
        }
    }
    let leaving = async {
        let left = let_go(store, lane, plan, bar, total).await;
        over.notify_one();
        left
    };
    // Neither waits for the other: who is about to leave may be what the other waits for.
    let (left, ()) = tokio::join!(leaving, give_back_until(store, &over));
    left?;
    progress::turns_vague(bar);
    bar.set_message(format!("{} gone; giving space back", summed(*total)));
    if let Some(why) = give_back(store).await? {
        eprintln!("some space is given back later, by the running node: {why}");
    }
    Ok(())
}

/// What cannot be given back now is tried again, and at the end it is told.
async fn give_back_until(store: &dyn Store, over: &Notify) {
    while timeout(TIDY_INTERVAL, over.notified()).await.is_err() {
        match give_back(store).await {
            Ok(None) => {}
            Ok(Some(why)) => tracing::debug!(why, "space is given back later"),
            Err(error) => tracing::debug!(%error, "space is given back later"),
        }
    }
}

async fn let_go(
    store: &dyn Store,
    lane: &Lane,
    plan: Plan,
    bar: &ProgressBar,
    total: &mut Removed,
) -> anyhow::Result<()> {
    let mut beat = Beat::new(Pace::BESIDE_INGEST);
    let mut sweep = Sweep { store, lane, fence: None, beat: &mut beat, until: None };
    let mut tell = |removed: Removed| {
        total.add(removed);
        bar.inc(removed.events);
        bar.set_message(format!("{} gone", summed(*total)));
    };
    let mut aging = match plan.before {
        Some(before) => Aging::before(plan.looks.iter().filter_map(topic_of).cloned(), before),
        None => Aging::planned(&plan.looks),
    };
    sweep.age(&mut aging, &mut tell).await?;
    aging.into_result()?;
    for look in plan.looks.iter().filter(|look| !matches!(look, Look::Aged { .. })) {
        sweep.run(look, plan.now, &mut tell).await?;
    }
    Ok(())
}

/// All the space that there is to give back, or what is in the way of the rest.
async fn give_back(store: &dyn Store) -> anyhow::Result<Option<String>> {
    loop {
        match store.tidy().await? {
            Tidied::More => {}
            Tidied::Done => return Ok(None),
            Tidied::Blocked(why) => return Ok(Some(why)),
        }
    }
}

/// Says what would leave, and changes nothing. What was interrupted has nothing to finish.
async fn foretell(
    store: &dyn Store,
    topics: &[(NodeTopic, Usage)],
    looks: &[Look],
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let bar = progress::spinner();
    let mut total = Removed::default();
    let foretold = tokio::select! {
        foretold = foretell_each(store, topics, looks, &bar, &mut total) => Some(foretold),
        _ = interrupts.next() => None,
    };
    bar.finish_and_clear();
    let Some(foretold) = foretold else {
        let so_far = summed(total);
        eprintln!("interrupted after {so_far}; nothing was changed: run the same command again");
        return Ok(Exit::Interrupted);
    };
    let at_least = foretold.context("cannot look for what would leave")?;
    eprintln!("would purge {at_least}{}; nothing was changed", summed(total));
    Ok(Exit::Done)
}

/// Says of each look what would leave by it, and of all of them whether that is all.
async fn foretell_each(
    store: &dyn Store,
    topics: &[(NodeTopic, Usage)],
    looks: &[Look],
    bar: &ProgressBar,
    total: &mut Removed,
) -> Result<&'static str, StoreError> {
    let mut foresight = Foresight::new(store, topics);
    let mut at_least = "";
    let mut tell = |removed: Removed| {
        total.add(removed);
        bar.set_message(format!("{} would leave", summed(*total)));
    };
    for look in looks {
        let Some(foretold) = foresight.take(look, &mut tell).await? else { continue };
        if foretold.at_least {
            at_least = AT_LEAST;
        }
        if foretold.removed.events > 0 {
            bar.suspend(|| eprintln!("{}", line(topics, look, &foretold)));
        }
    }
    Ok(at_least)
}

const AT_LEAST: &str = "at least ";

/// What would leave a topic by a look.
fn line(topics: &[(NodeTopic, Usage)], look: &Look, foretold: &Foretold) -> String {
    let Removed { events, bytes, .. } = foretold.removed;
    let row = topics.iter().find(|(row, _)| row.topic_id == foretold.topic);
    let name = row.map_or_else(|| foretold.topic.to_string(), |(row, _)| label(row));
    let at_least = if foretold.at_least { AT_LEAST } else { "" };
    let why = match look {
        Look::OldestOfTopic(_) => ", which holds more than it may",
        _ => "",
    };
    format!("{at_least}{} would leave {name}{why}", told(Usage { events, bytes }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use kukuri_store::Model;
    use kukuri_store::conformance::double::Double;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Has something to give back each time, and cannot do so at first.
    #[derive(Default)]
    struct Giving {
        model: Model,
        turns: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl Double for Giving {
        fn behind(&self) -> &dyn Store {
            &self.model
        }

        async fn tidy(&self) -> Result<Tidied, StoreError> {
            match self.turns.fetch_add(1, Ordering::Relaxed) {
                0 => Err(StoreError::Unavailable("no connection is free".into())),
                1 => Ok(Tidied::Blocked("somebody reads".into())),
                turn if turn % 2 == 0 => Ok(Tidied::More),
                _ => Ok(Tidied::Done),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn space_is_given_back_while_events_leave_whatever_is_in_the_way() {
        let (store, over, start) = (Giving::default(), Notify::new(), Instant::now());
        let leaving = async {
            while store.turns.load(Ordering::Relaxed) < 6 {
                sleep(Duration::from_secs(1)).await;
            }
            over.notify_one();
        };
        tokio::join!(leaving, give_back_until(&store, &over));
        assert_eq!(store.turns.load(Ordering::Relaxed), 6, "twice in vain, and twice in two steps");
        assert!(start.elapsed() >= 4 * TIDY_INTERVAL);
    }
}
