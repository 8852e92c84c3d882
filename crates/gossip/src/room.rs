//! Whether one more connection of a stranger is taken, and which one ends for it. Pure.
//!
//! Places are few, and who only holds one must not keep it from those who come for a swarm: a place is kept by those
//! who are new and by those who are neighbours.

use std::time::Duration;

use crate::streams::{NETWORK_LINKS_MAX, NODE_LINKS_MAX, Network, STRANGER_LINKS_MAX};

/// How long a connection is kept without being a neighbour's, even if others need its place: a node whose swarm
/// is alone asks whom it is connected with again after half a minute at the latest.
pub const GRACE: Duration = Duration::from_secs(30);

/// A stranger's connection.
#[derive(Clone, Copy, Debug)]
pub struct Place<K> {
    pub who: K,
    pub network: Network,
    pub age: Duration,
    pub standing: Standing,
}

/// Whether a node is our neighbour in a swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Neighbour,
    Idle,
}

/// Whether there is room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Free,
    /// If this one of the places is given up.
    Instead(usize),
    Full,
}

/// Room for a connection with a stranger beside those that are there.
pub fn room<K: PartialEq>(places: &[Place<K>], who: &K, network: Network) -> Room {
    let own = places.iter().filter(|place| place.who == *who).count();
    let near = places.iter().filter(|place| place.network == network).count();
    if own >= NODE_LINKS_MAX {
        return Room::Full;
    }
    let is_crowded = near >= NETWORK_LINKS_MAX;
    if !is_crowded && places.len() < STRANGER_LINKS_MAX {
        return Room::Free;
    }
    let idle = places.iter().enumerate().filter(|(_, place)| {
        place.standing == Standing::Idle
            && place.age > GRACE
            && (!is_crowded || place.network == network)
    });
    let oldest = idle.max_by_key(|(_, place)| place.age);
    oldest.map_or(Room::Full, |(nth, _)| Room::Instead(nth))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const OLD: Duration = GRACE.saturating_add(Duration::from_millis(1));

    fn network(nth: u8) -> Network {
        Network::of(Some(IpAddr::from([10, 0, 0, nth])))
    }

    fn new(who: usize, nth: u8) -> Place<usize> {
        Place { who, network: network(nth), age: GRACE, standing: Standing::Idle }
    }

    /// Whether another one is let in where all are new.
    fn is_free(places: &[Place<usize>], who: usize, nth: u8) -> bool {
        let room = room(places, &who, network(nth));
        assert!(!matches!(room, Room::Instead(_)), "who is new keeps its place");
        room == Room::Free
    }

    #[test]
    fn one_connection_too_many_is_refused() {
        let mut places = vec![new(0, 0); NODE_LINKS_MAX - 1];
        assert!(is_free(&places, 0, 0));
        places.push(new(0, 1));
        assert!(!is_free(&places, 0, 0), "of a node, wherever it is");
        places = (0..NETWORK_LINKS_MAX - 1).map(|who| new(who, 0)).collect();
        assert!(is_free(&places, 1000, 0));
        places.push(new(999, 0));
        assert!(!is_free(&places, 1000, 0), "of a network");
        assert!(is_free(&places, 1000, 1));
        places = (0..STRANGER_LINKS_MAX - 1).map(|who| new(who, who as u8)).collect();
        assert!(is_free(&places, 1000, 200));
        places.push(new(999, 201));
        assert!(!is_free(&places, 1000, 200), "in all");
    }

    /// Strangers that were connected and did nothing held all places for as long as they liked, and even nodes that we
    /// had dialled ourselves were refused.
    #[test]
    fn the_oldest_that_is_in_no_swarm_makes_room() {
        let mut places: Vec<_> =
            (0..STRANGER_LINKS_MAX).map(|who| new(who, (who / NETWORK_LINKS_MAX) as u8)).collect();
        let instead = |places: &[Place<usize>], nth| room(places, &1000, network(nth));
        assert_eq!(instead(&places, 200), Room::Full);
        places[NETWORK_LINKS_MAX].age = OLD;
        assert_eq!(instead(&places, 200), Room::Instead(NETWORK_LINKS_MAX));
        assert_eq!(instead(&places, 0), Room::Full, "that one makes no room in another network");
        places[3].age = OLD + OLD;
        assert_eq!(instead(&places, 200), Room::Instead(3));
        assert_eq!(instead(&places, 0), Room::Instead(3));
        assert_eq!(instead(&places, 1), Room::Instead(NETWORK_LINKS_MAX));
        places[3].standing = Standing::Neighbour;
        assert_eq!(instead(&places, 200), Room::Instead(NETWORK_LINKS_MAX));
        assert_eq!(instead(&places, 0), Room::Full);
        places.pop();
        assert_eq!(instead(&places, 200), Room::Free);
        // A node has no more connections than a node may have, whoever else would make room.
        places[..NODE_LINKS_MAX].iter_mut().for_each(|place| (place.who, place.age) = (1000, OLD));
        assert_eq!(instead(&places, 200), Room::Full);
    }
}
