//! Connecting to peers. The library dials by itself as well, but once: a peer that cannot be reached then
//! is never dialled again. So a connection is made here first, handed over, and only then used to join.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iroh::address_lookup::memory::MemoryLookup;
use iroh::{Endpoint, EndpointAddr, EndpointId, TransportAddr};
use iroh_gossip::net::Gossip;
use kukuri_core::UnixMillis;
use kukuri_store::Clock;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::PeerHint;
use crate::book::Book;
use crate::counters::{Counters, add_one};
use crate::door::{Door, lock};
use crate::peer::HostPort;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after the first failure; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const DIAL_WAIT_MAX: Duration = Duration::from_secs(10);
const NAME_WAIT_MAX: Duration = Duration::from_secs(3);
const DIALS_MAX: usize = 8;
/// Addresses of one name.
const ADDRESSES_MAX: usize = 8;
/// Tries after which a remembered neighbour is forgotten.
const REMEMBERED_TRIES_MAX: u32 = 8;
/// Connections that swarms may be behind in hearing of.
const REACHED_WAITING_MAX: usize = 256;

pub(crate) struct Dialler {
    endpoint: Endpoint,
    gossip: Gossip,
    lookup: MemoryLookup,
    door: Arc<Door>,
    clock: Clock,
    counters: Arc<Counters>,
    /// Peers that the operator has named.
    named: BTreeMap<EndpointId, PeerHint>,
    book: Mutex<Book>,
    tries: Mutex<BTreeMap<EndpointId, Try>>,
    dialled: Mutex<BTreeSet<EndpointId>>,
    reached: broadcast::Sender<EndpointId>,
    /// Swarms that are alone: remembered neighbours are asked for them.
    alone: AtomicUsize,
    nudge: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Try {
    failed: u32,
    next_at: UnixMillis,
}

/// What a dialler works with.
pub(crate) struct Tools {
    pub endpoint: Endpoint,
    pub gossip: Gossip,
    pub lookup: MemoryLookup,
    pub door: Arc<Door>,
    pub clock: Clock,
    pub counters: Arc<Counters>,
}

impl Dialler {
    pub fn new(tools: Tools, peers: &[PeerHint], book: Book) -> Arc<Self> {
        let own = tools.endpoint.id();
        let mut named: BTreeMap<EndpointId, PeerHint> = BTreeMap::new();
        for peer in peers.iter().filter(|peer| peer.id != own) {
            let known = named.entry(peer.id);
            let hint = known.or_insert_with(|| PeerHint {
                id: peer.id,
                addresses: vec![],
                relays: vec![],
            });
            hint.addresses.extend(peer.addresses.iter().cloned());
            hint.relays.extend(peer.relays.iter().cloned());
        }
        let Tools { endpoint, gossip, lookup, door, clock, counters } = tools;
        Arc::new(Self {
            endpoint,
            gossip,
            lookup,
            door,
            clock,
            counters,
            named,
            book: Mutex::new(book),
            tries: Mutex::default(),
            dialled: Mutex::default(),
            reached: broadcast::Sender::new(REACHED_WAITING_MAX),
            alone: AtomicUsize::new(0),
            nudge: Notify::new(),
        })
    }

    /// Peers from now on, as soon as there is a connection that we have made.
    pub fn reached(&self) -> broadcast::Receiver<EndpointId> {
        self.reached.subscribe()
    }

    /// Those that can be asked to let us into a swarm. Not those whose connection the library was not given yet: it
    /// would make one of its own, and two of them take twice the streams.
    pub fn connected(&self) -> Vec<EndpointId> {
        let mut connected = self.door.connected();
        let dialled = lock(&self.dialled);
        connected.retain(|peer| !dialled.contains(peer));
        connected
    }

    pub fn is_named(&self, peer: &EndpointId) -> bool {
        self.named.contains_key(peer)
    }

    pub fn add_alone(&self) {
        self.alone.fetch_add(1, Ordering::Relaxed);
        self.nudge.notify_one();
    }

    pub fn sub_alone(&self) {
        self.alone.fetch_sub(1, Ordering::Relaxed);
    }

    /// Remembers a neighbour by the addresses at which it was met.
    pub async fn meet(&self, peer: EndpointId) {
        let Some(info) = self.endpoint.remote_info(peer).await else { return };
        let addresses = info.addrs().filter_map(|info| match info.addr() {
            TransportAddr::Ip(address) => Some(*address),
            _ => None,
        });
        let addresses: Vec<SocketAddr> = addresses.collect();
        // The library forgets what it has learnt of addresses after five minutes; this book does not.
        let known = addresses.iter().copied().map(TransportAddr::Ip);
        self.lookup.add_endpoint_info(EndpointAddr::from_parts(peer, known));
        let forgotten = lock(&self.book).meet(peer, addresses, (self.clock)());
        forgotten.iter().for_each(|peer| self.forget(peer));
    }

    fn forget(&self, peer: &EndpointId) {
        if !self.is_named(peer) {
            self.lookup.remove_endpoint_info(*peer);
            lock(&self.tries).remove(peer);
        }
    }

    /// Never ends by itself.
    pub async fn run(self: Arc<Self>) {
        let mut dials = JoinSet::new();
        loop {
            for peer in self.due() {
                if dials.len() < DIALS_MAX && lock(&self.dialled).insert(peer.id) {
                    let dialler = Arc::clone(&self);
                    dials.spawn(async move { dialler.dial(peer).await });
                }
            }
            tokio::select! {
                () = sleep(LOOK_INTERVAL) => self.save(),
                () = self.nudge.notified() => {}
                Some(done) = dials.join_next(), if !dials.is_empty() => {
                    // Whose dial it was that has panicked is not known any more; all may be dialled again.
                    done.unwrap_or_else(|_| lock(&self.dialled).clear());
                }
            }
        }
    }

    pub fn save(&self) {
        if let Err(error) = lock(&self.book).save() {
            tracing::warn!(%error, "the neighbours that were met are not remembered");
        }
    }

    /// Those to dial now: named peers always, remembered ones while a swarm is alone.
    fn due(&self) -> Vec<PeerHint> {
        let now = (self.clock)();
        let mut peers: Vec<PeerHint> = self.named.values().cloned().collect();
        if self.alone.load(Ordering::Relaxed) > 0 {
            let book = lock(&self.book);
            let remembered = book.all().filter(|(id, _)| !self.is_named(id));
            peers.extend(remembered.map(|(id, met)| hint(*id, &met.addresses)));
        }
        let (tries, dialled) = (lock(&self.tries), lock(&self.dialled));
        let waits = |id: &EndpointId| {
            tries
                .get(id)
                .is_some_and(|known| known.next_at > now && now.until(known.next_at) <= PAUSE_MAX)
        };
        peers.retain(|peer| {
            let id = &peer.id;
            !waits(id)
                && !dialled.contains(id)
                && !self.door.is_connected(id)
                && !self.door.is_muted(id)
        });
        peers
    }

    async fn dial(&self, peer: PeerHint) {
        add_one(&self.counters.dials);
        let id = peer.id;
        let done = timeout(DIAL_WAIT_MAX, self.connect(peer)).await;
        lock(&self.dialled).remove(&id);
        let error = match done {
            Ok(Ok(())) => {
                lock(&self.tries).remove(&id);
                tracing::info!(peer = %id.fmt_short(), "connected to a peer");
                // Without swarms there is nobody to tell.
                let _ = self.reached.send(id);
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {DIAL_WAIT_MAX:?}"),
        };
        add_one(&self.counters.dials_failed);
        self.fail(id, &error);
    }

    fn fail(&self, id: EndpointId, error: &str) {
        let now = (self.clock)();
        let mut tries = lock(&self.tries);
        let known = tries.entry(id).or_insert(Try { failed: 0, next_at: now });
        let pause = PAUSE_MIN.saturating_mul(1 << known.failed.min(16)).min(PAUSE_MAX);
        *known = Try { failed: known.failed + 1, next_at: now.saturating_add(pause) };
        let (failed, seconds) = (known.failed, pause.as_secs());
        tracing::debug!(peer = %id.fmt_short(), %error, failed, seconds, "a peer cannot be reached now");
        if failed == 1 && self.is_named(&id) {
            tracing::warn!(peer = %id.fmt_short(), %error, "a peer cannot be reached; it is tried again");
        }
        drop(tries);
        if failed >= REMEMBERED_TRIES_MAX && !self.is_named(&id) {
            lock(&self.book).forget(&id);
        }
        if !lock(&self.book).knows(&id) {
            self.forget(&id);
        }
    }

    async fn connect(&self, peer: PeerHint) -> Result<(), String> {
        let mut address = EndpointAddr::new(peer.id);
        for relay in peer.relays {
            address = address.with_relay_url(relay);
        }
        for found in resolve(&peer.addresses).await {
            address = address.with_ip_addr(found);
        }
        self.lookup.add_endpoint_info(address.clone());
        let connection = self.endpoint.connect(address, iroh_gossip::ALPN).await;
        let connection = connection.map_err(|error| format!("{error:#}"))?;
        self.gossip.handle_connection(connection).await.map_err(|error| format!("{error:#}"))
    }
}

fn hint(id: EndpointId, addresses: &[SocketAddr]) -> PeerHint {
    let addresses = addresses.iter().copied().map(HostPort::from).collect();
    PeerHint { id, addresses, relays: Vec::new() }
}

/// Addresses as they are, and names as the system knows them, IPv4 first.
async fn resolve(addresses: &[HostPort]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for HostPort { host, port } in addresses {
        let names = tokio::net::lookup_host((host.as_str(), *port));
        // A name that is not known now may be known at the next try.
        if let Ok(Ok(named)) = timeout(NAME_WAIT_MAX, names).await {
            found.extend(named.take(ADDRESSES_MAX));
        }
    }
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    found
}
