//! How one topic's swarm is looked after: what happens to it, and what is done about it. Pure: the time
//! is an argument.
//!
//! The library neither dials again nor rejoins: a peer that was away for a minute is lost to it, and a
//! swarm that has lost its last neighbour stays alone. So whoever is alone asks again.

use std::collections::BTreeSet;
use std::time::Duration;

use kukuri_core::UnixMillis;
use kukuri_core::backfill::Why;

/// The pause after the first try; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Tries after which it is not enough to ask again.
const TRIES_IN_VAIN: u32 = 4;

/// What happens to a swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// The library listens to the topic.
    Subscribed,
    Up(K),
    Down(K),
    /// We were too slow, and messages were dropped.
    Lagged,
    /// The library has ended the subscription, or refused one.
    Ended,
    /// A connection to a peer is there that was not before.
    Reached(K),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<K> {
    Subscribe,
    /// Ask all peers that can be reached to let us in.
    JoinAll,
    Join(K),
    /// Close connections that lead to nobody's neighbours, so that they are made anew. A peer that still takes us
    /// for its neighbour, and waits for an answer that was lost with an older connection, answers no question
    /// of ours until that ends.
    Renew,
    /// Something was missed, or may have been.
    Tell(Why),
}

/// How a swarm is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<K> {
    /// Not subscribed; the next try is then.
    Waiting {
        until: UnixMillis,
    },
    /// Subscribed, without a neighbour; asks again then.
    Alone {
        until: UnixMillis,
    },
    Joined {
        neighbours: BTreeSet<K>,
    },
}

#[derive(Clone, Debug)]
pub struct Supervision<K> {
    phase: Phase<K>,
    since: UnixMillis,
    /// Tries in a row that led to nothing.
    tries: u32,
    was_joined: bool,
}

impl<K: Ord + Copy> Supervision<K> {
    /// Begins with a subscription at once.
    pub fn new(now: UnixMillis) -> Self {
        Self { phase: Phase::Waiting { until: now }, since: now, tries: 0, was_joined: false }
    }

    pub fn phase(&self) -> &Phase<K> {
        &self.phase
    }

    /// Since when it is in its phase.
    pub fn since(&self) -> UnixMillis {
        self.since
    }

    /// Tries in a row that led to nothing.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// When a tick is due, if one is.
    pub fn wakes_at(&self) -> Option<UnixMillis> {
        match self.phase {
            Phase::Waiting { until } | Phase::Alone { until } => Some(until),
            Phase::Joined { .. } => None,
        }
    }

    pub fn handle(&mut self, event: Event<K>, now: UnixMillis) -> Option<Act<K>> {
        match event {
            Event::Subscribed => self.alone(now),
            Event::Up(peer) => self.up(peer, now),
            Event::Down(peer) => self.down(peer, now),
            Event::Lagged => Some(Act::Tell(Why::Lagged)),
            Event::Ended => {
                let until = self.pause(now);
                self.enter(Phase::Waiting { until }, now);
                None
            }
            // Whoever has neighbours asks, too: two halves of a swarm find each other this way.
            Event::Reached(peer) => match &self.phase {
                Phase::Alone { .. } => Some(Act::Join(peer)),
                Phase::Joined { neighbours } if !neighbours.contains(&peer) => {
                    Some(Act::Join(peer))
                }
                _ => None,
            },
            Event::Tick => self.tick(now),
        }
    }

    fn tick(&mut self, now: UnixMillis) -> Option<Act<K>> {
        match self.phase {
            Phase::Waiting { until } if until <= now => Some(Act::Subscribe),
            Phase::Alone { until } if until <= now => {
                let act = if self.tries < TRIES_IN_VAIN { Act::JoinAll } else { Act::Renew };
                self.phase = Phase::Alone { until: self.pause(now) };
                Some(act)
            }
            _ => None,
        }
    }

    fn alone(&mut self, now: UnixMillis) -> Option<Act<K>> {
        let until = self.pause(now);
        self.enter(Phase::Alone { until }, now);
        Some(Act::JoinAll)
    }

    fn up(&mut self, peer: K, now: UnixMillis) -> Option<Act<K>> {
        if let Phase::Joined { neighbours } = &mut self.phase {
            neighbours.insert(peer);
            return None;
        }
        self.enter(Phase::Joined { neighbours: BTreeSet::from([peer]) }, now);
        self.tries = 0;
        let before = std::mem::replace(&mut self.was_joined, true);
        Some(Act::Tell(if before { Why::Partition } else { Why::Joined }))
    }

    fn down(&mut self, peer: K, now: UnixMillis) -> Option<Act<K>> {
        let Phase::Joined { neighbours } = &mut self.phase else { return None };
        neighbours.remove(&peer);
        if neighbours.is_empty() { self.alone(now) } else { None }
    }

    fn enter(&mut self, phase: Phase<K>, now: UnixMillis) {
        (self.phase, self.since) = (phase, now);
    }

    fn pause(&mut self, now: UnixMillis) -> UnixMillis {
        let pause = PAUSE_MIN.saturating_mul(1 << self.tries.min(16)).min(PAUSE_MAX);
        self.tries += 1;
        now.saturating_add(pause)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> UnixMillis {
        UnixMillis(1_000_000 + ms)
    }

    #[test]
    fn a_swarm_is_joined_lost_and_found() {
        let mut swarm: Supervision<u8> = Supervision::new(at(0));
        assert_eq!(swarm.handle(Event::Tick, at(0)), Some(Act::Subscribe));
        assert_eq!(swarm.handle(Event::Subscribed, at(1)), Some(Act::JoinAll));
        assert_eq!(swarm.handle(Event::Up(1), at(2)), Some(Act::Tell(Why::Joined)));
        assert_eq!(swarm.handle(Event::Up(2), at(3)), None);
        assert_eq!(swarm.handle(Event::Reached(2), at(3)), None, "a neighbour already");
        assert_eq!(swarm.handle(Event::Reached(3), at(3)), Some(Act::Join(3)));
        assert_eq!(swarm.wakes_at(), None);
        assert_eq!(swarm.handle(Event::Down(1), at(4)), None);
        assert_eq!(swarm.handle(Event::Lagged, at(4)), Some(Act::Tell(Why::Lagged)));
        assert_eq!(swarm.handle(Event::Down(2), at(5)), Some(Act::JoinAll));
        assert!(matches!(swarm.phase(), Phase::Alone { .. }));
        assert_eq!(swarm.handle(Event::Up(1), at(6)), Some(Act::Tell(Why::Partition)));
    }

    #[test]
    fn who_is_alone_asks_again_less_and_less_often() {
        let mut swarm: Supervision<u8> = Supervision::new(at(0));
        swarm.handle(Event::Subscribed, at(0));
        let mut pauses = Vec::new();
        let mut now = at(0);
        for nth in 0..9 {
            let next = swarm.wakes_at().unwrap();
            assert_eq!(swarm.handle(Event::Tick, UnixMillis(next.0 - 1)), None);
            pauses.push(now.until(next).as_millis());
            now = next;
            let act = if nth < 3 { Act::JoinAll } else { Act::Renew };
            assert_eq!(swarm.handle(Event::Tick, now), Some(act));
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        swarm.handle(Event::Up(1), now);
        swarm.handle(Event::Down(1), now);
        assert_eq!(now.until(swarm.wakes_at().unwrap()), PAUSE_MIN);
    }

    #[test]
    fn a_subscription_that_ends_is_made_again() {
        let mut swarm: Supervision<u8> = Supervision::new(at(0));
        swarm.handle(Event::Subscribed, at(0));
        swarm.handle(Event::Up(1), at(0));
        assert_eq!(swarm.handle(Event::Ended, at(0)), None);
        assert_eq!(swarm.handle(Event::Tick, at(499)), None);
        assert_eq!(swarm.handle(Event::Tick, at(500)), Some(Act::Subscribe));
        assert_eq!(swarm.handle(Event::Ended, at(500)), None);
        assert_eq!(swarm.handle(Event::Tick, at(1499)), None);
        assert_eq!(swarm.handle(Event::Tick, at(1500)), Some(Act::Subscribe));
    }

    fn event() -> impl Strategy<Value = Event<u8>> {
        prop_oneof![
            Just(Event::Subscribed),
            Just(Event::Lagged),
            Just(Event::Ended),
            Just(Event::Tick),
            (0..4_u8).prop_map(Event::Up),
            (0..4_u8).prop_map(Event::Down),
            (0..4_u8).prop_map(Event::Reached),
        ]
    }

    proptest! {
        /// Whatever happens, a swarm without neighbours tries again within the longest pause, and a gap is
        /// told whenever it has neighbours again.
        #[test]
        fn no_swarm_is_given_up(events in proptest::collection::vec((event(), 0..20_000_i64), 0..200)) {
            let (mut swarm, mut now) = (Supervision::<u8>::new(at(0)), at(0));
            for (event, wait) in events {
                now = UnixMillis(now.0 + wait);
                let before = matches!(swarm.phase(), Phase::Joined { .. });
                let act = swarm.handle(event, now);
                match swarm.phase() {
                    Phase::Joined { neighbours } => {
                        prop_assert!(!neighbours.is_empty());
                        prop_assert!(before || matches!(act, Some(Act::Tell(_))));
                    }
                    Phase::Waiting { until } | Phase::Alone { until } => {
                        prop_assert!(now.until(*until) <= PAUSE_MAX);
                    }
                }
            }
        }
    }
}
