use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use kukuri_core::UnixMillis;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What gossip has done so far in this process.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct GossipStats { $($(#[$doc])* pub $name: u64,)+ }

        /// The live counters. They are independent of each other, so relaxed order is enough.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64,)+ }

        impl Counters {
            pub fn stats(&self) -> GossipStats {
                GossipStats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Messages that swarms have delivered.
    received,
    /// Those that were accepted as new, those that were known, and those that the rules refuse.
    accepted,
    duplicates,
    refused,
    /// Those without the topic of their swarm.
    foreign,
    unreadable,
    oversized,
    bad_signatures,
    /// Not looked at: over a rate, from somebody who is muted, or because the lane had no room.
    over_rate,
    from_muted,
    overloaded,
    /// How often a neighbour was muted.
    mutes,
    /// Messages that were broadcast, and those that nobody was there to hear.
    broadcasts,
    unheard,
    /// Not sent: protected or too large, or because a queue was full.
    kept_back,
    out_dropped,
    /// How often messages were lost because we were too slow.
    lags,
    /// Subscriptions that ended and were made again.
    rejoins,
    dials,
    dials_failed,
    connections_refused,
}

pub(crate) fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Lets something through once in a while that would happen often.
#[derive(Debug)]
pub(crate) struct Sample {
    last: AtomicI64,
    interval: Duration,
}

impl Sample {
    pub fn every(interval: Duration) -> Self {
        Self { last: AtomicI64::new(0), interval }
    }

    /// Whether it is time for it again.
    pub fn is_due(&self, now: UnixMillis) -> bool {
        let last = UnixMillis(self.last.load(Ordering::Relaxed));
        // A clock that was set back must not keep us silent.
        let due = last.until(now) >= self.interval || last > now;
        let take =
            || self.last.compare_exchange(last.0, now.0, Ordering::Relaxed, Ordering::Relaxed);
        due && take().is_ok()
    }
}
