//! What the space of purged events costs to give back.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use kukuri_store::Tidied;

use super::verdict;
use crate::backend::{Backend, Kind};

/// A month of ten times as many events takes at most so many times as long.
const DROP_RATIO_MAX: f64 = 3.0;

/// Months of events that are tables still, attached or not.
const MONTHS: &str = "SELECT relname FROM pg_class WHERE relkind = 'r'
    AND relname ~ '^events_[0-9]{4,}_[0-9]{2}$' ORDER BY relname";

/// How large they are.
const MONTH_SIZES: &str = "SELECT pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'
    AND relname ~ '^events_[0-9]{4,}_[0-9]{2}$' ORDER BY relname";

/// What the server writes at once.
const PAGE_BYTES: usize = 8192;

pub async fn give_back(backend: &Backend, kind: Kind) -> anyhow::Result<()> {
    let (stored, cpu) = (backend.stored(), backend.cpu());
    let start = Instant::now();
    let (mut steps, mut longest) = (0, Duration::ZERO);
    let mut months: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let sizes = month_sizes(backend)?;
    loop {
        // Steps go by the month: each is for the first one that is left.
        let month = backend.sql(MONTHS)?.and_then(|text| text.lines().next().map(str::to_owned));
        let step = Instant::now();
        let tidied = backend.store.tidy().await?;
        let took = step.elapsed();
        match tidied {
            Tidied::More => {}
            Tidied::Done => break,
            Tidied::Blocked(why) => anyhow::bail!("nobody else is here, but: {why}"),
        }
        (steps, longest) = (steps + 1, longest.max(took));
        months.entry(month.unwrap_or_default()).or_default().push(took);
    }
    println!(
        "space: {:.0} MB before and {:.0} MB after {steps} steps in {:.1} s, {:.1} ms the longest; {:.0} ms of CPU",
        stored as f64 / 1e6,
        backend.stored() as f64 / 1e6,
        start.elapsed().as_secs_f64(),
        longest.as_secs_f64() * 1e3,
        backend.cpu().saturating_sub(cpu).as_secs_f64() * 1e3,
    );
    if kind == Kind::Postgres {
        let mut months = months.values();
        let (small, large) = (months.next(), months.next());
        tell_drops(small.zip(large), &sizes)?;
    }
    Ok(())
}

/// How long two months took, step by step, and for comparison what the file system takes to free as many bytes:
/// the server does that after it has let go of all locks, and it grows with what is cached of the files.
fn tell_drops(
    months: Option<(&Vec<Duration>, &Vec<Duration>)>,
    sizes: &[u64],
) -> anyhow::Result<()> {
    let (small, large) = months.context("there are no two months")?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let sum = |steps: &[Duration]| millis(steps.iter().sum());
    let steps = |steps: &[Duration]| {
        steps.iter().map(|step| format!("{:.0}", millis(*step))).collect::<Vec<_>>().join(" + ")
    };
    let ratio = sum(large) / sum(small);
    println!(
        "dropping a month: {:.0} ms ({}) the smaller one, {:.0} ms ({}) one of ten times as many events: {ratio:.2}× (at most {DROP_RATIO_MAX:.0}×: {})",
        sum(small),
        steps(small),
        sum(large),
        steps(large),
        verdict(ratio <= DROP_RATIO_MAX),
    );
    for bytes in sizes.iter().take(2) {
        let freed = freeing(*bytes)?;
        println!("freeing a plain file of {:.0} MB: {:.0} ms", *bytes as f64 / 1e6, millis(freed));
    }
    Ok(())
}

/// How large the months are, the smaller one first.
fn month_sizes(backend: &Backend) -> anyhow::Result<Vec<u64>> {
    let sizes = backend.sql(MONTH_SIZES)?.unwrap_or_default();
    Ok(sizes.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// How long it takes to make a file empty that was just written, as the server does with the files of a table.
fn freeing(bytes: u64) -> anyhow::Result<Duration> {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR"))?;
    let page = [1; PAGE_BYTES];
    for _ in 0..bytes / PAGE_BYTES as u64 {
        file.write_all(&page)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    file.set_len(0)?;
    Ok(start.elapsed())
}
