//! How fast a node speaks to one swarm. Pure: the time is an argument.
//!
//! The library keeps 256 messages of a topic for whoever is about to take them, and drops the oldest when
//! more come at once: a burst that a fast node sends would be lost at every other node. So it is sent in
//! small parts, and what waits stays in the feed.

use std::time::Duration;

use tokio::time::Instant;

/// Messages that are sent without a pause, and how long it takes until as many may follow: 6 400 in a second.
const BURST_MESSAGES: u32 = 64;
const BURST_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    spoken: u32,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self { begun: now, spoken: 0 }
    }

    /// From when on there may be more, if that is not now.
    pub fn pauses_until(&self, now: Instant) -> Option<Instant> {
        let until = self.begun + BURST_INTERVAL;
        (self.spoken >= BURST_MESSAGES && until > now).then_some(until)
    }

    pub fn spoke(&mut self, now: Instant) {
        if now >= self.begun + BURST_INTERVAL {
            *self = Self::new(now);
        }
        self.spoken += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever speaks whenever it may says no more than two bursts within any interval, and is never
        /// silent for longer than one.
        #[test]
        fn bursts_are_small_and_pauses_short(steps in prop::collection::vec(0_u64..400, 1..2000)) {
            let start = Instant::now();
            let (mut now, mut pace) = (start, Pace::new(start));
            let mut spoken: Vec<Instant> = Vec::new();
            for micros in steps {
                now += Duration::from_micros(micros);
                if let Some(until) = pace.pauses_until(now) {
                    prop_assert!(until - now <= BURST_INTERVAL);
                    now = until;
                }
                prop_assert_eq!(pace.pauses_until(now), None);
                pace.spoke(now);
                spoken.push(now);
                let recent = spoken.iter().rev().take_while(|at| now - **at < BURST_INTERVAL).count();
                prop_assert!(recent <= 2 * BURST_MESSAGES as usize, "{} at once", recent);
            }
        }
    }
}
