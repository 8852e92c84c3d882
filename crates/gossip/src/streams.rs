//! How many connections strangers may have, and how many streams. Pure.
//!
//! Every topic is a stream of its own in each direction, and the library makes room for a whole message as soon as
//! a stream says how long its next one will be, even if nothing follows. So room is lent: a connection begins with
//! a few streams, is lent more for the swarms in which it is our neighbour, and some for topics that we do not
//! carry, out of a stock that all strangers share. What was lent cannot be taken back before the connection
//! ends: QUIC knows no way to. A node that waits for a stream waits with all of its swarms, so nothing is lent
//! more slowly than it is needed.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

use crate::endpoint::MESSAGE_BYTES_MAX;

/// Connections of strangers: of one node (both sides may dial at the same moment, and one may be dead), of one
/// network, and in all. Further ones are refused, or take the place of others: see [`crate::room`].
pub const NODE_LINKS_MAX: usize = 3;
pub const NETWORK_LINKS_MAX: usize = 16;
pub const STRANGER_LINKS_MAX: usize = 128;
/// Streams that every connection begins with. Two nodes that share fewer topics need no more.
pub const STREAMS_START: u32 = 16;
/// Streams that are lent for topics that we do not carry: a node that carries a thousand others asks us once for
/// each. Of one network, so that one connection can have 1024, and in all. A network has no more than half of what
/// the others have left, so that something is left for the next one, too.
pub const SPARE_NETWORK_MAX: u32 = 1024 - STREAMS_START;
pub const SPARE_MAX: u32 = 2 * SPARE_NETWORK_MAX;
/// Streams that are lent to neighbours, for each topic that we carry: the library has five neighbours in a swarm,
/// each is lent half as many again as it needs, and this is the next number that is simple.
pub const EARNED_PER_TOPIC: u32 = 8;
/// Streams of a peer that the operator has named, beyond one for each topic there may be.
pub const NAMED_SPARE: u32 = 1024;
/// Bytes of one connection that have come and that the library has not read, and that were sent and not
/// acknowledged: with a round trip of 100 ms, 5 MB in a second each way. QUIC knows no bound of the former by itself.
pub const WINDOW_BYTES: u32 = 512 * 1024;
/// What strangers can make us set aside without sending a whole message: room for one on each stream, and both windows
/// of each connection. One connection, all of one network, all there are, and more for each topic that is carried.
/// Messages that have come are not in it: the library queues them before we look at them, and keeps them for a while.
pub const LINK_BYTES_MAX: usize = bytes(1, SPARE_NETWORK_MAX);
pub const NETWORK_BYTES_MAX: usize = bytes(NETWORK_LINKS_MAX, SPARE_NETWORK_MAX);
pub const STRANGERS_BYTES_MAX: usize = bytes(STRANGER_LINKS_MAX, SPARE_MAX);
pub const TOPIC_BYTES_MAX: usize = EARNED_PER_TOPIC as usize * MESSAGE_BYTES_MAX;
/// Who is stuck is lent this many times what it has: a few round trips until it has all it may have, and little more
/// than it needs, so that something is left for its other connections.
const SPARE_FACTOR: u32 = 2;

const fn bytes(links: usize, spare: u32) -> usize {
    let streams = links * STREAMS_START as usize + spare as usize;
    streams * MESSAGE_BYTES_MAX + links * 2 * WINDOW_BYTES as usize
}

/// Whom an address belongs to, as far as anyone can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// One address.
    V4([u8; 4]),
    /// The 64 bits that a customer is given at least.
    V6([u16; 4]),
    /// Through a relay server, which does not say from where.
    Relayed,
}

impl Network {
    pub fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address.octets()),
            Some(IpAddr::V6(address)) => Self::V6(prefix(address)),
            None => Self::Relayed,
        }
    }
}

fn prefix(address: Ipv6Addr) -> [u16; 4] {
    let [a, b, c, d, ..] = address.segments();
    [a, b, c, d]
}

/// What one connection of a stranger was lent beyond what it began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    pub earned: u32,
    pub spare: u32,
}

impl Lent {
    /// How many streams there may be at once.
    pub fn streams(self) -> u32 {
        STREAMS_START + self.earned + self.spare
    }
}

/// What can still be lent to nodes `K`.
#[derive(Clone, Debug)]
pub struct Stock<K> {
    earned: u32,
    earned_max: u32,
    earned_of: HashMap<K, u32>,
    spare: u32,
    spare_of: HashMap<Network, u32>,
}

impl<K: Eq + Hash> Stock<K> {
    /// Of a node that carries so many topics, with what each connection of its strangers was lent so far.
    pub fn new(topics: usize, lent: impl IntoIterator<Item = (K, Network, Lent)>) -> Self {
        let topics = u32::try_from(topics).unwrap_or(u32::MAX);
        let earned_max = topics.saturating_mul(EARNED_PER_TOPIC);
        let (earned_of, spare_of) = (HashMap::new(), HashMap::new());
        let mut stock = Self { earned: 0, earned_max, earned_of, spare: 0, spare_of };
        for (who, network, lent) in lent {
            stock.earned += lent.earned;
            *stock.earned_of.entry(who).or_default() += lent.earned;
            stock.spare += lent.spare;
            *stock.spare_of.entry(network).or_default() += lent.spare;
        }
        stock
    }

    /// Lends what a neighbour in so many swarms needs, and half as many again, so that it is told of them: for all of its
    /// connections together, or a few nodes with several each would have what all neighbours share. Whether it was any.
    pub fn lend_earned(&mut self, who: K, lent: &mut Lent, swarms: usize) -> bool {
        let swarms = u32::try_from(swarms).unwrap_or(u32::MAX);
        let of_node = self.earned_of.entry(who).or_default();
        let wanted = swarms.saturating_add(swarms / 2).saturating_sub(*of_node);
        let more = wanted.min(self.earned_max.saturating_sub(self.earned));
        lent.earned += more;
        self.earned += more;
        *of_node += more;
        more > 0
    }

    /// Lends a stranger that is stuck several times what it has, as long as its network has no more than it leaves to
    /// those that come later. Whether it was any.
    pub fn lend_spare(&mut self, network: Network, lent: &mut Lent) -> bool {
        let of_network = self.spare_of.entry(network).or_default();
        let of_others = self.spare - *of_network;
        let share = (SPARE_MAX.saturating_sub(of_others) / 2).min(SPARE_NETWORK_MAX);
        let left = share.saturating_sub(*of_network);
        let more = lent.streams().saturating_mul(SPARE_FACTOR - 1).min(left);
        lent.spare += more;
        self.spare += more;
        *of_network += more;
        more > 0
    }
}

/// Whether a connection that may have so many streams is told of it, after it was told of fewer: QUIC keeps small
/// changes to itself until they are a good part of what there is.
pub fn is_told(before: u32, streams: u32) -> bool {
    streams - before > streams / 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::room::GRACE;

    fn network(nth: u8) -> Network {
        Network::of(Some(IpAddr::from([10, 0, 0, nth])))
    }

    /// What docs/gossip.md says of them, row by row.
    #[test]
    fn the_bounds_are_those_of_the_table() {
        let text = include_str!("../../../docs/gossip.md");
        let (mib, kib) = (|bytes: usize| bytes.div_ceil(1 << 20), 1 << 10);
        for row in [
            format!(
                "| connections of strangers | {STRANGER_LINKS_MAX}; {NETWORK_LINKS_MAX} of one \
                 address (IPv6: of one /64), {NODE_LINKS_MAX} of one node | the oldest one that is \
                 in no swarm with us ends, after {} s; if there is none, refused |",
                GRACE.as_secs()
            ),
            format!(
                "| streams of a stranger's connection | {STREAMS_START}, and half as many again as \
                 swarms in which it is a neighbour | it waits; see below |"
            ),
            format!(
                "| streams of strangers beyond that | {SPARE_MAX}; {SPARE_NETWORK_MAX} of one \
                 address, and half of what others have left | it waits |"
            ),
            format!("| one connection | {} MiB |", mib(LINK_BYTES_MAX)),
            format!("| one address | {} MiB |", mib(NETWORK_BYTES_MAX)),
            format!("| all strangers | {} MiB |", mib(STRANGERS_BYTES_MAX)),
            format!("| more for each carried topic | {} KiB |", TOPIC_BYTES_MAX / kib),
        ] {
            assert!(text.contains(&row), "docs/gossip.md does not say: {row}");
        }
    }

    #[test]
    fn networks_are_addresses_or_the_first_half_of_them() {
        let of = |text: &str| Network::of(Some(text.parse().unwrap()));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(Network::of(None), Network::Relayed);
    }

    #[test]
    fn spare_streams_end_for_a_network_and_for_all() {
        let mut stock = Stock::<u8>::new(0, []);
        let mut lent = [Lent::default(); 3];
        let sizes: Vec<u32> = std::iter::from_fn(|| {
            stock.lend_spare(network(0), &mut lent[0]).then(|| lent[0].streams())
        })
        .collect();
        assert_eq!(sizes, [32, 64, 128, 256, 512, 1024]);
        assert!(!stock.lend_spare(network(0), &mut lent[1]), "one more of the same network");
        while stock.lend_spare(network(1), &mut lent[1]) {}
        assert_eq!(lent[1].spare, SPARE_NETWORK_MAX / 2, "half of what is left");
        // A connection that ends gives back what it was lent.
        let mut stock = Stock::new(0, [(1_u8, network(1), lent[1])]);
        while stock.lend_spare(network(2), &mut lent[2]) {}
        assert_eq!(lent[2].spare, (SPARE_MAX - SPARE_NETWORK_MAX / 2) / 2);
    }

    /// Two addresses that took all they could get had all there was, and so had two honest nodes with many topics: the
    /// third was stuck with what a connection begins with.
    #[test]
    fn who_comes_later_is_lent_spare_streams_too() {
        let mut stock = Stock::<u8>::new(0, []);
        // Each of these networks asks over all of its connections, and again when the others have had their turn.
        let mut lent = [[Lent::default(); NETWORK_LINKS_MAX]; 6];
        for _ in 0..3 {
            for (nth, links) in lent.iter_mut().enumerate() {
                for link in links {
                    while stock.lend_spare(network(nth as u8), link) {}
                }
            }
        }
        let of_network = lent.map(|links| links.iter().map(|lent| lent.spare).sum::<u32>());
        assert_eq!(of_network, [1008, 504, 252, 126, 63, 31]);
        let mut late = Lent::default();
        assert!(stock.lend_spare(network(100), &mut late));
        assert!(is_told(STREAMS_START, late.streams()));
    }

    #[test]
    fn neighbours_are_lent_what_the_carried_topics_are_worth() {
        let mut stock = Stock::new(10, []);
        let mut lent = [Lent::default(); 7];
        for (who, one) in lent[..5].iter_mut().enumerate() {
            assert!(stock.lend_earned(who, one, 10));
            assert_eq!(one.earned, 15);
            assert!(!stock.lend_earned(who, one, 10), "it has what it needs");
        }
        assert!(stock.lend_earned(5, &mut lent[5], 10));
        assert_eq!(lent[5].earned, 10 * EARNED_PER_TOPIC - 75);
        assert!(!stock.lend_earned(6, &mut lent[6], 10));
    }

    /// Each connection of a node earned as much as the node needs. Two nodes with three connections each, in every swarm,
    /// had all that there was for neighbours, and the others nothing.
    #[test]
    fn a_node_with_several_connections_earns_once() {
        let mut lent = [Lent::default(); NODE_LINKS_MAX];
        for nth in 0..NODE_LINKS_MAX {
            let mut stock = Stock::new(10, lent.map(|lent| (0, network(0), lent)));
            assert_eq!(stock.lend_earned(0, &mut lent[nth], 10), nth == 0);
        }
        // The first one ends, and another has the use of it.
        let mut stock = Stock::new(10, lent[1..].iter().map(|lent| (0, network(0), *lent)));
        assert!(stock.lend_earned(0, &mut lent[1], 10));
        assert_eq!(lent[1].earned, 15);
        assert!(!stock.lend_earned(0, &mut lent[2], 10), "with the same stock, too");
    }

    proptest! {
        /// Whoever asks however often, no more is lent than there is; and a node that shares any number of topics
        /// can open them all, if it opens as many as it is told of.
        #[test]
        fn what_is_lent_is_bounded(
            topics in 0..1200_usize,
            asks in prop::collection::vec((0..20_usize, 0..1200_usize, any::<bool>()), 0..300),
        ) {
            let mut lent = [Lent::default(); 20];
            // Three nodes have three connections each from several networks, and the others one.
            let who = |nth: usize| if nth < 3 * NODE_LINKS_MAX { nth % 3 } else { nth };
            let near = |nth: usize| network(nth as u8 / 4);
            for (nth, swarms, stuck) in asks {
                let all = lent.iter().enumerate().map(|(nth, lent)| (who(nth), near(nth), *lent));
                let mut stock = Stock::new(topics, all);
                match stuck {
                    true => stock.lend_spare(near(nth), &mut lent[nth]),
                    false => stock.lend_earned(who(nth), &mut lent[nth], swarms.min(topics)),
                };
            }
            let earned: u32 = lent.iter().map(|lent| lent.earned).sum();
            let spare: u32 = lent.iter().map(|lent| lent.spare).sum();
            prop_assert!(earned <= topics as u32 * EARNED_PER_TOPIC && spare <= SPARE_MAX);
            for node in 0..lent.len() {
                let links = lent.iter().enumerate().filter(|(nth, _)| who(*nth) == node);
                let earned: u32 = links.map(|(_, lent)| lent.earned).sum();
                prop_assert!(earned as usize <= topics + topics / 2, "{earned} of node {node}");
            }
            for four in lent.chunks(4) {
                prop_assert!(four.iter().map(|lent| lent.spare).sum::<u32>() <= SPARE_NETWORK_MAX);
            }
            let (mut lent, mut stock, mut told) = (Lent::default(), Stock::new(topics, []), STREAMS_START);
            while (told as usize) < topics {
                stock.lend_earned(0_u8, &mut lent, told as usize);
                prop_assert!(is_told(told, lent.streams()), "stuck at {told}");
                told = lent.streams();
            }
        }
    }
}
