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
    /// At most so many measurements beside the purge, which then ends before its end.
    #[arg(long, default_value_t = usize::MAX)]
    windows: usize,
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

/// Without a purge before and after, because the machine has better and worse minutes.
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
        let window = Window::measure(&running, args.window).await?;
        ensure!(window.left == 0, "events leave a node that keeps them");
        running.stop().map(|()| window)
    };
    let first = without().await?;
    let running = home.start(topics.clone(), &[])?;
    let beside = beside(&running, args).await?;
    running.stop()?;
    let last = without().await?;
    tell(home.name, args, first.rate().midpoint(last.rate()), &beside);
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

/// Measures again and again until nearly all that leaves has left.
async fn beside(running: &Running, args: &PurgeArgs) -> anyhow::Result<Vec<Window>> {
    let end = args.events as u64 * LEAVING_PERCENT / 100;
    let mut windows = Vec::new();
    loop {
        let window = Window::measure(running, args.window).await?;
        if running.metric(REMOVED)? >= end {
            break;
        }
        ensure!(window.left > 0, "nothing leaves: {}", running.stderr());
        windows.push(window);
        if windows.len() >= args.windows {
            break;
        }
    }
    ensure!(!windows.is_empty(), "the purge was over too soon: give it more events");
    Ok(windows)
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

fn tell(relay: &str, args: &PurgeArgs, alone: f64, beside: &[Window]) {
    let seconds: f64 = beside.iter().map(|window| window.seconds).sum();
    let published: usize = beside.iter().map(|window| window.published).sum();
    let left: u64 = beside.iter().map(|window| window.left).sum();
    let (rate, purging) = (published as f64 / seconds, left as f64 / seconds);
    let kept = 100.0 * rate / alone;
    let worst = beside.iter().map(Window::rate).fold(f64::INFINITY, f64::min);
    let verdict = |holds: bool| if holds { "holds" } else { "MISSED" };
    println!(
        "# {relay}: publishing beside a purge of {} events: {rate:.0} events/s in {} windows, {worst:.0} the worst, {alone:.0} without: {kept:.0} % kept (at least {INGEST_KEPT_PERCENT_MIN:.0} %: {}); {purging:.0} events/s leave (at least {PURGE_RATE_MIN:.0}: {})",
        args.events,
        beside.len(),
        verdict(kept >= INGEST_KEPT_PERCENT_MIN),
        verdict(purging >= PURGE_RATE_MIN),
    );
}
