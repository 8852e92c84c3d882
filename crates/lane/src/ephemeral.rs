//! Events that are passed on and never stored: best effort, in order, this process only.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kukuri_core::Admitted;
use kukuri_event::EventId;
use lru::LruCache;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::counters::{Counters, add};

/// The sending side, in the lane.
pub(crate) struct Outlet {
    seen: LruCache<EventId, ()>,
    listeners: broadcast::Sender<Admitted>,
}

impl Outlet {
    pub fn new(ids_max: usize, listeners: broadcast::Sender<Admitted>) -> Self {
        let ids_max = NonZeroUsize::new(ids_max).unwrap_or(NonZeroUsize::MIN);
        Self { seen: LruCache::new(ids_max), listeners }
    }

    /// Passes an event on unless it was passed on lately; says whether it was new.
    pub fn pass(&mut self, event: &Admitted) -> bool {
        if self.seen.put(event.event().id(), ()).is_some() {
            return false;
        }
        // Without listeners there is nobody to miss it.
        let _ = self.listeners.send(event.clone());
        true
    }
}

/// A listener to ephemeral events. It never slows the lane: what it is too slow for is dropped for
/// it, oldest first, and counted.
pub struct Ephemerals {
    receiver: broadcast::Receiver<Admitted>,
    counters: Arc<Counters>,
}

impl Ephemerals {
    pub(crate) fn new(receiver: broadcast::Receiver<Admitted>, counters: Arc<Counters>) -> Self {
        Self { receiver, counters }
    }

    /// The next event; `None` when the lane has ended.
    pub async fn next(&mut self) -> Option<Admitted> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(missed)) => add(&self.counters.ephemerals_dropped, missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
