//! What the reconciliations of one sender hold together, so that one sender does not hold all there is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use crate::address::Sender;

/// What is held, by sender. Only those who hold something are in it.
#[derive(Debug)]
pub(super) struct Shares {
    held: Mutex<HashMap<Sender, usize>>,
    ids_max: usize,
}

impl Shares {
    pub fn new(ids_max: usize) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), ids_max })
    }
}

/// What one reconciliation holds of it; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    sender: Sender,
    ids: usize,
}

/// The sender holds as much as one may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Share {
    pub fn of(shares: &Arc<Shares>, sender: Sender) -> Self {
        Self { shares: Arc::clone(shares), sender, ids: 0 }
    }

    pub fn grow(&mut self, ids: usize) -> Result<(), Exhausted> {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = held.get(&self.sender).copied().unwrap_or(0).saturating_add(ids);
        if now > self.shares.ids_max {
            return Err(Exhausted);
        }
        if now > 0 {
            held.insert(self.sender, now);
        }
        self.ids += ids;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = held.entry(self.sender) {
            *entry.get_mut() = entry.get().saturating_sub(self.ids);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn sender(last: u8) -> Sender {
        IpAddr::from([192, 0, 2, last]).into()
    }

    #[test]
    fn a_sender_has_its_share_and_gives_it_back() {
        let shares = Shares::new(10);
        let (mut one, mut two) = (Share::of(&shares, sender(1)), Share::of(&shares, sender(1)));
        let mut other = Share::of(&shares, sender(2));
        assert_eq!(one.grow(0), Ok(()));
        assert!(shares.held.lock().unwrap().is_empty());
        assert_eq!((one.grow(4), one.grow(2), two.grow(5)), (Ok(()), Ok(()), Err(Exhausted)));
        assert_eq!((two.grow(4), two.grow(1)), (Ok(()), Err(Exhausted)));
        assert_eq!((other.grow(11), other.grow(10)), (Err(Exhausted), Ok(())));
        drop(one);
        assert_eq!((two.grow(7), two.grow(6)), (Err(Exhausted), Ok(())));
        drop((two, other));
        assert!(shares.held.lock().unwrap().is_empty());
    }
}
