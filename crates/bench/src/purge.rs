//! A node that lets go of aged events while people publish, beside the same node with nothing to let go
//! of. Everything is as users have it: the node is a process, its own upkeep purges, and events come
//! over WebSocket with signatures.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use clap::Args;
use kukuri_event::UnixSeconds;
use kukuri_testkit::generate::Seed;
use kukuri_testkit::generate::bulk::Bulk;

use crate::relays::{Home, Postgres, Running};
use crate::scenario::ingest;

#[derive(Args, Debug)]
pub struct PurgeArgs {
    /// The node's program.
    #[arg(long, value_name = "FILE", default_value = "target/release/kukuri-node")]
    node: PathBuf,
    /// Only the store whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Events that have aged. A few of them are current versions and stay.
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    /// Events that are published in one measurement; there are as many of these as the purge lasts for.
    #[arg(long, default_value_t = 100_000)]
    window: usize,
    /// At most so many turns with the purge and without it, which then ends before its end.
    #[arg(long, default_value_t = usize::MAX)]
    turns: usize,
    /// Waits for a line on stdin once the aged events are there, so that the machine can be made quiet.
    #[arg(long)]
    pause: bool,
}

const TOPICS: usize = 50;
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 64;
/// When what leaves was taken in: longer ago than the node keeps it.
const AGED_SECONDS: i64 = 40 * 86_400;
/// A setting with which nothing has aged yet.
const KEEPS_ALL: (&str, &str) = ("KUKURI_RETENTION_REGULAR_DAYS", "100");
/// What the node says of what has left.
const REMOVED: &str = "kukuri_upkeep_removed_links_total";
/// Of a hundred aged events, so many leave at least: when they have, the purge is near its end, and what
/// is measured from then on is no longer beside one.
const LEAVING_PERCENT: u64 = 90;

/// Measurements in a turn, beside the purge or without it. The first one after a start is not like the next.
const TURN_WINDOWS: usize = 2;

/// Limits: see "Must show" of the issue of retention.
const INGEST_KEPT_PERCENT_MIN: f64 = 80.0;
const PURGE_RATE_MIN: f64 = 5_000.0;

pub async fn run(args: PurgeArgs) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in("target")?;
    for name in ["sqlite", "postgres"] {
        if !name.contains(&args.only) {
            continue;
        }
        let postgres = (name == "postgres").then(Postgres::start).transpose()?;
        let (program, directory) = (args.node.as_path(), directory.path());
        let home = Home { name, program, directory, postgres: postgres.as_ref() };
        measure(&home, &args).await?;
    }
    Ok(())
}

/// With and without a purge in turns, because the machine has better and worse minutes.
async fn measure(home: &Home<'_>, args: &PurgeArgs) -> anyhow::Result<()> {
    let at = now().saturating_sub(AGED_SECONDS);
    let aged = bulk(args.events, at);
    let topics: Vec<String> = (0..TOPICS).map(|nth| aged.topic(nth)).collect();
    for topic in &topics {
        home.carry(topic)?;
    }
    let start = Instant::now();
    fill(home, &aged, at)?;
    eprintln!("{}: {} aged events, made in {:.0?}", home.name, args.events, start.elapsed());
    if args.pause {
        eprintln!("{}: filled; a line on stdin begins the measurement", home.name);
        std::io::stdin().read_line(&mut String::new())?;
    }
    let without = async || {
        let running = home.start(topics.clone(), &[KEEPS_ALL])?;
        // What is left to tidy up after a purge would count as none.
        running.target.quiet().await;
        let mut windows = Vec::new();
        for _ in 0..TURN_WINDOWS {
            let window = Window::measure(&running, args.window).await?;
            ensure!(window.left == 0, "events leave a node that keeps them");
            windows.push(window);
        }
        running.stop().map(|()| windows)
    };
    let mut left_max = args.events as u64 * LEAVING_PERCENT / 100;
    let (mut pairs, mut before) = (Vec::<Pair>::new(), without().await?);
    for _ in 0..args.turns {
        if left_max == 0 {
            break;
        }
        let running = home.start(topics.clone(), &[])?;
        let beside = beside(&running, args, &mut left_max).await?;
        running.stop()?;
        let after = without().await?;
        let alone = before.iter().zip(&after).map(|(a, b)| a.rate().midpoint(b.rate()));
        pairs.extend(beside.into_iter().zip(alone).map(|(beside, alone)| Pair { alone, beside }));
        before = after;
    }
    ensure!(!pairs.is_empty(), "the purge was over too soon: give it more events");
    tell(home.name, args, &pairs);
    Ok(())
}

/// Takes events in at a time that is long gone.
fn fill(home: &Home<'_>, aged: &Bulk, at: UnixSeconds) -> anyhow::Result<()> {
    let path = home.directory.join("aged.jsonl");
    let mut file = BufWriter::new(File::create(&path)?);
    for line in aged.lines() {
        writeln!(file, "{line}")?;
    }
    file.into_inner()?;
    let mut import = home.command();
    let import = import.args(["--now", &at.0.to_string(), "import"]).arg(&path).output()?;
    ensure!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    Ok(std::fs::remove_file(path)?)
}

fn bulk(events: usize, until: UnixSeconds) -> Bulk {
    Bulk { topics: TOPICS, events_per_second: 100, ..Bulk::standard(Seed(7), events, until) }
}

fn now() -> UnixSeconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    UnixSeconds(i64::try_from(now).unwrap_or(i64::MAX))
}

/// Measures a few times, or until all has left that is to leave.
async fn beside(
    running: &Running,
    args: &PurgeArgs,
    left_max: &mut u64,
) -> anyhow::Result<Vec<Window>> {
    let (mut windows, mut left) = (Vec::new(), 0);
    for _ in 0..TURN_WINDOWS {
        let window = Window::measure(running, args.window).await?;
        left = running.metric(REMOVED)?;
        if left >= *left_max {
            *left_max = 0;
            return Ok(windows);
        }
        ensure!(window.left > 0, "nothing leaves: {}", running.stderr());
        windows.push(window);
    }
    *left_max -= left;
    Ok(windows)
}

/// A measurement beside the purge, and the rate at the same place of the turns before and after.
struct Pair {
    alone: f64,
    beside: Window,
}

/// One measurement.
struct Window {
    published: usize,
    /// Events that left meanwhile.
    left: u64,
    seconds: f64,
}

impl Window {
    /// Signs events of this moment, and measures how they are published.
    async fn measure(running: &Running, events: usize) -> anyhow::Result<Self> {
        let lines = bulk(events, now()).lines();
        let (before, start) = (running.metric(REMOVED)?, Instant::now());
        let report = ingest(&running.target, lines, CONNECTIONS, IN_FLIGHT).await?;
        let left = running.metric(REMOVED)? - before;
        let window = Self { published: events, left, seconds: start.elapsed().as_secs_f64() };
        report.rounded("left_per_second", left as f64 / window.seconds).print()?;
        Ok(window)
    }

    fn rate(&self) -> f64 {
        self.published as f64 / self.seconds
    }
}

fn tell(relay: &str, args: &PurgeArgs, pairs: &[Pair]) {
    let windows = || pairs.iter().map(|pair| &pair.beside);
    let seconds: f64 = windows().map(|window| window.seconds).sum();
    let published: usize = windows().map(|window| window.published).sum();
    let left: u64 = windows().map(|window| window.left).sum();
    let alone_seconds = pairs.iter().map(|pair| pair.beside.published as f64 / pair.alone).sum();
    let [rate, alone] = [seconds, alone_seconds].map(|seconds| published as f64 / seconds);
    let (kept, purging) = (100.0 * rate / alone, left as f64 / seconds);
    let worst = windows().map(Window::rate).fold(f64::INFINITY, f64::min);
    let verdict = |holds: bool| if holds { "holds" } else { "MISSED" };
    println!(
        "# {relay}: publishing beside a purge of {} events: {rate:.0} events/s in {} windows, {worst:.0} the worst, {alone:.0} without: {kept:.0} % kept (at least {INGEST_KEPT_PERCENT_MIN:.0} %: {}); {purging:.0} events/s leave (at least {PURGE_RATE_MIN:.0}: {})",
        args.events,
        windows().count(),
        verdict(kept >= INGEST_KEPT_PERCENT_MIN),
        verdict(purging >= PURGE_RATE_MIN),
    );
}
