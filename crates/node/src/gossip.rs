//! Gossip of a running node: one instance is in the swarms for all, under a lease in the store. What
//! fails is begun anew; clients are served meanwhile.

mod command;
mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kukuri_core::backfill::Why;
use kukuri_core::{Holder, Lease, Task, TopicId};
use kukuri_event::{Body, EventId};
use kukuri_fanout::Fanout;
use kukuri_gossip::{Discovery, Gossip, GossipConfig, Ground, Listener, Memory, NodeKey, Rates};
use kukuri_lane::Lane;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backfill::{Gap, Gaps};
use crate::config::{Config, DiscoveryMode, GossipMode};
use crate::open::Opened;
use crate::tenure::{Tenure, release};
pub use command::command;
pub use report::{Gossiping, State};

/// How often the lease is looked after and the state is told.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After something has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(3);
/// How long the start of the node waits to tell where it gossips.
const TOLD_WAIT_MAX: Duration = Duration::from_secs(2);

/// Where the key, the neighbours that were met and the state are kept, whatever holds the events.
pub fn directory(data: &Path) -> PathBuf {
    data.join("gossip")
}

/// What the settings say, or `None` if the node is to meet nobody.
pub fn settings(config: &Config) -> Option<GossipConfig> {
    let section = &config.gossip;
    let meets = section.listen.is_some() || !section.peers.is_empty();
    if section.mode == GossipMode::Off || !meets {
        return None;
    }
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let checked = "settings are checked";
    Some(GossipConfig {
        directory: directory(&config.data),
        listen: section.listen.unwrap_or(any),
        peers: section.peers.iter().map(|peer| peer.parse().expect(checked)).collect(),
        relays: section.relays.iter().map(|url| url.parse().expect(checked)).collect(),
        discovery: match section.discovery {
            DiscoveryMode::Off => Discovery::Off,
            DiscoveryMode::Dns => Discovery::Dns,
        },
        rates: Rates { each: section.neighbour, all: section.all },
        mute: Duration::from_secs(section.mute_seconds),
        topics_max: config.limits.node_topics_max,
        // Others ask over ws:// alone, and only at an address that the operator has given.
        announce: config.relay.urls.iter().find(|url| url.starts_with("ws://")).cloned(),
    })
}

/// Is in the swarms while it is this instance's turn.
pub struct Gossiper {
    settings: Option<(GossipConfig, NodeKey)>,
    parts: Parts,
    tenure: Tenure,
    state: watch::Sender<Gossiping>,
}

/// What each life of gossip is made from.
struct Parts {
    store: Arc<dyn kukuri_store::Store>,
    lane: Arc<Lane>,
    clock: kukuri_store::Clock,
    limits: kukuri_core::Limits,
    topicless: kukuri_core::admission::Topicless,
    fanout: Arc<Fanout>,
    gaps: Gaps,
}

impl Gossiper {
    pub fn new(
        opened: &Opened,
        lane: &Arc<Lane>,
        fanout: &Arc<Fanout>,
        gaps: Gaps,
        config: &Config,
    ) -> anyhow::Result<Self> {
        let settings = settings(config);
        let settings = settings.map(|settings| {
            let key = NodeKey::in_directory(&settings.directory);
            key.map(|key| (settings, key))
        });
        let settings = settings.transpose().context("this node has no key to gossip with")?;
        let parts = Parts {
            store: Arc::clone(&opened.store),
            lane: Arc::clone(lane),
            clock: Arc::clone(&opened.clock),
            limits: config.limits.events.clone(),
            topicless: config.relay.topicless.into(),
            fanout: Arc::clone(fanout),
            gaps,
        };
        let state = if settings.is_some() { State::Starting } else { State::Off };
        let state = watch::Sender::new(Gossiping { state, status: None });
        Ok(Self { settings, parts, tenure: Tenure::brief(Task::Gossip), state })
    }

    pub fn holder(&self) -> Holder {
        self.tenure.holder()
    }

    pub fn state(&self) -> watch::Receiver<Gossiping> {
        self.state.subscribe()
    }

    /// Lets another instance go on at once.
    pub async fn release(lane: &Lane, holder: Holder) {
        release(lane, Task::Gossip, holder).await;
    }

    /// Until it is to stop: what fails is tried again.
    pub async fn run(mut self, stop: CancellationToken) {
        let Some((config, key)) = self.settings.take() else {
            return stop.cancelled().await;
        };
        loop {
            let lease = tokio::select! {
                lease = self.wait_for_turn() => lease,
                () = stop.cancelled() => return,
            };
            let started = tokio::select! {
                started = Gossip::start(config.clone(), &key, self.parts.ground()) => started,
                () = stop.cancelled() => return,
            };
            match started {
                Ok(gossip) => {
                    let why = tokio::select! {
                        why = self.attend(&gossip, &config.directory, lease) => why,
                        () = stop.cancelled() => {
                            gossip.close().await;
                            return report::remove(&config.directory);
                        }
                    };
                    gossip.close().await;
                    tracing::warn!(why, "the node has left all swarms");
                    self.tell(&config.directory, State::Standby, None);
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::error!(%error, "gossip does not begin; it is tried again");
                    self.tell(&config.directory, State::Failed(error), None);
                    // Another instance may have more luck.
                    self.tenure.give_up(&self.parts.lane).await;
                    tokio::select! {
                        () = sleep(RETRY_PAUSE) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Until no other instance gossips.
    async fn wait_for_turn(&mut self) -> Lease {
        loop {
            match self.tenure.hold(&self.parts.lane, &self.parts.clock).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => self.state.send_modify(|told| told.state = State::Standby),
                Err(error) => tracing::debug!(%error, "gossip waits for the store"),
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Looks after the lease and tells the state, until one of them ends; says why.
    async fn attend(&mut self, gossip: &Gossip, directory: &Path, lease: Lease) -> &'static str {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until = lease.until;
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = gossip.ended() => return "gossip has ended",
            }
            self.tell(directory, State::Running, Some(gossip));
            match self.tenure.hold(&self.parts.lane, &self.parts.clock).await {
                Ok(Some(lease)) => until = lease.until,
                Ok(None) => return "it is another instance's turn",
                // Nobody else can have it before it has run out.
                Err(_) if (self.parts.clock)() < until => {}
                Err(_) => return "the store does not answer",
            }
        }
    }

    fn tell(&self, directory: &Path, state: State, gossip: Option<&Gossip>) {
        let told = Gossiping { state, status: gossip.map(Gossip::status) };
        if let Err(error) = report::write(directory, &told) {
            tracing::debug!(%error, "`gossip status` cannot be told how gossip is doing");
        }
        self.state.send_replace(told);
    }
}

/// What to say of it when the node starts.
pub async fn introduction(mut state: watch::Receiver<Gossiping>) -> String {
    // Who takes longer is told about as it is by then.
    let _ = timeout(TOLD_WAIT_MAX, state.wait_for(|told| told.state != State::Starting)).await;
    let told = state.borrow().clone();
    match (&told.state, &told.status) {
        (State::Off, _) => {
            "with nobody: set gossip.listen or gossip.peers to meet other nodes".to_owned()
        }
        (State::Running, Some(status)) => {
            let own = status.peers.first().unwrap_or(&status.id);
            format!("{own}: kukuri-node gossip status")
        }
        (state, _) => format!("{state}"),
    }
}

impl Parts {
    fn ground(&self) -> Ground {
        Ground {
            store: Arc::clone(&self.store),
            lane: Arc::clone(&self.lane),
            clock: Arc::clone(&self.clock),
            limits: self.limits.clone(),
            topicless: self.topicless,
            memory: Arc::new(SeenLately(Arc::clone(&self.fanout))),
            listener: Arc::new(GapTeller(self.gaps.clone())),
        }
    }
}

/// What live delivery keeps anyway.
struct SeenLately(Arc<Fanout>);

impl Memory for SeenLately {
    fn recall(&self, id: &EventId) -> Option<Arc<Body>> {
        self.0.recall(id)
    }

    fn remember(&self, body: &Arc<Body>) {
        self.0.remember(body);
    }
}

/// What swarms have missed is asked for.
struct GapTeller(Gaps);

impl Listener for GapTeller {
    fn missed(&self, topic: &TopicId, why: Why, from: Option<&str>) {
        self.0.tell(Gap { topic: topic.clone(), why, from: from.map(str::to_owned) });
    }
}
