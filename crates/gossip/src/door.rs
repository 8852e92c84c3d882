//! Who is connected, and who may be. Every connection passes here, whoever began it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iroh::endpoint::{
    AfterHandshakeOutcome, BeforeConnectOutcome, Connection, EndpointHooks, WeakConnectionHandle,
};
use iroh::{EndpointAddr, EndpointId};
use kukuri_core::UnixMillis;
use kukuri_store::Clock;

use crate::conduct::{Conduct, Fault, Muted, Passage};
use crate::config::GossipConfig;
use crate::counters::{Counters, add_one};

/// Neighbours whose conduct is remembered.
const REMEMBERED_MAX: usize = 4096;
/// Nodes that are connected at once, and connections of each: both sides may dial at the same moment.
/// The library makes room for a message as soon as it is told how long it will be, so they are few.
const NODES_MAX: usize = 256;
const LINKS_MAX: usize = 3;
const CLOSE_CODE: u32 = 1;

pub(crate) struct Door {
    conduct: Mutex<Conduct<EndpointId>>,
    links: Mutex<HashMap<EndpointId, Vec<WeakConnectionHandle>>>,
    /// Nodes that the operator has named: for them there is always room.
    named: BTreeSet<EndpointId>,
    clock: Clock,
    counters: Arc<Counters>,
}

impl Door {
    pub fn new(config: &GossipConfig, clock: Clock, counters: Arc<Counters>) -> Arc<Self> {
        let conduct =
            Conduct::new(config.rates.each, config.rates.all, config.mute, REMEMBERED_MAX);
        let (links, named) = (Mutex::default(), config.peers.iter().map(|peer| peer.id).collect());
        Arc::new(Self { conduct: Mutex::new(conduct), links, named, clock, counters })
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
        for link in links.iter().filter_map(WeakConnectionHandle::upgrade) {
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

    /// Takes note of a connection, unless there are too many.
    fn enter(&self, connection: &Connection) -> bool {
        let who = connection.remote_id();
        let mut links = lock(&self.links);
        links.retain(|_, links| {
            links.retain(is_open);
            !links.is_empty()
        });
        let strangers = links.keys().filter(|id| !self.named.contains(*id)).count();
        let room = strangers < NODES_MAX || links.contains_key(&who) || self.named.contains(&who);
        let own = links.get(&who).map_or(0, Vec::len);
        let enters = room && own < LINKS_MAX;
        if enters {
            links.entry(who).or_default().push(connection.weak_handle());
        }
        enters
    }
}

fn is_open(link: &WeakConnectionHandle) -> bool {
    link.upgrade().is_some_and(|connection| connection.close_reason().is_none())
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
