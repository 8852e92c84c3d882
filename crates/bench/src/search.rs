//! The search of a node as users meet it, over its sockets: how soon what is published is found, and what
//! publishing loses to an index that is there and stands still. What documents and questions cost is
//! measured in `crates/index/benches`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use kukuri_testkit::figure::figure;
use tokio::time::{Instant as Moment, sleep, sleep_until};

use crate::load::Load;
use crate::meter::Percentiles;
use crate::relays::{Home, Postgres, Running};
use crate::report::Report;
use crate::scenario::ingest;
use crate::socket::{Socket, accepted};
use crate::target::Target;

#[derive(Args, Debug)]
pub struct SearchArgs {
    /// The node's program.
    #[arg(long, value_name = "FILE", default_value = "target/release/kukuri-node")]
    node: PathBuf,
    /// Only the store whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Notes that are published and looked for, one after the other.
    #[arg(long, default_value_t = 100)]
    notes: usize,
    /// Events that are published with an index that stands still, and as many without one.
    #[arg(long, default_value_t = 60_000)]
    events: usize,
}

const SEARCHES: (&str, &str) = ("KUKURI_SEARCH_MODE", "on");
/// Low load: so long from one note to the next.
const NOTE_INTERVAL: Duration = Duration::from_millis(200);
/// How long nobody asks again who has not found what was published.
const ASK_INTERVAL: Duration = Duration::from_millis(1);
const FOUND_WITHIN: Duration = Duration::from_secs(30);
/// Each half of the load goes in so many turns: a machine that is slow for a moment is slow for both.
const TURNS: usize = 6;
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 64;

/// Limits: see "Speed" and "Must show" of the issue of search.
const FOUND_MILLIS_MAX: f64 = 100.0;
const STOPPED_RATIO_MAX: f64 = 1.1;

pub async fn run(args: SearchArgs) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in("target")?;
    for name in ["sqlite", "postgres"] {
        if !name.contains(&args.only) {
            continue;
        }
        let server = || (name == "postgres").then(Postgres::start).transpose();
        let (with, without) = (server()?, server()?);
        let (program, directory) = (args.node.as_path(), directory.path());
        let home = |name, postgres| Home { name, program, directory, postgres };
        let plain_name = format!("{name} without search");
        let searching = home(name, with.as_ref());
        measure(&searching, &home(&plain_name, without.as_ref()), &args).await?;
    }
    Ok(())
}

async fn measure(searching: &Home<'_>, plain: &Home<'_>, args: &SearchArgs) -> anyhow::Result<()> {
    let name = searching.name;
    let topics = vec![searching.carry("bench")?];
    plain.carry("bench")?;
    let running = searching.start(topics.clone(), &[SEARCHES])?;
    let report = publish_and_find(&running.target, args.notes).await?;
    report.print()?;
    let millis = report.number("found_p50_us") / 1e3;
    figure(name, "from publishing to being found, p50 ms", millis, Some(FOUND_MILLIS_MAX));

    let paused = searching.command().args(["consumer", "pause", "search"]).output()?;
    ensure!(paused.status.success(), "{}", String::from_utf8_lossy(&paused.stderr));
    let beside = plain.start(topics, &[])?;
    let ratio = stopped_over_none(&running, &beside, args.events).await?;
    figure(
        name,
        "publishing time with stopped consumers over none",
        ratio,
        Some(STOPPED_RATIO_MAX),
    );
    running.stop()?;
    beside.stop()
}

/// Publishes notes at leisure and looks for each until it is found.
async fn publish_and_find(target: &Target, notes: usize) -> anyhow::Result<Report> {
    let lines = Load::of(&target.topics, notes, 0).lines;
    let (mut publisher, mut asker) =
        (Socket::connect(&target.url).await?, Socket::connect(&target.url).await?);
    built(&mut asker, &target.topics[0]).await?;
    let (mut oks, mut founds) = (Vec::new(), Vec::new());
    let mut next = Moment::now();
    for (number, line) in lines.into_iter().enumerate() {
        sleep_until(next).await;
        next += NOTE_INTERVAL;
        let start = Instant::now();
        publisher.send(format!("[\"EVENT\",{line}]")).await?;
        accepted(&publisher.next().await?)?;
        oks.push(start.elapsed());
        // The content of each begins with its number, which no other has.
        let filter = format!("{{\"#t\":[\"{}\"],\"search\":\"{number}\"}}", target.topics[0]);
        while asker.request("found", &filter).await? == 0 {
            ensure!(start.elapsed() < FOUND_WITHIN, "note {number} is not found");
            sleep(ASK_INTERVAL).await;
        }
        founds.push(start.elapsed());
    }
    let (oks, founds) = (Percentiles::of(oks), Percentiles::of(founds));
    Ok(Report::new("found", &target.name)
        .with("notes", notes)
        .rounded("ok_p50_us", oks.p50)
        .rounded("found_p50_us", founds.p50)
        .rounded("found_p99_us", founds.p99)
        .rounded("found_max_us", founds.max))
}

/// Until questions are answered: a new node makes its index first.
async fn built(asker: &mut Socket, topic: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    let filter = format!("{{\"#t\":[\"{topic}\"],\"search\":\"nothing\"}}");
    while let Err(error) = asker.request("built", &filter).await {
        ensure!(start.elapsed() < FOUND_WITHIN, "no search: {error:#}");
        sleep(ASK_INTERVAL).await;
    }
    Ok(())
}

/// How long publishing takes beside consumers that stand still, over how long it takes without any.
async fn stopped_over_none(
    stopped: &Running,
    none: &Running,
    events: usize,
) -> anyhow::Result<f64> {
    let mut seconds = [0.0; 2];
    let share = events / TURNS;
    for turn in 0..TURNS {
        // Who goes first would have the warmer or the colder machine.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for nth in order {
            let running = [stopped, none][nth];
            let first = 1_000_000 * (nth + 1) + turn * share;
            let lines = Load::of(&running.target.topics, share, first).lines;
            running.target.quiet().await;
            let report = ingest(&running.target, lines, CONNECTIONS, IN_FLIGHT).await?;
            report.print()?;
            seconds[nth] += share as f64 / report.number("events_per_second");
        }
    }
    Ok(seconds[0] / seconds[1])
}
