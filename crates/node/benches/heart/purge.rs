//! What letting go of aged events costs: how much of its rate ingest keeps beside it, how fast events
//! leave, and how long it takes until their space is given back.

mod partition;
mod space;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kukuri_core::{Command, Keeping, Stats, UnixMillis, plan};
use kukuri_event::UnixSeconds;
use kukuri_lane::{Lane, LaneConfig};
use kukuri_node::upkeep::{Aging, Beat, Pace, Sweep, SweepError, TIDY_INTERVAL};
use kukuri_store::{Clock, Store, Tidied, node_state};
use kukuri_testkit::generate::bulk::Bulk;
use tokio::time::interval;

use crate::NOW;
use crate::backend::{Backend, Kind};
use crate::commit::send;
use crate::load::{PIECE_EVENTS, admit, admit_at};
pub use partition::measure as measure_partitions;
use space::GivenBack;

/// When what is purged was taken in: it has aged.
const AGED: UnixSeconds = UnixSeconds(NOW.0 - 40 * 86_400);

const SENDERS: usize = 64;
const BATCH_EVENTS: usize = 1024;
/// Rates are read from counters about so often: a moment that ends with neither side's end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A node that runs lets go of so many times fewer events per second.
const TIMES_FASTER: u32 = 3;

/// Events that are put in beside a purge: enough to see its rate.
const FRESH_EVENTS_MAX: usize = 100_000;

/// Limits: see "Must show" of the issue of retention. To drop ten times as many takes at most so many times as long.
const ANNOUNCE_RATE_MIN: f64 = 10_000.0;
const DROP_RATIO_MAX: f64 = 3.0;

/// What is said beside a figure that has a limit.
fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

/// Purges `purged` events, and on PostgreSQL a tenth as many in a store of their own, for comparison.
pub async fn measure(kind: Kind, bulk: &Bulk, purged: usize) -> anyhow::Result<()> {
    let (backend, lane) = filled(kind, bulk, purged).await?;
    let events = purged.min(FRESH_EVENTS_MAX);
    eprintln!("signing {events} events …");
    let fresh = admit(&Bulk { events, ..bulk.clone() }.lines());
    beside_ingest(&*backend.store, &lane, &fresh).await?;
    let large = announce(&backend, &lane).await?;
    drop((lane, backend));
    if kind == Kind::Postgres {
        let (backend, lane) = filled(kind, bulk, purged / 10).await?;
        let small = announce(&backend, &lane).await?;
        space::tell_drops(&small, &large);
    }
    Ok(())
}

/// A store with so many events that have aged, and its lane.
async fn filled(kind: Kind, bulk: &Bulk, aged: usize) -> anyhow::Result<(Backend, Arc<Lane>)> {
    self::aged(Backend::open(kind, bulk).await?, bulk, aged).await
}

async fn aged(backend: Backend, bulk: &Bulk, aged: usize) -> anyhow::Result<(Backend, Arc<Lane>)> {
    fill(&backend, &Bulk { until: AGED, events: aged, ..bulk.clone() }).await?;
    let backend = backend.reopened().await?;
    let clock: Clock = Arc::new(|| NOW.into());
    let lane = Arc::new(Lane::start(Arc::clone(&backend.store), clock, LaneConfig::STANDARD));
    Ok((backend, lane))
}

async fn fill(backend: &Backend, bulk: &Bulk) -> anyhow::Result<()> {
    eprintln!("signing {} events …", bulk.events);
    for lines in bulk.lines().chunks(PIECE_EVENTS) {
        for batch in admit_at(lines, bulk.until.into()).chunks(BATCH_EVENTS) {
            backend.store.apply(batch.into()).await?;
        }
    }
    Ok(())
}

/// What a purge takes from the lane itself, for comparison: here nobody verifies signatures, which is what
/// publishing is bound by, so that the lane has no time to spare. `kukuri-bench purge` measures what is kept
/// of publishing. Ingest alone before and after, because the machine has better and worse minutes.
async fn beside_ingest(
    store: &dyn Store,
    lane: &Arc<Lane>,
    fresh: &[Command],
) -> anyhow::Result<()> {
    let (before, rest) = fresh.split_at(fresh.len() / 4);
    let (between, after) = rest.split_at(fresh.len() / 2);
    let (first, _) = rates(lane, before, std::future::pending(), &AtomicU64::new(0)).await?;
    // A node that runs does this all the time, and so has done it when something ages.
    while store.tidy().await? == Tidied::More {}
    let left = AtomicU64::new(0);
    let purge = purge(store, lane, Pace::BESIDE_INGEST, &left);
    let (beside, purging) = rates(lane, between, purge, &left).await?;
    let (last, _) = rates(lane, after, std::future::pending(), &AtomicU64::new(0)).await?;
    let kept = 100.0 * beside / ((first + last) / 2.0);
    println!(
        "purge beside ingest: {SENDERS} senders put in {beside:.0} events/s, {first:.0} before and {last:.0} after it: {kept:.0} % kept; {purging:.0} events/s leave (the bare lane, for comparison)"
    );
    Ok(())
}

/// How many commands are answered and how many events leave per second while both sides are at work.
async fn rates(
    lane: &Arc<Lane>,
    commands: &[Command],
    purge: impl Future<Output = Result<(), SweepError>>,
    left: &AtomicU64,
) -> anyhow::Result<(f64, f64)> {
    let answered = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut senders = send(lane, commands, SENDERS, Arc::clone(&answered));
    let mut looks = interval(LOOK_INTERVAL);
    let mut purge = std::pin::pin!(purge);
    loop {
        tokio::select! {
            ended = &mut purge => break ended?,
            // The first sender that has nothing left ends it: the others are fewer than before.
            _ = senders.join_next() => break,
            _ = looks.tick() => {}
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let counts = (answered.load(Ordering::Relaxed), left.load(Ordering::Relaxed));
    while let Some(sender) = senders.join_next().await {
        sender?;
    }
    Ok((counts.0 as f64 / seconds, counts.1 as f64 / seconds))
}

/// Lets go of all that has aged, as upkeep does.
async fn purge(
    store: &dyn Store,
    lane: &Lane,
    pace: Pace,
    left: &AtomicU64,
) -> Result<(), SweepError> {
    let now = UnixMillis::from(NOW);
    let (topics, node) = (store.topics().await?, node_state(store).await?);
    let looks = plan(Stats { topics: &topics, node: &node }, Keeping::STANDARD, now);
    let mut beat = Beat::new(pace);
    let mut sweep = Sweep { store, lane, fence: None, beat: &mut beat, until: None };
    let mut told = |chunk: kukuri_core::Removed| {
        left.fetch_add(chunk.events, Ordering::Relaxed);
    };
    let mut aging = Aging::planned(&looks);
    sweep.age(&mut aging, &mut told).await?;
    Ok(aging.into_result()?)
}

/// All that has aged leaves as fast as it goes, and no space is given back.
async fn purge_alone(backend: &Backend, lane: &Lane) -> Result<(), SweepError> {
    purge(&*backend.store, lane, Pace::Unbounded, &AtomicU64::new(0)).await
}

/// The rest leaves as fast as it goes, with nothing beside it but what a running node does as well: the space
/// that it leaves behind is given back meanwhile.
async fn announce(backend: &Backend, lane: &Lane) -> anyhow::Result<GivenBack> {
    let mut given_back = GivenBack::new(backend);
    let (cpu, server_cpu, start) = (backend.cpu(), backend.server_cpu(), Instant::now());
    let left = AtomicU64::new(0);
    let mut tidying = interval(TIDY_INTERVAL / TIMES_FASTER);
    let purge = purge(&*backend.store, lane, Pace::Unbounded, &left);
    let mut purge = std::pin::pin!(purge);
    loop {
        tokio::select! {
            ended = &mut purge => break ended?,
            _ = tidying.tick() => given_back.more(backend).await?,
        }
    }
    let left = left.load(Ordering::Relaxed) as f64;
    let rate = left / start.elapsed().as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / left;
    println!(
        "purge alone: {left:.0} events leave at {rate:.0} events/s (at least {ANNOUNCE_RATE_MIN:.0}: {}); {:.1} µs of CPU each ({:.1} µs of it the server's)",
        verdict(rate >= ANNOUNCE_RATE_MIN),
        micros(backend.cpu().saturating_sub(cpu)),
        micros(backend.server_cpu().saturating_sub(server_cpu)),
    );
    given_back.more(backend).await?;
    given_back.tell(backend);
    Ok(given_back)
}
