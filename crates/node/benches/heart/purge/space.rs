//! What the space of purged events costs to give back, once all of them are announced as gone.

use std::time::{Duration, Instant};

use kukuri_store::Tidied;

use super::verdict;
use crate::backend::Backend;

/// After ten times as many events it takes at most so many times as long.
const DROP_RATIO_MAX: f64 = 3.0;

/// What giving back took, step by step.
pub struct GivenBack(Vec<Duration>);

pub async fn give_back(backend: &Backend) -> anyhow::Result<GivenBack> {
    let (stored, cpu) = (backend.stored(), backend.cpu());
    let mut steps = Vec::new();
    loop {
        let step = Instant::now();
        let tidied = backend.store.tidy().await?;
        let took = step.elapsed();
        match tidied {
            Tidied::More => steps.push(took),
            Tidied::Done => break,
            Tidied::Blocked(why) => anyhow::bail!("nobody else is here, but: {why}"),
        }
    }
    println!(
        "space: {:.0} MB before and {:.0} MB after {} steps in {:.0} ms, {:.1} ms the longest; {:.0} ms of CPU",
        stored as f64 / 1e6,
        backend.stored() as f64 / 1e6,
        steps.len(),
        millis(steps.iter().sum()),
        millis(steps.iter().max().copied().unwrap_or_default()),
        millis(backend.cpu().saturating_sub(cpu)),
    );
    Ok(GivenBack(steps))
}

/// Compares what is left to drop when a purge has ended with the same of one of a tenth as many events. Most of it
/// was dropped while the purge went on: no partition is large, however many events there are.
pub fn tell_drops(small: &GivenBack, large: &GivenBack) {
    let sum = |given: &GivenBack| millis(given.0.iter().sum());
    let steps = |given: &GivenBack| {
        given.0.iter().map(|step| format!("{:.0}", millis(*step))).collect::<Vec<_>>().join(" + ")
    };
    let ratio = sum(large) / sum(small);
    println!(
        "dropping what a purge leaves behind: {:.0} ms ({}) after the smaller one, {:.0} ms ({}) after one of ten times as many events: {ratio:.2}× (at most {DROP_RATIO_MAX:.0}×: {})",
        sum(small),
        steps(small),
        sum(large),
        steps(large),
        verdict(ratio <= DROP_RATIO_MAX),
    );
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
