//! What the heart of the node costs, next to the one thing it cannot do without: verifying a Schnorr
//! signature, measured in the same run. Ratios carry from machine to machine; raw figures stand beside
//! them.
//!
//! `make bench` runs all of it. `KUKURI_BENCH_EVENTS` sets the load (300 000), `KUKURI_BENCH_GROWN` how
//! far the store grows at the end (1 000 000), `KUKURI_BENCH_PURGED` how many events a purge is of
//! (200 000), `KUKURI_BENCH_ONLY` names one back end, and `KUKURI_BENCH_PARTS` some of `match`, `commit`,
//! `query`, `lane`, `import`, `purge`, `drop` and `growth`.

mod backend;
mod commit;
mod import;
mod load;
mod matching;
mod meter;
mod purge;
mod query;

use anyhow::Context;
use kukuri_event::UnixSeconds;
use kukuri_testkit::generate::Seed;
use kukuri_testkit::generate::bulk::Bulk;

// For its allocator, which is the one that the stores have in a node.
use kukuri_node as _;

use backend::{Backend, Kind};
use load::Load;
use meter::Verify;

const SEED: Seed = Seed(7);
/// The time the whole run takes place at.
const NOW: UnixSeconds = UnixSeconds(1_760_000_000);

fn setting(name: &str, standard: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Err(_) => Ok(standard),
        Ok(text) => text.parse().with_context(|| format!("{name}={text:?} is not a number")),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A task of the runtime, as all of the node is: its main thread is woken by another one.
    tokio::spawn(run()).await?
}

async fn run() -> anyhow::Result<()> {
    let events = setting("KUKURI_BENCH_EVENTS", 300_000)?;
    let grown = setting("KUKURI_BENCH_GROWN", 1_000_000)?;
    let purged = setting("KUKURI_BENCH_PURGED", 200_000)?;
    let only = std::env::var("KUKURI_BENCH_ONLY").ok();
    let bulk = Bulk::standard(SEED, events, NOW);
    eprintln!("signing {events} events …");
    let lines = bulk.lines();
    println!("one verification: {:.1} µs of CPU", Verify::now(&lines)?.micros());
    let bytes: usize = lines.iter().map(String::len).sum();
    println!("load: {events} events, {:.0} B of JSON each", bytes as f64 / events as f64);
    if wanted("match") {
        matching::measure(&lines)?;
    }
    for kind in [Kind::Sqlite, Kind::Postgres] {
        if only.as_deref().is_some_and(|name| name != kind.name()) {
            continue;
        }
        println!("\n## {}", kind.name());
        if wanted("commit") {
            let backend = Backend::open(kind, &bulk).await?;
            commit::measure(&backend, Load::new(&lines), 256).await?;
        }
        let mut commit = None;
        if wanted("commit") || wanted("query") {
            let backend = Backend::open(kind, &bulk).await?;
            commit = Some(commit::measure(&backend, Load::new(&lines), 1024).await?);
            let backend = backend.reopened().await?;
            query::measure(&*backend.store, &bulk, &lines).await?;
        }
        if wanted("lane") {
            let backend = Backend::open(kind, &bulk).await?;
            commit::one_in_flight(&backend, Load::new(&lines[..lines.len().min(20_000)])).await?;
        }
        if wanted("import") {
            import::measure(kind, &bulk, &lines, commit)?;
        }
        if wanted("purge") {
            purge::measure(kind, &bulk, purged).await?;
        }
        if wanted("drop") && kind == Kind::Postgres {
            purge::measure_partitions(&bulk, purged).await?;
        }
        if wanted("growth") && grown > events {
            commit::growth(kind, &bulk, grown).await?;
        }
    }
    Ok(())
}

/// Whether this part of the bench is to be run.
fn wanted(part: &str) -> bool {
    std::env::var("KUKURI_BENCH_PARTS").map_or(true, |parts| parts.split(',').any(|p| p == part))
}
