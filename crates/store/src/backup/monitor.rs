use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::BackupError;

/// How far long work has come, for who watches; and the wish that it ends, for who works.
#[derive(Debug)]
pub struct Monitor {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    end: watch::Sender<bool>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            total_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            end: watch::Sender::new(false),
        }
    }
}

impl Monitor {
    /// There is more to do than was known.
    pub fn expect(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Some of it is done.
    pub fn advance(&self, bytes: u64) -> Result<(), BackupError> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if *self.end.borrow() { Err(BackupError::Interrupted) } else { Ok(()) }
    }

    /// What is done, and what there is to do.
    pub fn progress(&self) -> (u64, u64) {
        (self.done_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed))
    }

    /// Asks the work to end.
    pub fn end(&self) {
        self.end.send_replace(true);
    }

    /// Returns when the work was asked to end.
    pub async fn ended(&self) {
        // The sender lives in this very value.
        let _ = self.end.subscribe().wait_for(|end| *end).await;
    }
}
