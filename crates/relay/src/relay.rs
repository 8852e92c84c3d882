//! What all connections share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use kukuri_core::admission::{Rate, Topicless};
use kukuri_core::rate::Meter;
use kukuri_core::{Outcome, UnixMillis};
use kukuri_event::Pubkey;
use kukuri_fanout::Fanout;
use kukuri_lane::{Answer, Lane};
use kukuri_store::{Clock, Store, StoreError};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::{Network, Sender};
use crate::census::{Census, Presence, Refused, lock};
use crate::gate::Gate;
use crate::limits::RelayLimits;
use crate::neg::NegRoom;
use crate::nip11::About;
use crate::policy::{AuthPolicy, AuthRule};
use crate::search::Search;
use crate::session::{Charge, Surroundings};
use crate::topics::{self, Carried};

/// How a relay behaves.
pub struct RelayConfig {
    pub limits: RelayLimits,
    pub topicless: Topicless,
    /// The addresses by which clients know this relay; proofs of keys are bound to them.
    pub urls: Vec<String>,
    pub trusted_proxies: Vec<Network>,
    pub auth: AuthPolicy,
    pub about: About,
}

/// Numbers for people who watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    pub connections: usize,
    pub connections_refused: u64,
    pub messages: u64,
    pub events_submitted: u64,
    pub requests: u64,
    /// Messages of reconciliations, and how many of these are open now.
    pub neg_messages: u64,
    pub neg_sessions: usize,
    pub subscriptions_too_slow: u64,
    /// The most that ever waited to be sent on a connection that has ended.
    pub outbound_bytes_peak: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub connections_refused: AtomicU64,
    pub messages: AtomicU64,
    pub events_submitted: AtomicU64,
    pub requests: AtomicU64,
    pub neg_messages: AtomicU64,
    pub subscriptions_too_slow: AtomicU64,
    pub outbound_bytes_peak: AtomicU64,
}

pub(crate) fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The door, with all that is behind it. Dropping it ends its own tasks.
pub struct Relay {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) fanout: Arc<Fanout>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) search: OnceLock<Arc<dyn Search>>,
    pub(crate) config: RelayConfig,
    pub(crate) clock: Clock,
    pub(crate) carried: watch::Receiver<Carried>,
    pub(crate) rule: watch::Sender<AuthRule>,
    pub(crate) counters: Counters,
    pub(crate) neg: NegRoom,
    /// Ends every connection.
    pub(crate) closing: CancellationToken,
    /// What connections and listeners run.
    pub(crate) tasks: TaskTracker,
    rates: Rates,
    present: Census,
    knocking: Census,
    followers: [AbortHandle; 2],
    /// Cancelled when one of them has ended.
    stopped: CancellationToken,
}

struct Rates {
    events: Mutex<Meter<Sender>>,
    events_of: Mutex<Meter<Pubkey>>,
    requests: Mutex<Meter<Sender>>,
    connects: Mutex<Meter<Sender>>,
}

impl Relay {
    /// Starts what follows topics and passes ephemeral events on, on the current runtime.
    pub async fn start(
        store: Arc<dyn Store>,
        lane: Arc<Lane>,
        fanout: Arc<Fanout>,
        gate: Arc<dyn Gate>,
        clock: Clock,
        config: RelayConfig,
    ) -> Result<Arc<Self>, StoreError> {
        let (sender, carried) = watch::channel(topics::read(&*store).await?);
        let stopped = CancellationToken::new();
        let topics = topics::follow(Arc::clone(&store), sender);
        let ephemerals = pass_ephemerals(Arc::clone(&lane), Arc::clone(&fanout), carried.clone());
        let followers = [supervised(topics, &stopped), supervised(ephemerals, &stopped)];
        let rule = AuthRule { policy: config.auth, since: clock() };
        Ok(Arc::new(Self {
            rule: watch::Sender::new(rule),
            rates: Rates::new(&config.limits),
            neg: NegRoom::new(&config.limits),
            store,
            lane,
            fanout,
            gate,
            search: OnceLock::new(),
            config,
            clock,
            carried,
            counters: Counters::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            present: Census::default(),
            knocking: Census::default(),
            followers,
            stopped,
        }))
    }

    /// From now on words can be searched for. Without it, such questions are refused.
    pub fn offer_search(&self, search: Arc<dyn Search>) {
        // Whoever comes second changes nothing: there is one index.
        let _ = self.search.set(search);
    }

    pub fn stats(&self) -> RelayStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RelayStats {
            connections: self.present.all(),
            connections_refused: read(&self.counters.connections_refused),
            messages: read(&self.counters.messages),
            events_submitted: read(&self.counters.events_submitted),
            requests: read(&self.counters.requests),
            neg_messages: read(&self.counters.neg_messages),
            neg_sessions: self.neg.sessions(),
            subscriptions_too_slow: read(&self.counters.subscriptions_too_slow),
            outbound_bytes_peak: read(&self.counters.outbound_bytes_peak),
        }
    }

    /// Waits until topics or ephemeral events are followed no longer, which is never, unless there is a
    /// fault in here.
    pub async fn ended(&self) {
        self.stopped.cancelled().await;
    }

    /// Takes no more connections, tells those that are open, and waits until they have ended.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// Changes who has to prove what, for open connections too.
    pub fn set_auth(&self, policy: AuthPolicy) {
        self.rule.send_if_modified(|rule| {
            let changed = rule.policy != policy;
            if changed {
                *rule = AuthRule { policy, since: self.now() };
            }
            changed
        });
    }

    pub(crate) fn auth(&self) -> AuthRule {
        *self.rule.borrow()
    }

    /// What an author was charged for an event, now that it has its answer: accepted or passed on, it
    /// stands, and what came to nothing costs nothing.
    pub(crate) fn settle(&self, author: &Pubkey, answer: &Answer) {
        if !matches!(answer, Ok(Outcome::Accepted | Outcome::Ephemeral)) {
            lock(&self.rates.events_of).give_back(author);
        }
    }

    /// Whether it takes no more connections.
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Calls `work` with what messages of a sender are judged by now.
    pub(crate) fn around<T>(&self, sender: Sender, work: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let (now, topics) = (self.now(), Arc::clone(&self.carried.borrow()));
        work(&Surroundings {
            now,
            limits: &self.config.limits,
            topics: &topics.ids,
            topicless: self.config.topicless,
            urls: &self.config.urls,
            auth: self.auth(),
            gate: &*self.gate,
            charge: &|charge| self.rates.charge(sender, charge, now),
            seen: &|id| self.fanout.recall(id),
        })
    }

    /// Whether a sender may ask what this relay is.
    pub(crate) fn may_look(&self, sender: Sender) -> Rate {
        self.rates.charge(sender, Charge::Request, self.now())
    }

    /// A place for a connection, unless its sender or the node has too many.
    pub(crate) fn admit(&self, sender: Sender) -> Result<Presence, Refused> {
        let limits = &self.config.limits;
        if take(&self.rates.connects, sender, self.now()) == Rate::Exceeded {
            return Err(Refused::TooOften);
        }
        self.present.enter(sender, limits.connections_per_ip_max, limits.connections_max)
    }

    /// A place for a peer that has not said yet what it wants. A proxy speaks for many.
    pub(crate) fn knock(&self, peer: IpAddr) -> Result<Presence, Refused> {
        let limits = &self.config.limits;
        let is_proxy = self.config.trusted_proxies.iter().any(|proxy| proxy.contains(peer));
        let of_one = if is_proxy { limits.handshakes_max } else { limits.connections_per_ip_max };
        self.knocking.enter(Sender::from(peer), of_one, limits.handshakes_max)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.followers.iter().for_each(AbortHandle::abort);
    }
}

impl Rates {
    fn new(limits: &RelayLimits) -> Self {
        let max = limits.senders_remembered_max;
        Self {
            events: Mutex::new(Meter::new(limits.events_per_ip, max)),
            events_of: Mutex::new(Meter::new(limits.events_per_pubkey, max)),
            requests: Mutex::new(Meter::new(limits.requests_per_ip, max)),
            connects: Mutex::new(Meter::new(limits.connects_per_ip, max)),
        }
    }

    fn charge(&self, sender: Sender, charge: Charge, now: UnixMillis) -> Rate {
        match charge {
            Charge::Event => take(&self.events, sender, now),
            Charge::EventOf(pubkey) => take(&self.events_of, pubkey, now),
            Charge::Request => take(&self.requests, sender, now),
        }
    }
}

/// Runs a follower and tells when it has ended, however it did.
fn supervised(
    follower: impl Future<Output = ()> + Send + 'static,
    stopped: &CancellationToken,
) -> AbortHandle {
    let stopped = stopped.clone().drop_guard();
    let follower = async move {
        let _stopped = stopped;
        follower.await;
    };
    tokio::spawn(follower).abort_handle()
}

fn take<K: std::hash::Hash + Eq>(meter: &Mutex<Meter<K>>, key: K, now: UnixMillis) -> Rate {
    lock(meter).take(key, now)
}

/// Hands ephemeral events to who listens now, in the topics that are carried now.
async fn pass_ephemerals(lane: Arc<Lane>, fanout: Arc<Fanout>, carried: watch::Receiver<Carried>) {
    let mut ephemerals = lane.ephemerals();
    // Held no longer: this ends when the lane does, which is when its owners let go of it.
    drop(lane);
    while let Some(event) = ephemerals.next().await {
        let carried = Arc::clone(&carried.borrow());
        let topics = event.topics().iter().filter(|topic| carried.ids.contains(*topic)).cloned();
        fanout.pass(event.body(), &topics.collect::<Vec<_>>()).await;
    }
}
