//! Bodies of events that were seen lately, by id. This is no second path beside the feed: a row says
//! that an event is there, and what is kept here only spares the store a read of what it says.

use std::sync::{Arc, Mutex, PoisonError};

use kukuri_event::{Body, EventId};
use lru::LruCache;

pub(crate) struct Bodies {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

struct Kept {
    by_id: LruCache<EventId, Arc<Body>>,
    bytes: usize,
}

impl Bodies {
    pub fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::new(Kept { by_id: LruCache::unbounded(), bytes: 0 }), bytes_max }
    }

    /// Keeps a body, unless there is one: an author can sign one event in several ways, and the first
    /// to come is the one that is stored.
    pub fn put(&self, body: &Arc<Body>) {
        let (mut kept, id) = (self.lock(), body.event().id());
        if kept.by_id.contains(&id) {
            return;
        }
        kept.bytes += body.json().len();
        kept.by_id.push(id, Arc::clone(body));
        while kept.bytes > self.bytes_max {
            let Some((_, oldest)) = kept.by_id.pop_lru() else { break };
            kept.bytes -= oldest.json().len();
        }
    }

    pub fn get(&self, id: &EventId) -> Option<Arc<Body>> {
        self.lock().by_id.peek(id).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
