//! Everything in one run, so that figures can be compared: this node on both stores, and another relay.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kukuri_testkit::figure::figure;
use tokio::time::sleep;

use crate::load::Load;
use crate::meter::{sync_micros, verify_micros};
use crate::relays::{Postgres, Running, node, nostr_rs_relay};
use crate::report::Report;
use crate::scenario::{Crowd, fanout, idle, ingest, memory, query};
use crate::target::Target;

#[derive(Args, Debug)]
pub struct SuiteArgs {
    /// The node's program.
    #[arg(long, value_name = "FILE", default_value = "target/release/kukuri-node")]
    node: PathBuf,
    /// The program of nostr-rs-relay; it is left out if there is none.
    #[arg(long, value_name = "FILE", default_value = "target/tools/bin/nostr-rs-relay")]
    other: PathBuf,
    /// Only relays whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Events of the larger loads.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
}

/// Events that show how well clients with one in flight are grouped, and in how many turns. Every turn is long
/// enough to have its share of what a store does now and then.
const GROUPED_EVENTS: usize = 80_000;
const GROUPED_TURNS: usize = 4;

/// The units that ratios are made with. A machine that others share is quicker at one moment than at
/// another, so they are measured beside each figure.
struct Units {
    sample: Vec<String>,
    directory: PathBuf,
}

impl Units {
    fn verify_micros(&self) -> anyhow::Result<f64> {
        verify_micros(&self.sample)
    }

    fn sync_micros(&self) -> anyhow::Result<f64> {
        sync_micros(&self.directory)
    }

    /// What something cost, in verifications before and after it.
    async fn verifies(
        &self,
        cost: &str,
        measured: impl Future<Output = anyhow::Result<Report>>,
    ) -> anyhow::Result<(Report, f64)> {
        let before = self.verify_micros()?;
        let report = measured.await?;
        let verify = (before + self.verify_micros()?) / 2.0;
        let report = report.rounded("verify_us", verify);
        report.print()?;
        let verifies = report.number(cost) / verify;
        Ok((report, verifies))
    }
}

pub async fn run(args: SuiteArgs) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in("target")?;
    let sample = Load::of(&["kukuri:global".to_owned()], 2_000, 0).lines;
    let units = Units { sample, directory: directory.path().to_owned() };
    Report::new("units", "this machine")
        .rounded("verify_us", units.verify_micros()?)
        .rounded("sync_us", units.sync_micros()?)
        .print()?;
    if "sqlite".contains(&args.only) {
        let running = node(&args.node, "sqlite", directory.path(), None)?;
        ours(&running, &units, &args, Limits { ingest: 2.2, query: 5.0 }).await?;
    }
    if "postgres".contains(&args.only) {
        let postgres = Postgres::start()?;
        let running = node(&args.node, "postgres", directory.path(), Some(&postgres))?;
        ours(&running, &units, &args, Limits { ingest: 3.2, query: 25.0 }).await?;
        let beside = node(&args.node, "postgres", directory.path(), Some(&postgres))?;
        running.target.quiet().await;
        let crowd = Crowd { subscribers: 100, stalled: 0, events: 100, per_second: 20 };
        let across = fanout(&running.target, &beside.target.url, crowd, 8_000_000).await?;
        across.print()?;
        let millis = across.number("live_p50_us") / 1e3;
        figure("postgres", "live across two processes, p50 ms", millis, Some(60.0));
    }
    if !"nostr-rs-relay".contains(&args.only) {
        return Ok(());
    }
    if args.other.is_file() {
        let running = nostr_rs_relay(&args.other, directory.path()).await?;
        other(&running, &args).await;
    } else {
        eprintln!("nostr-rs-relay is left out: {} is not there", args.other.display());
    }
    Ok(())
}

/// What this node must hold.
struct Limits {
    ingest: f64,
    query: f64,
}

async fn ours(
    running: &Running,
    units: &Units,
    args: &SuiteArgs,
    limits: Limits,
) -> anyhow::Result<()> {
    let (target, name) = (&running.target, running.target.name.as_str());
    // While it is new: later, memory that was used before would be used again.
    let report = memory(target, 1_000).await?;
    report.print()?;
    let kib = |of| report.number(of) / 1024.0;
    figure(name, "KiB per idle connection", kib("bytes_per_connection"), Some(25.0));
    figure(name, "KiB per idle subscription", kib("bytes_per_subscription"), Some(1.0));
    let load = Load::of(&target.topics, args.events + GROUPED_EVENTS + 500, 1_000_000).lines;
    let (pipelined, rest) = load.split_at(args.events);
    let (grouped, alone) = rest.split_at(GROUPED_EVENTS);
    let measured = ingest(target, pipelined.to_vec(), 4, 64);
    let (_, verifies) = units.verifies("cpu_us_per_event", measured).await?;
    figure(name, "ingest, CPU per event in verifications", verifies, Some(limits.ingest));
    let share = grouping(target, grouped).await?;
    figure(name, "pipelined rate over that of 64 with one in flight", share, Some(1.0 / 0.7));
    let report = ingest(target, alone.to_vec(), 1, 1).await?;
    report.print()?;
    figure(
        name,
        "one alone with one in flight, OK in syncs",
        report.number("ok_p50_us") / units.sync_micros()?,
        None,
    );
    target.quiet().await;
    let measured = query(target, 4, 2_000);
    let (_, verifies) = units.verifies("cpu_us_per_request", measured).await?;
    figure(name, "REQ of 100, CPU in verifications", verifies, Some(limits.query));
    live(target, units).await?;
    let report = idle(target, 20_000, 10_000).await?;
    report.print()?;
    figure(
        name,
        "publishing beside 20 000 idle subscriptions over without",
        report.number("ratio"),
        Some(1.2),
    );
    quiet(target).await;
    Ok(())
}

/// Live delivery at a rate, beside readers that stopped, and as fast as it goes.
async fn live(target: &Target, units: &Units) -> anyhow::Result<()> {
    let crowd = Crowd { subscribers: 500, stalled: 0, events: 200, per_second: 20 };
    target.quiet().await;
    let sync_micros = units.sync_micros()?;
    let report = fanout(target, &target.url, crowd, 2_000_000).await?;
    report.print()?;
    let over_sync = |name| (report.number(name) - sync_micros) / 1e3;
    figure(&target.name, "live p50 over a sync, ms", over_sync("live_p50_us"), Some(4.0));
    figure(&target.name, "live p99 over a sync, ms", over_sync("live_p99_us"), Some(15.0));
    target.quiet().await;
    let slow = fanout(target, &target.url, Crowd { stalled: 100, ..crowd }, 3_000_000).await?;
    slow.print()?;
    let ratio = slow.number("live_p50_us") / report.number("live_p50_us");
    figure(&target.name, "live p50 beside 100 stalled over without", ratio, None);
    let full = Crowd { per_second: 0, events: 400, ..crowd };
    let measured = fanout(target, &target.url, full, 4_000_000);
    let (_, verifies) = units.verifies("cpu_us_per_delivery", measured).await?;
    figure(&target.name, "CPU per delivery at saturation in verifications", verifies, Some(0.12));
    Ok(())
}

/// What it does when there is nothing to do.
async fn quiet(target: &Target) {
    const QUIET: Duration = Duration::from_secs(5);
    /// Those who were just let go take a moment to leave, and what was written last is put in its place.
    const SETTLE: Duration = Duration::from_secs(12);
    sleep(SETTLE).await;
    let cpu = target.cpu();
    sleep(QUIET).await;
    let millis = (target.cpu().saturating_sub(cpu)).as_secs_f64() * 1e3 / QUIET.as_secs_f64();
    figure(&target.name, "CPU ms per idle second", millis, None);
}

/// How much quicker many in flight are than one each of 64, in turns: a machine that is slow for a moment
/// is slow for both.
async fn grouping(target: &Target, load: &[String]) -> anyhow::Result<f64> {
    let mut seconds = [0.0; 2];
    for turn in load.chunks(GROUPED_EVENTS / GROUPED_TURNS) {
        let (many, one) = turn.split_at(turn.len() / 2);
        for (nth, lines, connections, in_flight) in [(0, many, 4, 64), (1, one, 64, 1)] {
            let report = ingest(target, lines.to_vec(), connections, in_flight).await?;
            report.print()?;
            seconds[nth] += lines.len() as f64 / report.number("events_per_second");
        }
    }
    Ok(seconds[1] / seconds[0])
}

/// The same load on another relay; what it does not take is said and left.
async fn other(running: &Running, args: &SuiteArgs) {
    let target = &running.target;
    let load = Load::of(&target.topics, args.events / 4 + 200, 1_000_000).lines;
    let (pipelined, alone) = load.split_at(args.events / 4);
    tell(ingest(target, pipelined.to_vec(), 4, 64).await);
    tell(ingest(target, alone.to_vec(), 1, 1).await);
    tell(query(target, 4, 500).await);
    let crowd = Crowd { subscribers: 500, stalled: 0, events: 100, per_second: 20 };
    tell(fanout(target, &target.url, crowd, 2_000_000).await);
    tell(fanout(target, &target.url, Crowd { per_second: 0, ..crowd }, 4_000_000).await);
}

fn tell(report: anyhow::Result<Report>) {
    let told = report.and_then(|report| report.print());
    if let Err(error) = told {
        eprintln!("left out: {error:#}");
    }
}
