//! Who is connected, and who may be. Every connection passes here, whoever began it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iroh::endpoint::{
    AfterHandshakeOutcome, BeforeConnectOutcome, Connection, EndpointHooks, WeakConnectionHandle,
};
use iroh::{EndpointAddr, EndpointId, TransportAddr};
use kukuri_core::UnixMillis;
use kukuri_store::Clock;

use crate::conduct::{Conduct, Fault, Muted, Passage};
use crate::config::GossipConfig;
use crate::counters::{Counters, add_one};
use crate::nudges::Nudges;
use crate::room::{Place, Room, Standing, room};
use crate::streams::{Lent, NAMED_SPARE, NODE_LINKS_MAX, Network, Stock, WINDOW_BYTES, is_told};

/// Neighbours whose conduct is remembered.
const REMEMBERED_MAX: usize = 4096;
/// A stranger that says it is stuck is lent spare streams when it has been looked at so often without having
/// earned any: who has just been let into a swarm needs none of them.
const STUCK_LOOKS: u32 = 2;
const CLOSE_CODE: u32 = 1;

pub(crate) struct Door {
    conduct: Mutex<Conduct<EndpointId>>,
    links: Mutex<Links>,
    /// Who was our neighbour in a swarm when strangers were last looked at.
    neighbours: Mutex<HashSet<EndpointId>>,
    /// Nodes that the operator has named: for them there is always room.
    named: BTreeSet<EndpointId>,
    named_streams: u32,
    clock: Clock,
    counters: Arc<Counters>,
}

type Links = HashMap<EndpointId, Vec<Link>>;

/// One connection, and what it was lent if it is a stranger's.
struct Link {
    handle: WeakConnectionHandle,
    network: Network,
    since: UnixMillis,
    lent: Lent,
    /// How many streams it has heard of.
    told: u32,
    /// How often it had said that it is stuck when it last heard of more, and looks since it has said so again.
    stuck: u64,
    looks: u32,
    nudges: Nudges,
}

impl Door {
    pub fn new(config: &GossipConfig, clock: Clock, counters: Arc<Counters>) -> Arc<Self> {
        let conduct =
            Conduct::new(config.rates.each, config.rates.all, config.mute, REMEMBERED_MAX);
        let (links, neighbours) = (Mutex::default(), Mutex::default());
        let named = config.peers.iter().map(|peer| peer.id).collect();
        let topics = u32::try_from(config.topics_max).unwrap_or(u32::MAX);
        let named_streams = topics.saturating_add(NAMED_SPARE);
        let conduct = Mutex::new(conduct);
        Arc::new(Self { conduct, links, neighbours, named, named_streams, clock, counters })
    }

    pub fn pass(&self, who: &EndpointId, hops: impl FnOnce() -> u16) -> Passage {
        let passage = lock(&self.conduct).pass(who, hops, (self.clock)());
        if let Passage::TooFast(Some(muted)) = passage {
            self.mute(who, Fault::TooFast, muted);
        }
        passage
    }

    pub fn weigh(&self, who: &EndpointId, bytes: usize) {
        lock(&self.conduct).weigh(who, bytes, (self.clock)());
    }

    pub fn blame(&self, who: &EndpointId, fault: Fault, hops: u16) {
        let muted = lock(&self.conduct).blame(who, fault, hops, (self.clock)());
        if let Some(muted) = muted {
            self.mute(who, fault, muted);
        }
    }

    /// Until then no connection with it is made or taken, so that what it sends costs nothing.
    fn mute(&self, who: &EndpointId, fault: Fault, muted: Muted) {
        add_one(&self.counters.mutes);
        let seconds = (self.clock)().until(muted.until).as_secs();
        tracing::warn!(neighbour = %who.fmt_short(), why = ?fault, seconds, "a neighbour is muted");
        self.cut(who, b"muted");
    }

    pub fn cut(&self, who: &EndpointId, why: &[u8]) {
        let links = lock(&self.links).remove(who).unwrap_or_default();
        for link in links.iter().filter_map(|link| link.handle.upgrade()) {
            link.close(CLOSE_CODE.into(), why);
        }
    }

    pub fn is_muted(&self, who: &EndpointId) -> bool {
        lock(&self.conduct).is_muted(who, (self.clock)())
    }

    pub fn muted(&self) -> Vec<(EndpointId, UnixMillis)> {
        let now = (self.clock)();
        lock(&self.conduct).muted(now).map(|(who, until)| (*who, until)).collect()
    }

    pub fn is_connected(&self, who: &EndpointId) -> bool {
        lock(&self.links).get(who).is_some_and(|links| links.iter().any(is_open))
    }

    pub fn connected(&self) -> Vec<EndpointId> {
        let links = lock(&self.links);
        links.iter().filter(|(_, links)| links.iter().any(is_open)).map(|(who, _)| *who).collect()
    }

    /// Takes note of a connection, unless there are too many. Another one may end for it.
    fn enter(&self, connection: &Connection) -> bool {
        let (who, network, now) = (connection.remote_id(), network(connection), (self.clock)());
        let mut links = lock(&self.links);
        drop_closed(&mut links);
        if self.named.contains(&who) {
            if links.get(&who).map_or(0, Vec::len) >= NODE_LINKS_MAX {
                return false;
            }
            connection.set_max_concurrent_uni_streams(self.named_streams.into());
        } else if !self.make_room(&mut links, &who, network, now) {
            return false;
        }
        let link = Link::new(connection.weak_handle(), network, now);
        links.entry(who).or_default().push(link);
        true
    }

    /// Whether there is room for a stranger's connection now.
    fn make_room(
        &self,
        links: &mut Links,
        who: &EndpointId,
        network: Network,
        now: UnixMillis,
    ) -> bool {
        let neighbours = lock(&self.neighbours);
        let strangers = links.iter().filter(|(id, _)| !self.named.contains(*id));
        let (places, links_of): (Vec<Place<EndpointId>>, Vec<usize>) = strangers
            .flat_map(|(id, links)| {
                let is_neighbour = neighbours.contains(id);
                let standing = if is_neighbour { Standing::Neighbour } else { Standing::Idle };
                links.iter().enumerate().map(move |(nth, link)| {
                    let (network, age) = (link.network, link.since.until(now));
                    (Place { who: *id, network, age, standing }, nth)
                })
            })
            .unzip();
        match room(&places, who, network) {
            Room::Free => true,
            Room::Full => false,
            Room::Instead(nth) => {
                let idle = places[nth].who;
                let link = links.get_mut(&idle).map(|links| links.remove(links_of[nth]));
                if let Some(connection) = link.and_then(|link| link.handle.upgrade()) {
                    tracing::debug!(peer = %idle.fmt_short(), "a peer in no swarm makes room");
                    connection.close(CLOSE_CODE.into(), b"idle");
                }
                true
            }
        }
    }

    pub fn has_strangers(&self) -> bool {
        lock(&self.links).keys().any(|who| !self.named.contains(who))
    }

    /// Lends strangers the streams that they need, as far as there are some; `swarms` says in how many each is our
    /// neighbour, of so many `topics`.
    pub fn lend(&self, swarms: &HashMap<EndpointId, usize>, topics: usize) {
        let mut links = lock(&self.links);
        *lock(&self.neighbours) = swarms.keys().copied().collect();
        drop_closed(&mut links);
        let strangers = links.iter_mut().filter(|(who, _)| !self.named.contains(*who));
        // The library sends over the newest connection with a node, which therefore comes first.
        let mut strangers: Vec<(EndpointId, &mut Link)> = strangers
            .flat_map(|(who, links)| links.iter_mut().rev().map(|link| (*who, link)))
            .collect();
        let lent = strangers.iter().map(|(who, link)| (*who, link.network, link.lent));
        let mut stock = Stock::new(topics, lent.collect::<Vec<_>>());
        for (who, link) in &mut strangers {
            link.lend(&mut stock, *who, swarms.get(who).copied().unwrap_or(0));
        }
    }
}

impl Link {
    fn new(handle: WeakConnectionHandle, network: Network, since: UnixMillis) -> Self {
        let lent = Lent::default();
        let told = lent.streams();
        let nudges = Nudges::default();
        Self { handle, network, since, lent, told, stuck: 0, looks: 0, nudges }
    }

    fn lend(&mut self, stock: &mut Stock<EndpointId>, who: EndpointId, swarms: usize) {
        let Some(connection) = self.handle.upgrade() else { return };
        let came = connection.stats().frame_rx;
        let stuck = came.streams_blocked_uni;
        self.looks = if stuck > self.stuck { self.looks + 1 } else { 0 };
        let lent = stock.lend_earned(who, &mut self.lent, swarms)
            || (self.looks >= STUCK_LOOKS && stock.lend_spare(self.network, &mut self.lent));
        if lent {
            connection.set_max_concurrent_uni_streams(self.lent.streams().into());
        }
        if is_told(self.told, self.lent.streams()) {
            (self.told, self.stuck) = (self.lent.streams(), stuck);
            self.looks = 0;
            self.nudges.renew();
        }
        if self.nudges.is_due(came.stream) {
            nudge(&connection);
        }
    }
}

/// A window that is opened by a byte, and closed by it again, has to be acknowledged.
fn nudge(connection: &Connection) {
    connection.set_receive_window((WINDOW_BYTES + 1).into());
    connection.set_receive_window(WINDOW_BYTES.into());
}

/// Where a connection comes from. It may move later; what it was lent stays with where it began.
fn network(connection: &Connection) -> Network {
    let paths = connection.paths();
    let address = paths.iter().find_map(|path| match path.remote_addr() {
        TransportAddr::Ip(address) => Some(address.ip()),
        _ => None,
    });
    Network::of(address)
}

fn drop_closed(links: &mut Links) {
    links.retain(|_, links| {
        links.retain(is_open);
        !links.is_empty()
    });
}

fn is_open(link: &Link) -> bool {
    link.handle.upgrade().is_some_and(|connection| connection.close_reason().is_none())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The door as the endpoint knows it.
pub(crate) struct Hook(pub Arc<Door>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl EndpointHooks for Hook {
    async fn before_connect<'a>(
        &'a self,
        remote: &'a EndpointAddr,
        _alpn: &'a [u8],
    ) -> BeforeConnectOutcome {
        match self.0.is_muted(&remote.id) {
            true => BeforeConnectOutcome::Reject,
            false => BeforeConnectOutcome::Accept,
        }
    }

    async fn after_handshake<'a>(&'a self, connection: &'a Connection) -> AfterHandshakeOutcome {
        let muted = self.0.is_muted(&connection.remote_id());
        if !muted && self.0.enter(connection) {
            return AfterHandshakeOutcome::Accept;
        }
        add_one(&self.0.counters.connections_refused);
        let reason: &[u8] = if muted { b"muted" } else { b"too many" };
        AfterHandshakeOutcome::Reject { error_code: CLOSE_CODE.into(), reason: reason.to_vec() }
    }
}

#[cfg(test)]
mod tests;
