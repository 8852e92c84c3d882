/// Events that are handed on together, and the bytes of them from which on they are.
pub const GROUP_EVENTS_MAX: usize = 256;
pub const GROUP_BYTES_MAX: usize = 1024 * 1024;

/// Events on their way: what is held of them is bounded by one event more than [`GROUP_BYTES_MAX`].
#[derive(Debug, Default)]
pub struct Group {
    events: Vec<String>,
    bytes: usize,
}

impl Group {
    pub fn push(&mut self, event: String) {
        self.bytes += event.len();
        self.events.push(event);
    }

    /// Whether it is to be handed on before anything more comes in.
    pub fn is_full(&self) -> bool {
        self.events.len() >= GROUP_EVENTS_MAX || self.bytes >= GROUP_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn into_events(self) -> Vec<String> {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_by_number_and_by_bytes() {
        for (event_bytes, fill) in [(0, 256), (4096, 256), (4097, 256), (64 * 1024, 16)] {
            let mut group = Group::default();
            assert!(group.is_empty());
            for nth in 1..=fill {
                assert!(!group.is_full(), "{event_bytes} {nth}");
                group.push("x".repeat(event_bytes));
            }
            assert!(group.is_full(), "{event_bytes}");
            assert_eq!(group.into_events().len(), fill);
        }
        let mut group = Group::default();
        group.push("x".repeat(GROUP_BYTES_MAX - 1));
        assert!(!group.is_full());
        group.push("x".to_owned());
        assert!(group.is_full());
    }
}
