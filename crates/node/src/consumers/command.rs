//! `consumer`: how consumers are doing, and what an operator can do about it. Works beside a running node.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kukuri_core::{Seq, UnixMillis};
use kukuri_feed::{AnyRunner, GenerationReport, Parked, Report, Wish};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Ground, Registration, registered};
use crate::cli::{Common, ConsumerCommand, ParkedCommand, RebuildArgs};
use crate::config::Config;
use crate::exit::Exit;
use crate::open::{Opened, consumer_place, open_existing};
use crate::output::Output;
use crate::progress;
use crate::signal::Interrupts;

/// How many parked rows are looked through at once.
const PARKED_ROWS_MAX: usize = 10_000;
/// How often the progress of a rebuild is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The consumers of a store, and what they stand on.
struct Operator {
    opened: Opened,
    ground: Ground,
    registrations: Vec<Registration>,
}

pub async fn run(
    common: &Common,
    config: &Config,
    command: ConsumerCommand,
) -> anyhow::Result<Exit> {
    let opened = open_existing(common).await?;
    let ground = Ground {
        store: Arc::clone(&opened.store),
        place: consumer_place(common),
        config: opened.runner_config(config.upkeep().disk_reserve_bytes),
    };
    let kinds = config.search.kinds().expect("settings are checked");
    let operator = Operator { opened, ground, registrations: registered(&kinds) };
    let mut out = Output::stdout();
    match command {
        ConsumerCommand::List => {
            for registration in &operator.registrations {
                out.line(registration.name.as_str())?;
            }
        }
        ConsumerCommand::Status { name, json } => {
            operator.status(name.as_deref(), json, &mut out).await?;
        }
        ConsumerCommand::Pause { name } => {
            operator.open(&name).await?.wish(Wish::Paused).await?;
            eprintln!("{name} is paused: kukuri-node consumer resume {name}");
        }
        ConsumerCommand::Resume { name } => {
            operator.open(&name).await?.wish(Wish::Running).await?;
            eprintln!("{name} goes on where a node runs it");
        }
        ConsumerCommand::Replay { name, from } => {
            operator.open(&name).await?.replay(Seq(from)).await?;
            eprintln!("{name} reads the feed again from row {from} on where a node runs it");
        }
        ConsumerCommand::Rebuild(args) => return operator.rebuild(&args).await,
        ConsumerCommand::Parked(command) => operator.parked(command, &mut out).await?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

impl Operator {
    fn find(&self, name: &str) -> anyhow::Result<&Registration> {
        let known: Vec<&str> = self.registrations.iter().map(|one| one.name.as_str()).collect();
        let found = self.registrations.iter().find(|one| one.name.as_str() == name);
        found
            .with_context(|| format!("there is no consumer {name}: there are {}", known.join(", ")))
    }

    async fn open(&self, name: &str) -> anyhow::Result<Arc<dyn AnyRunner>> {
        let opened = self.find(name)?.open(&self.ground).await;
        opened.with_context(|| format!("cannot open the consumer {name}"))
    }

    /// Without making anything: none if it has not been run.
    async fn look(&self, name: &str) -> anyhow::Result<Option<Arc<dyn AnyRunner>>> {
        let looked = self.find(name)?.look(&self.ground).await;
        looked.with_context(|| format!("cannot look at the consumer {name}"))
    }

    async fn status(
        &self,
        name: Option<&str>,
        as_json: bool,
        out: &mut Output,
    ) -> anyhow::Result<()> {
        let all = self.registrations.iter().map(|one| one.name.as_str());
        for name in name.map_or_else(|| all.collect(), |name| vec![name]) {
            let Some(runner) = self.look(name).await? else {
                match as_json {
                    true => out.json(&json!({ "consumer": name, "generations": [] }))?,
                    false => out.line(&format!("{name}: no node has run it yet"))?,
                }
                continue;
            };
            let report = runner.report((self.opened.clock)()).await?;
            match as_json {
                true => out.json(&to_json(&report))?,
                false => to_lines(&report).iter().try_for_each(|line| out.line(line))?,
            }
        }
        Ok(())
    }
}

fn to_json(report: &Report) -> Value {
    let generation = |generation: &GenerationReport| {
        let state = &generation.state;
        json!({
            "generation": state.generation.0,
            "role": state.role.as_str(),
            "version": state.version,
            "last_seq": state.cursor.seq.0,
            "scan_seq": state.scan.map(|seq| seq.0),
            "start_seq": state.start.0,
            "held": state.held,
            "halted": state.halted,
            "parked": state.parked,
            "lag_rows": generation.lag_rows,
            "lag_seconds": generation.lag_ms / 1000,
            "headroom_rows": generation.headroom_rows,
            "lost": generation.lost.map(|error| error.to_string()),
        })
    };
    json!({
        "consumer": report.name.as_str(),
        "paused": report.wish == Wish::Paused,
        "head": report.bounds.head.0,
        "floor": report.bounds.floor.0,
        "generations": report.generations.iter().map(generation).collect::<Vec<_>>(),
    })
}

fn to_lines(report: &Report) -> Vec<String> {
    let paused = if report.wish == Wish::Paused { ", paused" } else { "" };
    let mut lines = vec![format!("{}{paused}", report.name)];
    for GenerationReport { state, lag_rows, lag_ms, headroom_rows, lost } in &report.generations {
        let doing = match (&state.halted, lost, state.held, state.scan) {
            (Some(why), ..) => format!("halted: {why}"),
            (None, Some(error), ..) => error.to_string(),
            (None, None, false, _) => "nobody works on it: no node runs".to_owned(),
            (None, None, true, Some(scan)) => format!("reads the state: {scan} of {}", state.start),
            (None, None, true, None) if state.version != report.version => {
                "stands still until one of the version of this program, or of its kinds, takes over"
                    .to_owned()
            }
            (None, None, true, None) => "follows the feed".to_owned(),
        };
        lines.push(format!(
            "  generation {} ({}) at row {}: {doing}",
            state.generation,
            state.role.as_str(),
            state.cursor.seq,
        ));
        lines.push(format!(
            "    {lag_rows} rows and {} s behind, {headroom_rows} rows before the feed forgets, {} parked",
            lag_ms / 1000,
            state.parked,
        ));
    }
    lines
}

impl Operator {
    /// Builds a new generation, or helps a node that does, until it has taken over.
    async fn rebuild(&self, args: &RebuildArgs) -> anyhow::Result<Exit> {
        let runner = self.open(&args.name).await?;
        if args.cancel {
            let generation = runner.cancel_rebuild().await?;
            eprintln!("generation {generation} of {} is given up", args.name);
            return Ok(Exit::Done);
        }
        if args.accept {
            let generation = runner.accept_rebuild().await?;
            eprintln!("generation {generation} of {} is read from now on", args.name);
            return Ok(Exit::Done);
        }
        let mut interrupts = Interrupts::listen()?;
        let generation = runner.begin_rebuild().await?;
        let Some(generation) = generation else {
            bail!(
                "a generation of {name} is being built already: consumer status {name}, or rebuild {name} --cancel",
                name = args.name
            );
        };
        let stop = CancellationToken::new();
        let working = {
            let (runner, stop) = (Arc::clone(&runner), stop.clone());
            tokio::spawn(async move { runner.run(stop).await })
        };
        let built = tokio::select! {
            built = watch(&*runner, &self.opened, generation) => built,
            signal = interrupts.next() => {
                eprintln!("{signal}: generation {generation} is given up");
                runner.cancel_rebuild().await?;
                Ok(Exit::Interrupted)
            }
        };
        stop.cancel();
        working.await.context("the rebuild panicked")?;
        built
    }

    async fn parked(&self, command: ParkedCommand, out: &mut Output) -> anyhow::Result<()> {
        match command {
            ParkedCommand::List { name, json } => {
                let Some(runner) = self.look(&name).await? else { return Ok(()) };
                for row in runner.parked(PARKED_ROWS_MAX).await? {
                    match json {
                        true => out.json(&parked_json(&row))?,
                        false => out.line(&parked_line(&row))?,
                    }
                }
            }
            ParkedCommand::Retry { name, rows } => {
                let runner = self.open(&name).await?;
                let mut failed = 0;
                for row in chosen(&*runner, &rows.seqs()).await? {
                    match runner.retry_parked(&row).await {
                        Ok(()) => eprintln!("row {} is in", row.seq),
                        Err(error) => {
                            failed += 1;
                            eprintln!(
                                "row {} stays parked: {:#}",
                                row.seq,
                                anyhow::Error::new(error)
                            );
                        }
                    }
                }
                if failed > 0 {
                    bail!("{failed} rows stay parked: consumer parked list {name}");
                }
            }
            ParkedCommand::Discard { name, rows } => {
                let runner = self.open(&name).await?;
                for row in chosen(&*runner, &rows.seqs()).await? {
                    runner.discard_parked(&row).await?;
                    eprintln!("row {} is discarded", row.seq);
                }
            }
        }
        Ok(())
    }
}

/// Shows how far a rebuild is until it is over.
async fn watch(
    runner: &dyn AnyRunner,
    opened: &Opened,
    generation: kukuri_feed::Generation,
) -> anyhow::Result<Exit> {
    let (bar, mut told) = (progress::count(1), false);
    loop {
        let report = runner.report((opened.clock)()).await?;
        if report.wish == Wish::Paused && !std::mem::replace(&mut told, true) {
            eprintln!(
                "{0} is paused, and so is this: kukuri-node consumer resume {0}",
                report.name
            );
        }
        let found = report.generations.iter().find(|one| one.state.generation == generation);
        let Some(GenerationReport { state, .. }) = found else {
            bail!("generation {generation} was given up by somebody else");
        };
        if let Some(why) = &state.halted {
            bail!("{why}");
        }
        if report.active().is_some_and(|active| active.state.generation == generation) {
            bar.finish_and_clear();
            eprintln!("generation {generation} of {} is read from now on", report.name);
            return Ok(Exit::Done);
        }
        let (done, of, what) = match state.scan {
            Some(scan) => (scan, state.start, "of the state"),
            None => (state.cursor.seq, report.bounds.head, "of the feed"),
        };
        bar.set_length(of.0.max(1).unsigned_abs());
        bar.set_position(done.0.unsigned_abs());
        bar.set_message(what);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The parked rows of these numbers, or all of them.
async fn chosen(runner: &dyn AnyRunner, seqs: &[i64]) -> anyhow::Result<Vec<Parked>> {
    let parked = runner.parked(PARKED_ROWS_MAX).await?;
    for seq in seqs {
        if !parked.iter().any(|row| row.seq.0 == *seq) {
            bail!("row {seq} is not parked: consumer parked list {}", runner.name());
        }
    }
    let wanted = |row: &Parked| seqs.is_empty() || seqs.contains(&row.seq.0);
    Ok(parked.into_iter().filter(wanted).collect())
}

fn parked_json(row: &Parked) -> Value {
    json!({
        "generation": row.generation.0,
        "seq": row.seq.0,
        "event_id": row.event_id.to_hex(),
        "topic_id": row.topic_id.as_str(),
        "op": row.op.as_str(),
        "reason": row.reason,
        "tries": row.tries,
        "parked_at": row.parked_at.0,
    })
}

fn parked_line(row: &Parked) -> String {
    let UnixMillis(at) = row.parked_at;
    let (seq, op, event, topic) = (row.seq, row.op.as_str(), row.event_id, &row.topic_id);
    format!("row {seq} {op} {event} in {topic}, after {} tries, at {at}: {}", row.tries, row.reason)
}
