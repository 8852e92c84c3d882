//! `import`: events from a file, verified on all cores and taken in through the lane.
//!
//! ```text
//! reader ─chunks→ check (one thread per core) ─in order→ lane ─answers→ counts, report
//! ```
//! A chunk is a run of lines. Chunks keep their order on the whole way, and every hop is bounded. Only
//! what is sent again with `--patience` may come after lines that follow it in the file.

pub mod check;
pub(crate) mod counts;
pub(crate) mod lines;
pub(crate) mod pipeline;
pub(crate) mod reader;
mod report;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use kukuri_core::Source;
use kukuri_core::admission::Age;

use crate::cli::{Common, ImportArgs};
use crate::config::Config;
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, open};
use crate::progress;
use crate::signal::Interrupts;
use check::{Checker, Terms};
use counts::Counts;
use pipeline::{Ending, Pipeline};
use reader::{CHUNK_LINES_MAX, Input};
use report::Report;

pub async fn run(common: &Common, config: &Config, args: ImportArgs) -> anyhow::Result<Exit> {
    let interrupts = Interrupts::listen()?;
    let input = Input::open(&args.file)?;
    let report = args.report.as_deref().map(Report::create).transpose()?;
    let opened = open(common).await?;
    let age = if args.any_age { Age::Any } else { Age::Bounded };
    let (limits, topicless) = (config.limits.events.clone(), config.relay.topicless.into());
    let event_bytes_max = limits.event_bytes_max;
    let (store, clock) = (Arc::clone(&opened.store), Arc::clone(&opened.clock));
    let terms = Terms { limits, topicless, age, source: Source::Import };
    let checker = Checker::new(store, clock, terms).await?;
    let chunks_in_lane_max = opened.lead_commands as usize / CHUNK_LINES_MAX;
    let lane = opened.lane_with(pipeline::lane_config(chunks_in_lane_max));
    let bar = input.size.map_or_else(progress::spinner, progress::bytes);
    let started = Instant::now();
    let chunks = input.start(event_bytes_max)?;
    let pipeline = Pipeline {
        lane: &lane,
        chunks_in_lane_max,
        checker: Arc::new(checker),
        patience: args.patience,
        counts: Counts::default(),
        report,
        seen: None,
        bar: bar.clone(),
        interrupts,
    };
    let lookout = opened.lookout(&lane, config.upkeep().disk_reserve_bytes);
    opened.look_at_disk(&lookout).await?;
    let (ending, counts) = tokio::select! {
        ended = pipeline.run(chunks) => ended,
        () = lookout.run() => unreachable!("it never ends by itself"),
    };
    bar.finish_and_clear();
    let interrupted = matches!(ending, Ending::Interrupted);
    let mut again = Interrupts::listen()?;
    let drained = tokio::select! {
        drained = lane.drain(DRAIN_WAIT_MAX) => drained,
        _ = again.next(), if interrupted => pipeline::leave_at_once(),
    };
    eprint!("{}", counts.to_text(&name(&args.file), started.elapsed()));
    let exit = match ending {
        Ending::Finished if counts.refused() > 0 => Exit::Findings,
        Ending::Finished => Exit::Done,
        Ending::Interrupted => {
            eprintln!("interrupted after line {}: run it again to go on", counts.last_line);
            Exit::Interrupted
        }
        Ending::Failed(error) => {
            let failed = format!(
                "the import into {} stopped: {} lines have no answer; once the cause is gone, run it \
                 again: what is in already counts as a duplicate",
                opened.place, counts.failed
            );
            return Err(error.context(failed));
        }
    };
    match drained.context("the last sightings may be lost") {
        Err(error) if interrupted => eprintln!("warning: {error:#}"),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    Ok(exit)
}

fn name(file: &Path) -> String {
    if reader::is_stdin(file) { "stdin".to_owned() } else { file.display().to_string() }
}
