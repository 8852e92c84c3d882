//! Who is connected, counted by sender.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::Sender;

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    TooOften,
    TooMany,
    Full,
}

/// Who is there, and how often.
#[derive(Default)]
pub(crate) struct Census(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    of: HashMap<Sender, usize>,
    all: usize,
}

impl Census {
    /// A place for one more, unless its sender or all together have as many as they may.
    pub fn enter(&self, sender: Sender, of_one: usize, of_all: usize) -> Result<Presence, Refused> {
        let mut counts = lock(&self.0);
        if counts.of.get(&sender).is_some_and(|count| *count >= of_one) {
            return Err(Refused::TooMany);
        }
        if counts.all >= of_all {
            return Err(Refused::Full);
        }
        *counts.of.entry(sender).or_default() += 1;
        counts.all += 1;
        Ok(Presence { counts: Arc::clone(&self.0), sender })
    }

    pub fn all(&self) -> usize {
        lock(&self.0).all
    }
}

/// A connection that counts for its sender for as long as this exists.
pub(crate) struct Presence {
    counts: Arc<Mutex<Counts>>,
    pub sender: Sender,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.all -= 1;
        if let Some(count) = counts.of.get_mut(&self.sender) {
            *count -= 1;
            if *count == 0 {
                counts.of.remove(&self.sender);
            }
        }
    }
}

/// What a panic left behind is still a count.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
