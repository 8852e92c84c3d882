//! `sync`: one reconciliation with another node, by hand.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kukuri_client::sync::{FETCH_IDS_MAX, IDS_MAX, PeerConfig};
use kukuri_core::NodeTopic;

use crate::backfill::{Allowed, Bounds, Ended, Pulled, Puller, Watch};
use crate::cli::{Common, SyncArgs};
use crate::config::Config;
use crate::exit::Exit;
use crate::import::pipeline;
use crate::import::reader::CHUNK_LINES_MAX;
use crate::open::{DRAIN_WAIT_MAX, open_existing};
use crate::progress;
use crate::signal::Interrupts;
use crate::topic::{find, label};

pub async fn run(common: &Common, config: &Config, args: SyncArgs) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let opened = open_existing(common).await?;
    let topics = topics_of(find(&*opened.store, &args.topic, &common.network).await?)?;
    let chunks_in_lane_max = opened.lead_commands as usize / CHUNK_LINES_MAX;
    let lane = Arc::new(opened.lane_with(pipeline::lane_config(chunks_in_lane_max)));
    let lookout = opened.lookout(&lane, config.upkeep().disk_reserve_bytes);
    opened.look_at_disk(&lookout).await?;
    let puller = Puller {
        store: Arc::clone(&opened.store),
        lane: Arc::clone(&lane),
        clock: Arc::clone(&opened.clock),
        limits: config.limits.events.clone(),
        topicless: config.relay.topicless.into(),
        own: Bounds { rows_max: config.limits.scan_rows_max, ids_max: IDS_MAX },
        chunks_in_lane_max,
        question_ids_max: FETCH_IDS_MAX,
        waits: PeerConfig::STANDARD,
        // Whoever looks on may interrupt it.
        allowed: Allowed {
            window_days: args.days,
            per_second: args.rate,
            events_max: u64::MAX,
            time_max: Duration::MAX,
        },
        memory: Arc::default(),
    };
    let watch = Watch { bar: progress::count(0), stop: Default::default() };
    let work = sync_all(&puller, &topics, &args.from, &watch);
    tokio::pin!(work);
    let mut told = false;
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            () = lookout.run() => unreachable!("it never ends by itself"),
            _ = interrupts.next() => {
                if std::mem::replace(&mut told, true) {
                    pipeline::leave_at_once();
                }
                watch.bar.suspend(|| eprintln!("interrupted: finishing what was begun; again to leave at once"));
                watch.stop.cancel();
            }
        }
    };
    watch.bar.finish_and_clear();
    lane.drain(DRAIN_WAIT_MAX).await.context("the last sightings may be lost")?;
    ended
}

fn topics_of<U>(topics: Vec<(NodeTopic, U)>) -> anyhow::Result<Vec<NodeTopic>> {
    let topics: Vec<NodeTopic> = topics.into_iter().map(|(topic, _)| topic).collect();
    if let Some(topic) = topics.iter().find(|topic| !topic.enabled) {
        let id = &topic.topic_id;
        bail!("{} is not carried: kukuri-node topic enable {id} carries it again", label(topic));
    }
    Ok(topics)
}

async fn sync_all(
    puller: &Puller,
    topics: &[NodeTopic],
    from: &str,
    watch: &Watch,
) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    for topic in topics {
        let mut pulled = Pulled::default();
        let done = puller.pull(topic, from, watch, &mut pulled).await;
        watch.bar.suspend(|| eprint!("{}", to_text(topic, &pulled)));
        done.with_context(|| {
            format!(
                "the sync of {} with {from} ended early; what has come is in: run it again",
                label(topic)
            )
        })?;
        match pulled.ended {
            Ended::Done | Ended::OverBudget if pulled.refused() > 0 => exit = Exit::Findings,
            Ended::Done | Ended::OverBudget => {}
            Ended::Interrupted => {
                eprintln!("interrupted: run it again to go on");
                return Ok(Exit::Interrupted);
            }
            Ended::NotAllowed => bail!(
                "{} takes no backfill: kukuri-node topic policy {} --backfill on",
                label(topic),
                topic.topic_id
            ),
            Ended::Stopped => bail!(
                "the node is under pressure and takes no backfill now: kukuri-node status says why; \
                 what has come is in"
            ),
        }
    }
    Ok(exit)
}

/// The counts for people, one per line.
fn to_text(topic: &NodeTopic, pulled: &Pulled) -> String {
    let seconds = pulled.elapsed.as_secs_f64().max(0.001);
    let rate = pulled.came() as f64 / seconds;
    let mut text = format!("{}: {} events in {seconds:.1} s", label(topic), pulled.came());
    text.push_str(&format!(" ({rate:.0} per second)\n"));
    let mut row = |name: &str, count: u64| text.push_str(&format!("  {name:<20} {count:>10}\n"));
    row("compared", pulled.compared);
    row("only here", pulled.only_here);
    row("missing here", pulled.named);
    row("known before", pulled.known);
    row("at hand", pulled.at_hand);
    row("fetched", pulled.fetched);
    row("accepted", pulled.accepted);
    row("duplicate", pulled.duplicates);
    row("refused", pulled.refused());
    pulled.refused.iter().for_each(|(reason, count)| row(&format!("  {reason}"), *count));
    row("bytes comparing", pulled.comparing_bytes);
    row("bytes sent", pulled.traffic.sent_bytes);
    row("bytes received", pulled.traffic.received_bytes);
    text
}
