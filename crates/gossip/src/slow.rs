//! Swarms that have no room for what the feed tells them now. Each gets it later and in order, from its own place in
//! the feed; nobody waits for it meanwhile. Reads nothing itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use kukuri_core::{Cursor, Seq, TopicId};
use tokio::sync::mpsc::Sender;

/// Room that is left for what is ephemeral, and waits for nobody.
const EPHEMERALS_WAITING_MAX: usize = 128;
/// A swarm that is further behind begins anew where the feed is read: others ask for the rest.
const BEHIND_ROWS_MAX: i64 = 100_000;

/// Puts it into the queue of a swarm, if there is room.
pub(crate) fn offer(out: &Sender<Bytes>, bytes: Bytes) -> bool {
    room(out) > 0 && out.try_send(bytes).is_ok()
}

/// How much of the feed it would take now.
pub(crate) fn room(out: &Sender<Bytes>) -> usize {
    let reserved = EPHEMERALS_WAITING_MAX.min(out.max_capacity() / 2);
    out.capacity().saturating_sub(reserved)
}

/// Where each of them is.
#[derive(Debug, Default)]
pub(crate) struct Slow(BTreeMap<TopicId, Seq>);

impl Slow {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, topic: &TopicId) -> bool {
        self.0.contains_key(topic)
    }

    /// How many rows the slowest one is behind.
    pub fn lag_rows(&self, head: Seq) -> u64 {
        let lag = self.0.values().map(|seq| head.0.saturating_sub(seq.0)).max();
        u64::try_from(lag.unwrap_or(0)).unwrap_or(0)
    }

    /// It has everything up to here, and not what follows.
    pub fn stays(&mut self, topic: &TopicId, at: Seq) {
        self.0.insert(topic.clone(), at);
    }

    /// It has everything again, or is given up.
    pub fn leave(&mut self, topic: &TopicId) {
        self.0.remove(topic);
    }

    /// Those that are too far behind are given up.
    pub fn give_up(&mut self, head: Seq) -> Vec<TopicId> {
        let (late, rest): (BTreeMap<_, _>, _) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(_, seq)| head.0.saturating_sub(seq.0) > BEHIND_ROWS_MAX);
        self.0 = rest;
        late.into_keys().collect()
    }

    pub fn places(&self, epoch: kukuri_core::Epoch) -> Vec<(TopicId, Cursor)> {
        self.0.iter().map(|(topic, seq)| (topic.clone(), Cursor { epoch, seq: *seq })).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;

    fn topic(digit: char) -> TopicId {
        TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
    }

    #[test]
    fn what_is_ephemeral_finds_room_beside_a_burst() {
        let (out, _waiting) = channel(1024);
        let taken = (0..5000).filter(|_| offer(&out, Bytes::from_static(b"x"))).count();
        assert_eq!(taken, 1024 - EPHEMERALS_WAITING_MAX);
        let ephemerals = (0..5000).filter(|_| out.try_send(Bytes::from_static(b"x")).is_ok());
        assert_eq!(ephemerals.count(), EPHEMERALS_WAITING_MAX);
    }

    #[test]
    fn who_is_too_far_behind_is_given_up_alone() {
        let mut slow = Slow::default();
        slow.stays(&topic('a'), Seq(10));
        slow.stays(&topic('b'), Seq(11));
        assert_eq!(slow.give_up(Seq(BEHIND_ROWS_MAX + 10)), []);
        assert_eq!(slow.lag_rows(Seq(110)), 100);
        assert_eq!(slow.give_up(Seq(BEHIND_ROWS_MAX + 11)), [topic('a')]);
        assert!(slow.contains(&topic('b')) && !slow.contains(&topic('a')));
        slow.leave(&topic('b'));
        assert!(slow.is_empty());
        assert_eq!(slow.lag_rows(Seq(110)), 0);
    }
}
