//! What a commit costs, with all rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kukuri_core::{Act, Command};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_testkit::generate::bulk::Bulk;
use tokio::task::JoinSet;

use crate::NOW;
use crate::backend::{Backend, Kind};
use crate::load::{Load, PIECE_EVENTS, admit};
use crate::meter::{self, Verify};

#[derive(Clone, Copy, Default)]
pub struct Cost {
    events: usize,
    cpu: Duration,
    /// The server's part of it.
    server_cpu: Duration,
    wall: Duration,
    written: u64,
    verify: Verify,
}

impl Cost {
    fn cpu_micros(&self) -> f64 {
        self.per_event_micros(self.cpu)
    }

    fn per_event_micros(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.events as f64
    }

    fn add(&mut self, part: Self) {
        self.cpu += part.cpu;
        self.server_cpu += part.server_cpu;
        self.wall += part.wall;
        self.written += part.written;
        self.verify.add(part.verify);
    }

    /// How many verifications an event costs.
    pub fn ratio(&self) -> f64 {
        self.cpu_micros() / self.verify.micros()
    }
}

/// Commits the load in batches of one size. Only `apply` is measured, a piece at a time between two
/// measurements of a verification: of a machine that others share, the median piece tells most.
pub async fn measure(backend: &Backend, load: Load<'_>, batch: usize) -> anyhow::Result<Cost> {
    let mut cost = Cost { events: load.len(), ..Cost::default() };
    let mut ratios = Vec::new();
    for piece in load.pieces() {
        let mut part = Cost { events: piece.len(), ..Cost::default() };
        part.verify.add(Verify::now(load.lines)?);
        apply(backend, piece, batch, &mut part).await?;
        part.verify.add(Verify::now(load.lines)?);
        ratios.push(part.ratio());
        cost.add(part);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    println!(
        "commit, batches of {batch}: {:.1} µs of CPU per event ({:.1} µs of it the server's), a verification {:.1} µs; {:.2}× in the median of {} pieces ({:.2}× to {:.2}×, {:.2}× of all); {:.1} µs of wall; {:.0} B written by this process, {:.0} B stored per event",
        cost.cpu_micros(),
        cost.per_event_micros(cost.server_cpu),
        cost.verify.micros(),
        ratios[ratios.len() / 2],
        ratios.len(),
        ratios[0],
        ratios[ratios.len() - 1],
        cost.ratio(),
        cost.per_event_micros(cost.wall),
        cost.written as f64 / cost.events as f64,
        backend.stored() as f64 / cost.events as f64,
    );
    Ok(cost)
}

async fn apply(
    backend: &Backend,
    piece: Vec<Command>,
    batch: usize,
    cost: &mut Cost,
) -> anyhow::Result<()> {
    let batches: Vec<Arc<[Command]>> = piece.chunks(batch).map(Arc::from).collect();
    let (cpu, server_cpu) = (backend.cpu(), backend.server_cpu());
    let (wall, written) = (Instant::now(), meter::written());
    for batch in batches {
        let decision = backend.store.apply(batch).await?;
        anyhow::ensure!(decision.outcomes.iter().all(|o| o.is_ok()), "the load is accepted");
    }
    cost.cpu += backend.cpu().saturating_sub(cpu);
    cost.server_cpu += backend.server_cpu().saturating_sub(server_cpu);
    cost.wall += wall.elapsed();
    cost.written += meter::written() - written;
    Ok(())
}

/// Senders that wait for each answer: the lane groups whatever waits.
pub async fn one_in_flight(backend: &Backend, load: Load<'_>) -> anyhow::Result<()> {
    for senders in [1, 64] {
        let clock: kukuri_store::Clock = Arc::new(|| NOW.into());
        let lane = Arc::new(Lane::start(Arc::clone(&backend.store), clock, LaneConfig::STANDARD));
        let half = load.len() / 2;
        let commands: Vec<Command> = load.pieces().flatten().collect();
        // The first few for one sender alone, the rest for many.
        let ours = if senders == 1 { &commands[..half.min(2_000)] } else { &commands[half..] };
        let start = Instant::now();
        let mut tasks = send(&lane, ours, senders, Arc::default());
        while let Some(task) = tasks.join_next().await {
            task?;
        }
        let rate = ours.len() as f64 / start.elapsed().as_secs_f64();
        let batches = lane.stats().batches.max(1);
        println!(
            "lane, {senders} senders with one in flight each: {rate:.0} events/s, {:.1} events per commit",
            ours.len() as f64 / batches as f64
        );
    }
    Ok(())
}

/// Senders that share the commands and count what was answered.
pub fn send(
    lane: &Arc<Lane>,
    commands: &[Command],
    senders: usize,
    answered: Arc<AtomicU64>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for part in commands.chunks(commands.len().div_ceil(senders)) {
        let acts: Vec<Act> = part.iter().map(|command| command.act.clone()).collect();
        let (lane, answered) = (Arc::clone(lane), Arc::clone(&answered));
        tasks.spawn(async move {
            for act in acts {
                let outcome = lane.run(act).await.expect("the lane answers");
                assert!(outcome.is_ok(), "the load is accepted");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks
}

/// How many events a store holds when it is called small.
const SMALL_EVENTS: usize = 100_000;
/// The cost at a size is that of the events half of this before it and half after: a back end that
/// puts work off does all of it within so many.
const WINDOW_EVENTS: usize = 2 * SMALL_EVENTS;

/// What an event costs in a small store and in a large one, which is `grown` events. The small one
/// is measured before and after the large one, because the machine has better and worse minutes.
pub async fn growth(kind: Kind, bulk: &Bulk, grown: usize) -> anyhow::Result<()> {
    let half = WINDOW_EVENTS / 2;
    anyhow::ensure!(grown >= 2 * WINDOW_EVENTS, "a store of {grown} events is not large");
    eprintln!("signing {} events …", grown + half);
    let load = Bulk { events: grown + half, ..bulk.clone() }.lines();
    let (before, last) = load.split_at(grown - half);
    let large_store = Backend::open(kind, bulk).await?;
    for lines in before.chunks(PIECE_EVENTS) {
        apply(&large_store, admit(lines), 1024, &mut Cost::default()).await?;
    }
    let (mut small, mut large) = (Cost::default(), Cost::default());
    window(&Backend::open(kind, bulk).await?, &load[..WINDOW_EVENTS], &mut small).await?;
    window(&large_store, last, &mut large).await?;
    window(&Backend::open(kind, bulk).await?, &load[..WINDOW_EVENTS], &mut small).await?;
    println!(
        "growth: {:.1} µs of CPU per event at {SMALL_EVENTS} events ({:.2}× a verification), {:.1} µs at {grown} ({:.2}×): {:.2}× as many verifications; {:.0} B stored per event",
        small.cpu_micros(),
        small.ratio(),
        large.cpu_micros(),
        large.ratio(),
        large.ratio() / small.ratio(),
        large_store.stored() as f64 / load.len() as f64,
    );
    Ok(())
}

async fn window(backend: &Backend, lines: &[String], cost: &mut Cost) -> anyhow::Result<()> {
    let commands = admit(lines);
    cost.events += lines.len();
    cost.verify.add(Verify::now(lines)?);
    apply(backend, commands, 1024, cost).await?;
    cost.verify.add(Verify::now(lines)?);
    Ok(())
}
