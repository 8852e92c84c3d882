//! What the space of purged events costs to give back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kukuri_store::Tidied;

use super::verdict;
use crate::backend::{Backend, Kind};

/// A month of ten times as many events takes at most so many times as long.
const DROP_RATIO_MAX: f64 = 3.0;

/// Months of events that are tables still, attached or not.
const MONTHS: &str = "SELECT relname FROM pg_class WHERE relkind = 'r'
    AND relname ~ '^events_[0-9]{4,}_[0-9]{2}$' ORDER BY relname";

pub async fn give_back(backend: &Backend, kind: Kind) -> anyhow::Result<()> {
    let (stored, cpu) = (backend.stored(), backend.cpu());
    let start = Instant::now();
    let (mut steps, mut longest) = (0, Duration::ZERO);
    let mut months: BTreeMap<String, Duration> = BTreeMap::new();
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
        *months.entry(month.unwrap_or_default()).or_default() += took;
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
        let mut months = months.values().map(|took| took.as_secs_f64() * 1e3);
        let (small, large) = (months.next().unwrap_or(0.0), months.next().unwrap_or(0.0));
        let ratio = large / small;
        println!(
            "dropping a month: {small:.0} ms the smaller one, {large:.0} ms one of ten times as many events: {ratio:.2}× (at most {DROP_RATIO_MAX:.0}×: {})",
            verdict(ratio <= DROP_RATIO_MAX),
        );
    }
    Ok(())
}
