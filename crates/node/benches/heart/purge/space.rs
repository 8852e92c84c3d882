//! What the space of purged events costs to give back, while a purge goes on and when it has ended.

use std::time::{Duration, Instant};

use kukuri_store::Tidied;

use super::{DROP_RATIO_MAX, verdict};
use crate::backend::Backend;

/// What giving back took, each time.
pub struct GivenBack {
    stored: u64,
    /// All that was given back at one time.
    times: Vec<Duration>,
    /// The part of it in which partitions were dropped, where there was one.
    drops: Vec<Duration>,
    steps: Vec<Duration>,
}

impl GivenBack {
    pub fn new(backend: &Backend) -> Self {
        Self { stored: backend.stored(), times: Vec::new(), drops: Vec::new(), steps: Vec::new() }
    }

    /// Gives back all that there is now.
    pub async fn more(&mut self, backend: &Backend) -> anyhow::Result<()> {
        let (before, mut dropping) = (self.steps.len(), Duration::ZERO);
        loop {
            // On PostgreSQL what is vacant is a partition on its way out: given up, detached, dropped.
            let drops = backend.store.space().await?.vacant_bytes > 0;
            let step = Instant::now();
            match backend.store.tidy().await? {
                Tidied::More => self.steps.push(step.elapsed()),
                Tidied::Done => break,
                Tidied::Blocked(why) => anyhow::bail!("nobody else is here, but: {why}"),
            }
            if drops {
                dropping += self.steps.last().copied().unwrap_or_default();
            }
        }
        let new = &self.steps[before..];
        self.times.extend((!new.is_empty()).then(|| new.iter().sum::<Duration>()));
        self.drops.extend((!dropping.is_zero()).then_some(dropping));
        Ok(())
    }

    /// What the last time took.
    pub fn last(&self) -> Duration {
        self.times.last().copied().unwrap_or_default()
    }

    pub fn tell(&self, backend: &Backend) {
        println!(
            "space: {:.0} MB before and {:.0} MB after it; given back {} times, {} steps in {:.0} ms, {:.1} ms the longest, {:.0} ms of them to drop partitions",
            self.stored as f64 / 1e6,
            backend.stored() as f64 / 1e6,
            self.times.len(),
            self.steps.len(),
            millis(self.steps.iter().sum()),
            millis(longest(&self.steps)),
            millis(self.drops.iter().sum()),
        );
    }
}

/// Partitions are dropped while a purge goes on, and none is large, however many events there are: what is dropped
/// at once, as a rule, is compared with the same of a purge of a tenth as many.
pub fn tell_drops(small: &GivenBack, large: &GivenBack) {
    let longest = millis(longest(&large.drops));
    let [small, large] = [small, large].map(|given| millis(median(&given.drops)));
    if small == 0.0 {
        println!(
            "dropping partitions: a tenth of so few events fills none: make bench PURGED=1000000"
        );
        return;
    }
    let ratio = large / small;
    println!(
        "dropping partitions: {small:.0} ms at once after the smaller purge, {large:.0} ms as a rule and {longest:.0} ms at most in one of ten times as many events: {ratio:.2}× (at most {DROP_RATIO_MAX:.0}×: {})",
        verdict(ratio <= DROP_RATIO_MAX),
    );
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn longest(times: &[Duration]) -> Duration {
    times.iter().max().copied().unwrap_or_default()
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
