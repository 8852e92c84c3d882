//! What it takes for a node to get from another one what it has missed, beside importing the same events
//! from a file. Everything is as users have it: the other node is a process, and `sync` is another.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;

use crate::load::Load;
use crate::relays::{Home, Postgres};
use crate::report::Report;

#[derive(Args, Debug)]
pub struct SyncArgs {
    /// The node's program.
    #[arg(long, value_name = "FILE", default_value = "target/release/kukuri-node")]
    node: PathBuf,
    /// Only the store whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Events of the topic.
    #[arg(long, default_value_t = 100_000)]
    events: usize,
}

const TOPIC: &str = "bench sync";
const DIFFERENCES: usize = 100;

/// Limits: see "Speed" of the issue of gossip and backfill.
const RATE_KEPT_PERCENT_MIN: f64 = 50.0;
const EQUAL_BYTES_MAX: u64 = 2 * 1024;
const DIFFERENT_BYTES_MAX: u64 = 200 * 1024;

pub async fn run(args: SyncArgs) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in("target")?;
    for name in ["sqlite", "postgres"] {
        if name.contains(&args.only) {
            measure(name, directory.path(), &args)?;
        }
    }
    Ok(())
}

/// Stores that hold the same topic, of which one is served.
struct Places<'a> {
    name: &'a str,
    directory: &'a Path,
    lines: Vec<String>,
    topic: String,
}

/// How a run of `sync` ended.
struct Synced {
    seconds: f64,
    stderr: String,
}

impl Synced {
    /// What one line of the counts says.
    fn count(&self, name: &str) -> anyhow::Result<u64> {
        let lines = self.stderr.lines().filter_map(|line| line.trim().strip_prefix(name));
        let count = lines.filter_map(|rest| rest.trim().parse().ok()).next();
        count.with_context(|| format!("no {name:?} in {}", self.stderr))
    }
}

fn measure(name: &str, directory: &Path, args: &SyncArgs) -> anyhow::Result<()> {
    let postgres = || (name == "postgres").then(Postgres::start).transpose();
    let (served, follower, partial) = (postgres()?, postgres()?, postgres()?);
    // Each has a directory of its own, and a server where there is one.
    let program = args.node.as_path();
    let directory = &tempfile::tempdir_in(directory)?;
    let directory = directory.path();
    let other = Home { name: "served", program, directory, postgres: served.as_ref() };
    let topic = other.carry(TOPIC)?;
    let lines = Load::of(std::slice::from_ref(&topic), args.events, 0).lines;
    let places = Places { name, directory, lines, topic };
    let importing = places.import(&other, |_| true)?;
    let running = other.start(vec![places.topic.clone()], &[])?;
    let url = running.target.url.clone();

    let two = Home { name: "empty", program, directory, postgres: follower.as_ref() };
    two.carry(TOPIC)?;
    let all = places.sync(&two, &url)?;
    ensure!(all.count("accepted")? == args.events as u64, "{}", all.stderr);
    let equal = places.sync(&two, &url)?;
    ensure!(equal.count("missing here")? == 0, "{}", equal.stderr);
    two.purge()?;
    let purged = places.sync(&two, &url)?;

    let three = Home { name: "partial", program, directory, postgres: partial.as_ref() };
    let stride = args.events / DIFFERENCES;
    places.import(&three, |nth| nth % stride != stride / 2)?;
    let different = places.sync(&three, &url)?;
    ensure!(different.count("accepted")? == DIFFERENCES as u64, "{}", different.stderr);
    running.stop()?;
    tell(name, args, importing, &Figures { all, equal, purged, different })
}

struct Figures {
    all: Synced,
    equal: Synced,
    purged: Synced,
    different: Synced,
}

fn tell(name: &str, args: &SyncArgs, importing: f64, figures: &Figures) -> anyhow::Result<()> {
    let Figures { all, equal, purged, different } = figures;
    let events = args.events as f64;
    let (import_rate, sync_rate) = (events / importing, events / all.seconds);
    let bytes = |of: &Synced| anyhow::Ok(of.count("bytes sent")? + of.count("bytes received")?);
    let (equal_bytes, different_bytes) = (bytes(equal)?, different.count("bytes comparing")?);
    let refetched = purged.count("fetched")?;
    Report::new("sync", name)
        .with("events", args.events)
        .rounded("import_per_second", import_rate)
        .rounded("sync_per_second", sync_rate)
        .with("bytes_all", bytes(all)?)
        .with("bytes_equal", equal_bytes)
        .with("bytes_comparing_100_differences", different_bytes)
        .with("bytes_100_differences", bytes(different)?)
        .with("fetched_after_purge", refetched)
        .print()?;
    let verdict = |holds: bool| if holds { "holds" } else { "MISSED" };
    let kept = 100.0 * sync_rate / import_rate;
    println!(
        "# {name}: sync of {} missing events: {sync_rate:.0} events/s, import {import_rate:.0}: {kept:.0} % (at least {RATE_KEPT_PERCENT_MIN:.0} %: {}); equal topics {equal_bytes} bytes (at most {EQUAL_BYTES_MAX}: {}); {DIFFERENCES} differences {different_bytes} bytes (at most {DIFFERENT_BYTES_MAX}: {}); {refetched} bodies after a purge (none: {})",
        args.events,
        verdict(kept >= RATE_KEPT_PERCENT_MIN),
        verdict(equal_bytes <= EQUAL_BYTES_MAX),
        verdict(different_bytes <= DIFFERENT_BYTES_MAX),
        verdict(refetched == 0),
    );
    Ok(())
}

impl Places<'_> {
    /// Imports those of the lines that are wanted; says how many seconds it took.
    fn import(&self, home: &Home<'_>, wanted: impl Fn(usize) -> bool) -> anyhow::Result<f64> {
        home.carry(TOPIC)?;
        let path = self.directory.join(format!("{}.jsonl", self.name));
        let mut file = BufWriter::new(File::create(&path)?);
        for (_, line) in self.lines.iter().enumerate().filter(|(nth, _)| wanted(*nth)) {
            writeln!(file, "{line}")?;
        }
        file.into_inner()?;
        let start = Instant::now();
        let import = home.command().arg("import").arg(&path).output()?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
        std::fs::remove_file(path)?;
        Ok(seconds)
    }

    fn sync(&self, home: &Home<'_>, url: &str) -> anyhow::Result<Synced> {
        let start = Instant::now();
        let sync = home.command().args(["sync", "--from", url, "--topic", &self.topic]).output()?;
        let seconds = start.elapsed().as_secs_f64();
        let stderr = String::from_utf8(sync.stderr)?;
        ensure!(sync.status.success(), "{stderr}");
        Ok(Synced { seconds, stderr })
    }
}
