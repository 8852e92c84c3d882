//! All of it: the endpoint, the swarms of the carried topics, and what goes in and out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use iroh::protocol::Router;
use iroh::{Endpoint, EndpointId};
use iroh_gossip::net::Gossip as Library;
use kukuri_core::admission::Topicless;
use kukuri_core::backfill::Why;
use kukuri_core::{Cursor, Limits, TopicId, UnixMillis};
use kukuri_event::{Body, EventId};
use kukuri_lane::Lane;
use kukuri_store::{Clock, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::book::Book;
use crate::config::GossipConfig;
use crate::counters::{Counters, Sample};
use crate::dialler::{Dialler, Tools};
use crate::door::Door;
use crate::endpoint::{BindError, Bound, bind};
use crate::outlet::{follow_ephemerals, follow_feed};
use crate::swarm::{Live, Swarm};
use crate::wanted::changes;
use crate::watchdog::watch;
use crate::{GossipStats, GossipStatus, NeighbourStatus, NodeKey, PeerHint};

/// How soon a topic that is carried, or no longer, is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
/// How often strangers are looked at that may need more streams: until then their swarms wait.
const LEND_INTERVAL: Duration = Duration::from_millis(50);
/// How often connections that lead nowhere are made anew, for all topics together.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);
/// Events that may wait to be sent to one swarm.
const OUT_WAITING_MAX: usize = 1024;
/// How long leaving may take: neighbours are told.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Who is told of what was missed, or may have been.
pub trait Listener: Send + Sync {
    /// `from` is the relay of a peer that the operator has named. Must not wait.
    fn missed(&self, topic: &TopicId, why: Why, from: Option<&str>);
}

/// Events that were seen lately, so that nothing is verified or read twice.
pub trait Memory: Send + Sync {
    fn recall(&self, id: &EventId) -> Option<Arc<Body>>;
    fn remember(&self, body: &Arc<Body>);
}

/// What gossip stands on.
pub struct Ground {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub clock: Clock,
    /// Those of every door, as `topicless` is.
    pub limits: Limits,
    pub topicless: Topicless,
    pub memory: Arc<dyn Memory>,
    pub listener: Arc<dyn Listener>,
}

/// Why gossip does not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot read the topics and the feed")]
    Store(#[from] StoreError),
}

type Carried = Arc<BTreeSet<TopicId>>;
type Swarms = BTreeMap<TopicId, (mpsc::Sender<Bytes>, Arc<Live>)>;

/// What all tasks share.
pub(crate) struct Shared {
    pub ground: Ground,
    /// Time that passes whatever a clock is set to; everything but admission goes by it.
    pub time: Clock,
    pub config: GossipConfig,
    pub endpoint: Endpoint,
    pub gossip: Library,
    pub door: Arc<Door>,
    pub dialler: Arc<Dialler>,
    pub counters: Arc<Counters>,
    pub carried: watch::Receiver<Carried>,
    /// Cancelled when nothing works any more.
    pub broken: CancellationToken,
    renewals: Sample,
    /// How many rows of the feed the slowest swarm has not been told of.
    pub out_lag_rows: AtomicU64,
    swarms: RwLock<Swarms>,
    left_out: AtomicUsize,
}

impl Shared {
    pub fn missed(&self, topic: &TopicId, why: Why) {
        self.ground.listener.missed(topic, why, None);
    }

    /// The ways out, by topic.
    pub fn outs(&self) -> Outs<'_> {
        Outs(self.swarms.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A topic whose swarm has neighbours.
    pub fn joined_topic(&self) -> Option<TopicId> {
        let swarms = self.outs();
        let joined = swarms.0.iter().find(|(_, (_, live))| live.is_joined());
        joined.map(|(topic, _)| topic.clone())
    }

    /// Closes connections with peers that are in no swarm with us; the dialler makes them anew.
    pub fn renew(&self) {
        // Many topics may be alone at once, and what is made anew needs time to lead anywhere.
        if !self.renewals.is_due((self.time)()) {
            return;
        }
        let met: BTreeSet<EndpointId> =
            self.outs().0.values().flat_map(|(_, live)| live.neighbours()).collect();
        for peer in self.door.connected().iter().filter(|peer| !met.contains(*peer)) {
            tracing::info!(peer = %peer.fmt_short(), "a peer lets us into no swarm and is dialled anew");
            self.door.cut(peer, b"renewed");
        }
    }

    fn enter(&self, topic: &TopicId, out: mpsc::Sender<Bytes>, live: Arc<Live>) {
        let mut swarms = self.swarms.write().unwrap_or_else(PoisonError::into_inner);
        swarms.insert(topic.clone(), (out, live));
    }

    /// Its task ends when nobody can give it anything to send.
    fn leave(&self, topic: &TopicId) {
        self.swarms.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }
}

pub(crate) struct Outs<'a>(RwLockReadGuard<'a, Swarms>);

impl Outs<'_> {
    pub fn get(&self, topic: &TopicId) -> Option<&mpsc::Sender<Bytes>> {
        self.0.get(topic).map(|(out, _)| out)
    }
}

/// A node among others. Dropping it ends its tasks; [`Gossip::close`] says goodbye as well.
pub struct Gossip {
    shared: Arc<Shared>,
    router: Router,
    tasks: JoinSet<()>,
}

impl Gossip {
    /// Listens, dials and joins from now on. What is in the feed already is not sent.
    pub async fn start(
        config: GossipConfig,
        key: &NodeKey,
        ground: Ground,
    ) -> Result<Self, StartError> {
        let bounds = ground.store.bounds().await?;
        let (sender, carried) = watch::channel(read(&*ground.store).await?);
        let counters: Arc<Counters> = Arc::default();
        let time = steady((ground.clock)());
        let door = Door::new(&config, Arc::clone(&time), Arc::clone(&counters));
        let Bound { endpoint, gossip, lookup, router } = bind(&config, key, &door).await?;
        let tools = Tools {
            endpoint: endpoint.clone(),
            gossip: gossip.clone(),
            lookup,
            door: Arc::clone(&door),
            clock: Arc::clone(&time),
            counters: Arc::clone(&counters),
        };
        let dialler = Dialler::new(tools, &config.peers, Book::open(&config.directory));
        let ephemerals = ground.lane.ephemerals();
        let shared = Arc::new(Shared {
            ground,
            time,
            config,
            endpoint,
            gossip,
            door,
            dialler: Arc::clone(&dialler),
            counters,
            carried,
            broken: CancellationToken::new(),
            renewals: Sample::every(RENEW_INTERVAL),
            out_lag_rows: AtomicU64::new(0),
            swarms: RwLock::default(),
            left_out: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        let head = Cursor { epoch: bounds.epoch, seq: bounds.head };
        supervised(&mut tasks, &shared, dialler.run());
        supervised(&mut tasks, &shared, follow_feed(Arc::clone(&shared), head));
        supervised(&mut tasks, &shared, follow_ephemerals(Arc::clone(&shared), ephemerals));
        supervised(&mut tasks, &shared, watch(Arc::clone(&shared)));
        supervised(&mut tasks, &shared, lend_streams(Arc::clone(&shared)));
        supervised(&mut tasks, &shared, keep_swarms(Arc::clone(&shared), sender));
        Ok(Self { shared, router, tasks })
    }

    /// Until nothing works any more, which is never, unless there is a fault in here or in the library.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.shared.broken.cancelled() => {}
            _ = self.shared.endpoint.closed() => {}
        }
    }

    /// Says goodbye, so that neighbours need not find out.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
        self.shared.dialler.save();
        let _ = timeout(CLOSE_WAIT_MAX, self.router.shutdown()).await;
    }

    pub fn stats(&self) -> GossipStats {
        self.shared.counters.stats()
    }

    /// How others can name this node.
    pub fn hints(&self) -> Vec<PeerHint> {
        let (id, sockets) = (self.shared.endpoint.id(), self.shared.endpoint.addr());
        let bound = self.shared.endpoint.bound_sockets();
        let addresses = sockets.ip_addrs().copied().chain(bound);
        crate::peer::hints(id, addresses, &self.shared.config.relays)
    }

    pub fn status(&self) -> GossipStatus {
        let shared = &self.shared;
        let swarms = shared.outs();
        let connected = shared.door.connected();
        let neighbour = |id: EndpointId, until| NeighbourStatus { id: id.to_string(), until };
        GossipStatus {
            id: shared.endpoint.id().to_string(),
            peers: self.hints().iter().map(ToString::to_string).collect(),
            connected: connected.into_iter().map(|id| neighbour(id, None)).collect(),
            muted: shared
                .door
                .muted()
                .into_iter()
                .map(|(id, until)| neighbour(id, Some(until)))
                .collect(),
            topics: swarms.0.values().map(|(_, live)| live.status()).collect(),
            left_out: shared.left_out.load(Ordering::Relaxed),
            out_lag_rows: shared.out_lag_rows.load(Ordering::Relaxed),
            stats: self.stats(),
        }
    }
}

/// The time from a moment on, as it passes.
fn steady(from: UnixMillis) -> Clock {
    let start = Instant::now();
    Arc::new(move || from.saturating_add(start.elapsed()))
}

/// Runs a task without which nothing works.
fn supervised(
    tasks: &mut JoinSet<()>,
    shared: &Shared,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let broken = shared.broken.clone().drop_guard();
    tasks.spawn(async move {
        let _broken = broken;
        task.await;
    });
}

async fn read(store: &dyn Store) -> Result<Carried, StoreError> {
    let topics = store.topics().await?.into_iter().filter(|(topic, _)| topic.enabled);
    Ok(Arc::new(topics.map(|(topic, _)| topic.topic_id).collect()))
}

/// Never ends by itself.
async fn lend_streams(shared: Arc<Shared>) {
    let mut ticks = interval(LEND_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !shared.door.has_strangers() {
            continue;
        }
        let mut swarms: HashMap<EndpointId, usize> = HashMap::new();
        let topics = {
            let outs = shared.outs();
            let neighbours = outs.0.values().flat_map(|(_, live)| live.neighbours());
            neighbours.for_each(|peer| *swarms.entry(peer).or_default() += 1);
            outs.0.len()
        };
        shared.door.lend(&swarms, topics);
    }
}

/// Is in the swarms of the carried topics, one task each; one that has ended by a panic is begun anew.
async fn keep_swarms(shared: Arc<Shared>, carried: watch::Sender<Carried>) {
    let mut swarms: JoinSet<()> = JoinSet::new();
    let mut tasks: HashMap<tokio::task::Id, TopicId> = HashMap::new();
    let mut ticks = interval(FOLLOW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Some(ended) = swarms.join_next_with_id(), if !swarms.is_empty() => {
                let (id, panicked) = match ended {
                    Ok((id, ())) => (id, false),
                    Err(error) => (error.id(), error.is_panic()),
                };
                if let Some(topic) = tasks.remove(&id)
                    && panicked
                {
                    tracing::error!(%topic, "the swarm of a topic ended by a panic; it is begun anew");
                    shared.leave(&topic);
                }
                continue;
            }
        }
        // While the store cannot be read, what was known holds.
        if let Ok(now) = read(&*shared.ground.store).await {
            carried.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
        let wanted = Arc::clone(&carried.borrow());
        let joined: BTreeSet<TopicId> = shared.outs().0.keys().cloned().collect();
        let changes = changes(&joined, &wanted, shared.config.topics_max);
        if shared.left_out.swap(changes.left_out, Ordering::Relaxed) < changes.left_out {
            tracing::warn!(
                topics = changes.left_out,
                "topics have no swarm: limits.node_topics_max"
            );
        }
        changes.leave.iter().for_each(|topic| shared.leave(topic));
        for topic in changes.join {
            let (out, waiting) = mpsc::channel(OUT_WAITING_MAX);
            let live = Live::new(topic.clone(), (shared.time)());
            let swarm = Swarm::new(Arc::clone(&shared), Arc::clone(&live), waiting);
            shared.enter(&topic, out, live);
            tasks.insert(swarms.spawn(swarm.run()).id(), topic);
        }
    }
}
