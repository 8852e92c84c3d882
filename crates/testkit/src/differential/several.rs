//! Several handles of one store, taken in turn: what several processes on one data directory or one
//! database are to each other, without the processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use kukuri_store::Store;
use kukuri_store::conformance::double::Double;

/// A store whose every call goes through another of its handles.
pub struct Several {
    handles: Vec<Arc<dyn Store>>,
    calls: AtomicUsize,
}

impl Several {
    /// # Panics
    /// When there is no handle.
    pub fn new(handles: Vec<Arc<dyn Store>>) -> Several {
        assert!(!handles.is_empty(), "a store has a handle");
        Several { handles, calls: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Double for Several {
    fn behind(&self) -> &dyn Store {
        // A stride of one would give the same handle to the same sort of call again and again.
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.handles[(calls + calls / 7) % self.handles.len()]
    }
}
