//! Repeated arrivals, added up in memory between two flushes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kukuri_core::{Sighting, UnixMillis};
use kukuri_event::EventId;

/// Counts by id, of a bounded number of ids.
#[derive(Debug)]
pub(crate) struct Tally {
    ids_max: usize,
    counts: HashMap<EventId, Sighting>,
}

impl Tally {
    pub fn new(ids_max: usize) -> Self {
        Self { ids_max, counts: HashMap::new() }
    }

    /// Says whether there was room for the id.
    pub fn add(&mut self, event_id: EventId, at: UnixMillis) -> bool {
        let full = self.counts.len() >= self.ids_max;
        match self.counts.entry(event_id) {
            Entry::Occupied(mut entry) => {
                let sighting = entry.get_mut();
                sighting.count += 1;
                sighting.last_seen_at = sighting.last_seen_at.max(at);
            }
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(entry) => {
                entry.insert(Sighting { event_id, last_seen_at: at, count: 1 });
            }
        }
        true
    }

    /// Everything counted so far, by id.
    pub fn take(&mut self) -> Vec<Sighting> {
        let mut sightings: Vec<Sighting> =
            self.counts.drain().map(|(_, counted)| counted).collect();
        sightings.sort_unstable_by_key(|sighting| sighting.event_id);
        sightings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> EventId {
        EventId::from_bytes([n; 32])
    }

    #[test]
    fn arrivals_add_up_by_id() {
        let mut tally = Tally::new(2);
        for (n, at) in [(2, 5), (1, 7), (2, 3)] {
            assert!(tally.add(id(n), UnixMillis(at)));
        }
        let counted =
            |n, at, count| Sighting { event_id: id(n), last_seen_at: UnixMillis(at), count };
        assert_eq!(tally.take(), [counted(1, 7, 1), counted(2, 5, 2)]);
        assert_eq!(tally.take(), []);
    }

    #[test]
    fn a_full_tally_still_counts_the_ids_it_has() {
        let mut tally = Tally::new(1);
        assert!(tally.add(id(1), UnixMillis(1)));
        assert!(!tally.add(id(2), UnixMillis(2)));
        assert!(tally.add(id(1), UnixMillis(3)));
        assert_eq!(tally.take().len(), 1);
    }
}
