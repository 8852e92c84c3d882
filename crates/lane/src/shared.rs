use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kukuri_core::UnixMillis;
use kukuri_event::EventId;
use kukuri_store::{Clock, Store};
use tokio_util::sync::CancellationToken;

use crate::counters::{Counters, add};
use crate::sightings::Tally;

/// What the lane's handle and its task both use.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    pub counters: Arc<Counters>,
    pub sightings: Mutex<Tally>,
    pub closing: CancellationToken,
}

impl Shared {
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        // A count is right after every step, so a holder that panicked left nothing half done.
        self.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds arrivals to the next flush; what it has no room for is dropped and counted.
    pub fn sight(&self, events: impl IntoIterator<Item = EventId>, at: UnixMillis) {
        let mut tally = self.tally();
        let dropped = events.into_iter().filter(|id| !tally.add(*id, at)).count();
        add(&self.counters.sightings_dropped, dropped as u64);
    }
}
