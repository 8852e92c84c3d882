use std::collections::{HashSet, VecDeque};

use kukuri_event::EventId;

use crate::SEEN_IDS_MAX;

/// The ids of the last events that were shown. At the limit the oldest is forgotten.
#[derive(Default)]
pub(super) struct Window {
    ids: HashSet<EventId>,
    order: VecDeque<EventId>,
}

impl Window {
    /// Whether the id is new.
    pub fn insert(&mut self, id: EventId) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > SEEN_IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> EventId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        EventId::from_bytes(bytes)
    }

    #[test]
    fn the_oldest_is_forgotten_at_the_limit() {
        let mut window = Window::default();
        assert!((0..SEEN_IDS_MAX).all(|number| window.insert(id(number))));
        assert!(!window.insert(id(0)));
        assert!(window.insert(id(SEEN_IDS_MAX)));
        assert!(!window.insert(id(1)));
        assert!(window.insert(id(0)));
    }
}
