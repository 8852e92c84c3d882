//! One topic's swarm: a task that listens, speaks, and keeps itself in it. Nothing that happens to it
//! touches another one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use iroh::EndpointId;
use iroh_gossip::api::{ApiError, Event as Heard, GossipReceiver, GossipSender};
use iroh_gossip::proto::TopicId as SwarmId;
use kukuri_core::{TopicId, UnixMillis, gossip_topic};
use kukuri_lane::Ticket;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::counters::{Sample, add_one};
use crate::dialler::Dialler;
use crate::door::lock;
use crate::gossip::Shared;
use crate::hello::Hello;
use crate::inlet::Inlet;
use crate::pace::Pace;
use crate::status::TopicStatus;
use crate::supervision::{Act, Event, Phase, Supervision};

/// Events of this topic that wait for the lane's answer; no more are read meanwhile.
const IN_FLIGHT_MAX: usize = 512;
/// How long the library may take to hear us.
const SEND_WAIT_MAX: Duration = Duration::from_secs(5);
/// One line in a while about messages that nobody can read.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Until something is due when nothing is.
const IDLE: Duration = Duration::from_secs(60);

/// What others can see of a swarm.
pub(crate) struct Live {
    topic: TopicId,
    seen: Mutex<Seen>,
    received: AtomicU64,
    broadcasts: AtomicU64,
}

struct Seen {
    phase: Phase<EndpointId>,
    since: UnixMillis,
    tries: u32,
}

impl Live {
    pub fn new(topic: TopicId, now: UnixMillis) -> Arc<Self> {
        let seen = Seen { phase: Phase::Waiting { until: now }, since: now, tries: 0 };
        let seen = Mutex::new(seen);
        Arc::new(Self { topic, seen, received: AtomicU64::new(0), broadcasts: AtomicU64::new(0) })
    }

    pub fn is_joined(&self) -> bool {
        matches!(lock(&self.seen).phase, Phase::Joined { .. })
    }

    pub fn neighbours(&self) -> BTreeSet<EndpointId> {
        match &lock(&self.seen).phase {
            Phase::Joined { neighbours } => neighbours.clone(),
            Phase::Waiting { .. } | Phase::Alone { .. } => BTreeSet::new(),
        }
    }

    pub fn status(&self) -> TopicStatus {
        let seen = lock(&self.seen);
        let (state, neighbours) = match &seen.phase {
            Phase::Waiting { .. } => ("waiting", Vec::new()),
            Phase::Alone { .. } => ("alone", Vec::new()),
            Phase::Joined { neighbours } => {
                ("joined", neighbours.iter().map(ToString::to_string).collect())
            }
        };
        TopicStatus {
            topic_id: self.topic.to_string(),
            state: state.to_owned(),
            since: seen.since,
            tries: seen.tries,
            neighbours,
            received: self.received.load(Ordering::Relaxed),
            broadcasts: self.broadcasts.load(Ordering::Relaxed),
        }
    }
}

/// Says that a swarm is alone for as long as it lives.
struct Alone(Arc<Dialler>);

impl Alone {
    fn new(dialler: &Arc<Dialler>) -> Self {
        dialler.add_alone();
        Self(Arc::clone(dialler))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.sub_alone();
    }
}

pub(crate) struct Swarm {
    inlet: Inlet,
    live: Arc<Live>,
    supervision: Supervision<EndpointId>,
    link: Option<(GossipSender, GossipReceiver)>,
    out: mpsc::Receiver<Bytes>,
    pace: Pace,
    reached: broadcast::Receiver<EndpointId>,
    answers: FuturesUnordered<Ticket>,
    alone: Option<Alone>,
}

impl Swarm {
    pub fn new(shared: Arc<Shared>, live: Arc<Live>, out: mpsc::Receiver<Bytes>) -> Self {
        let now = (shared.time)();
        let reached = shared.dialler.reached();
        let topic = live.topic.clone();
        Self {
            inlet: Inlet { topic, shared, unreadable: Sample::every(LINE_INTERVAL) },
            live,
            supervision: Supervision::new(now),
            link: None,
            out,
            pace: Pace::new(Instant::now()),
            reached,
            answers: FuturesUnordered::new(),
            alone: None,
        }
    }

    fn shared(&self) -> &Shared {
        &self.inlet.shared
    }

    fn now(&self) -> UnixMillis {
        (self.shared().time)()
    }

    /// Until nobody wants it any more.
    pub async fn run(mut self) {
        self.react(Event::Tick).await;
        loop {
            let due = self.supervision.wakes_at().map_or(IDLE, |at| self.now().until(at).min(IDLE));
            let room = self.answers.len() < IN_FLIGHT_MAX;
            let pause = self.pace.pauses_until(Instant::now());
            tokio::select! {
                heard = hear(&mut self.link), if room && self.link.is_some() => self.heard(heard).await,
                out = self.out.recv(), if pause.is_none() => match out {
                    Some(bytes) => self.broadcast(bytes).await,
                    None => return,
                },
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => self.inlet.settle(answer),
                peer = self.reached.recv() => match peer {
                    Ok(peer) => self.react(Event::Reached(peer)).await,
                    Err(RecvError::Lagged(_)) => self.join(self.shared().dialler.connected()).await,
                    Err(RecvError::Closed) => return,
                },
                () = sleep(due) => self.react(Event::Tick).await,
            }
        }
    }

    async fn heard(&mut self, heard: Option<Result<Heard, ApiError>>) {
        match heard {
            Some(Ok(Heard::Received(message))) => {
                self.live.received.fetch_add(1, Ordering::Relaxed);
                self.answers.extend(self.inlet.take(&message).await);
                // Looking at a message takes longer than the library takes to bring it: without a pause for
                // its tasks what they bring would pile up where they drop it.
                yield_now().await;
            }
            Some(Ok(Heard::NeighborUp(peer))) => {
                self.react(Event::Up(peer)).await;
                self.greet().await;
                let _ = timeout(SEND_WAIT_MAX, self.shared().dialler.meet(peer)).await;
            }
            Some(Ok(Heard::NeighborDown(peer))) => self.react(Event::Down(peer)).await,
            // The subscription goes on, without what was dropped: opening it anew would drop more.
            Some(Ok(Heard::Lagged)) => {
                add_one(&self.shared().counters.lags);
                self.react(Event::Lagged).await;
            }
            Some(Err(_)) | None => self.end().await,
        }
    }

    async fn end(&mut self) {
        self.link = None;
        add_one(&self.shared().counters.rejoins);
        self.react(Event::Ended).await;
    }

    /// Does what the state asks for, and what follows from that.
    async fn react(&mut self, event: Event<EndpointId>) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let act = self.supervision.handle(event, self.now());
            self.show();
            match act {
                Some(Act::Subscribe) => next = Some(self.subscribe().await),
                Some(Act::JoinAll) => self.join(self.shared().dialler.connected()).await,
                Some(Act::Join(peer)) => self.join(vec![peer]).await,
                Some(Act::Renew) => {
                    self.shared().renew();
                    self.join(self.shared().dialler.connected()).await;
                }
                Some(Act::Tell(why)) => self.shared().missed(&self.inlet.topic, why),
                None => {}
            }
        }
    }

    /// Without anyone to begin with: who cannot be reached would never be dialled again.
    async fn subscribe(&mut self) -> Event<EndpointId> {
        let id = SwarmId::from_bytes(gossip_topic(&self.inlet.topic));
        let subscribed =
            timeout(SEND_WAIT_MAX, self.shared().gossip.subscribe(id, Vec::new())).await;
        match subscribed {
            Ok(Ok(topic)) => {
                self.link = Some(topic.split());
                Event::Subscribed
            }
            Ok(Err(error)) => {
                // The library's task has ended, and with it every swarm.
                tracing::error!(%error, "gossip has to begin anew");
                self.shared().broken.cancel();
                Event::Ended
            }
            Err(_) => Event::Ended,
        }
    }

    async fn join(&self, peers: Vec<EndpointId>) {
        if let Some((sender, _)) = &self.link
            && !peers.is_empty()
        {
            // Whoever is alone asks again.
            let _ = timeout(SEND_WAIT_MAX, sender.join_peers(peers)).await;
        }
    }

    async fn broadcast(&mut self, bytes: Bytes) {
        let joined = matches!(self.supervision.phase(), Phase::Joined { .. });
        let (Some((sender, _)), true) = (&self.link, joined) else {
            add_one(&self.shared().counters.unheard);
            return;
        };
        match timeout(SEND_WAIT_MAX, sender.broadcast(bytes)).await {
            Ok(Ok(())) => {
                self.pace.spoke(Instant::now());
                add_one(&self.shared().counters.broadcasts);
                self.live.broadcasts.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Err(_)) => self.end().await,
            Err(_) => add_one(&self.shared().counters.out_dropped),
        }
    }

    /// Tells neighbours where our relay is.
    async fn greet(&self) {
        if let (Some(relay), Some((sender, _))) = (&self.shared().config.announce, &self.link) {
            let hello = Hello::new(relay.clone()).to_bytes();
            let _ = timeout(SEND_WAIT_MAX, sender.broadcast_neighbors(hello.into())).await;
        }
    }

    fn show(&mut self) {
        let phase = self.supervision.phase().clone();
        self.alone = match (&phase, self.alone.take()) {
            (Phase::Joined { .. }, _) => None,
            (_, Some(alone)) => Some(alone),
            (_, None) => Some(Alone::new(&self.shared().dialler)),
        };
        let (since, tries) = (self.supervision.since(), self.supervision.tries());
        *lock(&self.live.seen) = Seen { phase, since, tries };
    }
}

/// The next event of a link that is there.
async fn hear(
    link: &mut Option<(GossipSender, GossipReceiver)>,
) -> Option<Result<Heard, ApiError>> {
    match link {
        Some((_, receiver)) => receiver.next().await,
        None => None,
    }
}
