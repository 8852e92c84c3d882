//! Backfill of a running node: what other nodes have of our topics and we have missed is fetched from them.
//! One instance does it for all, under a lease in the store. Nothing is kept of how far it is: what has come
//! is in the store, and a reconciliation that begins anew finds what is still missing for a few hundred
//! bytes.

mod intake;
mod known;
mod pulled;
mod puller;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use kukuri_core::backfill::{Agenda, Pauses, Why};
use kukuri_core::ladder::Step;
use kukuri_core::{Backfill, Holder, NodeTopic, Task, TopicId};
use kukuri_lane::Lane;
use kukuri_store::node_state;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::tenure::{Tenure, release};
pub use known::{Bounds, Refused};
pub use pulled::{Ended, Pulled};
pub use puller::{Allowed, Puller, Watch};

/// How often it is looked whether something is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the lease is renewed and the progress told while something is fetched.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// After a failure, and however often somebody asks.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
const LEAST_PAUSE: Duration = Duration::from_secs(2);
/// How long one relay is asked about one topic at a time: the others wait meanwhile. What is left is found by
/// the next reconciliation.
pub const PASS_TIME_MAX: Duration = Duration::from_secs(10 * 60);
/// Gaps that may wait to be heard of; more are left to the schedule.
const GAPS_WAITING_MAX: usize = 256;
/// Topics of which gaps are kept in mind.
const MISSED_TOPICS_MAX: usize = 4096;
/// Nodes that are asked about one topic because somebody has named them.
const NAMED_SOURCES_MAX: usize = 8;
/// How often one of them may fail before it is forgotten.
const NAMED_TRIES_MAX: u32 = 5;

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillSettings {
    /// Relays that are asked, by their addresses.
    pub from: Vec<String>,
    pub interval: Duration,
    pub allowed: Allowed,
}

/// That something of a topic was missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub topic: TopicId,
    pub why: Why,
    /// A relay that has it, besides those of the settings. Whoever names it vouches for it.
    pub from: Option<String>,
}

/// Where gaps are told. Nobody waits for it.
#[derive(Clone)]
pub struct Gaps {
    sender: mpsc::Sender<Gap>,
    state: watch::Sender<Backfilled>,
}

impl Gaps {
    pub fn tell(&self, gap: Gap) {
        if self.sender.try_send(gap).is_err() {
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        self.state.send_modify(|state| state.gaps_dropped += 1);
    }
}

/// What backfill has done so far in this process, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// Reconciliations, and those of them that failed.
    pub passes: u64,
    pub passes_failed: u64,
    /// Ids that other nodes had and we did not show; those that were fetched; what became of these.
    pub named: u64,
    pub fetched: u64,
    pub accepted: u64,
    pub refused: u64,
    pub gaps_dropped: u64,
    /// Topics of which something is known to be missing, while another process does it or nobody may.
    pub gaps_waiting: usize,
    /// Whether this process does it.
    pub holds: bool,
    /// Whether the ladder has stopped it.
    pub stopped: bool,
}

/// Does backfill, topic by topic.
pub struct Backfiller {
    puller: Puller,
    settings: BackfillSettings,
    tenure: Tenure,
    agenda: Agenda,
    gaps: mpsc::Receiver<Gap>,
    /// Topics of which a gap was told that is not on the agenda yet. Whoever stands by keeps them until it is
    /// its turn: nobody else has heard of them.
    missed: BTreeMap<TopicId, Why>,
    /// Relays that were named in gaps and have not been heard to the end, with the tries that each has left.
    named: BTreeMap<TopicId, BTreeMap<String, u32>>,
    teller: Gaps,
}

impl Backfiller {
    pub fn new(puller: Puller, settings: BackfillSettings) -> Self {
        let (sender, gaps) = mpsc::channel(GAPS_WAITING_MAX);
        let teller = Gaps { sender, state: watch::Sender::new(Backfilled::default()) };
        let agenda = agenda(&settings);
        let tenure = Tenure::new(Task::Backfill);
        let (missed, named) = (BTreeMap::new(), BTreeMap::new());
        Self { puller, settings, tenure, agenda, gaps, missed, named, teller }
    }

    /// Where to tell of gaps.
    pub fn gaps(&self) -> Gaps {
        self.teller.clone()
    }

    pub fn state(&self) -> watch::Receiver<Backfilled> {
        self.teller.state.subscribe()
    }

    pub fn holder(&self) -> Holder {
        self.tenure.holder()
    }

    /// Lets another instance go on at once.
    pub async fn release(lane: &Lane, holder: Holder) {
        release(lane, Task::Backfill, holder).await;
    }

    /// Never ends by itself: what fails is tried again.
    pub async fn run(mut self) {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                Some(gap) = self.gaps.recv() => self.note(gap),
            }
            while let Ok(gap) = self.gaps.try_recv() {
                self.note(gap);
            }
            if let Err(error) = self.round().await {
                tracing::warn!(error = format!("{error:#}"), "backfill waits for its next round");
            }
        }
    }

    fn note(&mut self, gap: Gap) {
        if self.missed.len() >= MISSED_TOPICS_MAX && !self.missed.contains_key(&gap.topic) {
            self.teller.drop_one();
            return;
        }
        self.missed.insert(gap.topic.clone(), gap.why);
        if let Some(from) = gap.from {
            let named = self.named.entry(gap.topic).or_default();
            if named.len() < NAMED_SOURCES_MAX || named.contains_key(&from) {
                named.insert(from, NAMED_TRIES_MAX);
            }
        }
    }

    /// Asks for the topic that is due, if one is, unless another instance does.
    async fn round(&mut self) -> anyhow::Result<()> {
        if self.settings.from.is_empty() && self.named.is_empty() {
            // Nobody is there to be asked.
            self.missed.clear();
            return Ok(());
        }
        let held = self.tenure.hold(&self.puller.lane, &self.puller.clock).await?.is_some();
        let topics = self.topics().await?;
        self.named.retain(|topic, _| topics.contains_key(topic));
        self.missed.retain(|topic, _| topics.contains_key(topic));
        let stopped = self.is_stopped().await?;
        let (may, waiting) = (held && !stopped, self.missed.len());
        self.teller.state.send_modify(|state| {
            (state.holds, state.stopped) = (held, stopped);
            state.gaps_waiting = if may { 0 } else { waiting };
        });
        if !held {
            // Whatever another instance has done by then, everything is looked at anew.
            self.agenda = agenda(&self.settings);
        }
        if !may {
            return Ok(());
        }
        let now = (self.puller.clock)();
        self.agenda.follow(&topics.keys().cloned().collect(), now);
        for (topic, why) in std::mem::take(&mut self.missed) {
            self.agenda.ask(&topic, why, now);
        }
        if let Some((topic, why)) = self.agenda.next(now)
            && let Some(topic) = topics.get(&topic)
        {
            self.fill(topic, why).await;
        }
        Ok(())
    }

    /// The topics that are carried and may be asked for.
    async fn topics(&self) -> anyhow::Result<BTreeMap<TopicId, NodeTopic>> {
        let topics = self.puller.store.topics().await.context("cannot read the topics")?;
        let topics = topics.into_iter().map(|(topic, _)| topic);
        let wanted =
            topics.filter(|topic| topic.enabled && topic.ingest_policy.backfill == Backfill::On);
        Ok(wanted.map(|topic| (topic.topic_id.clone(), topic)).collect())
    }

    async fn is_stopped(&self) -> anyhow::Result<bool> {
        let node = node_state(&*self.puller.store).await;
        Ok(node.context("cannot read what the node allows")?.allowance.step >= Step::StopBackfill)
    }

    /// Asks every relay for a topic.
    async fn fill(&mut self, topic: &NodeTopic, why: Why) {
        let id = &topic.topic_id;
        let named = self.named.get(id).into_iter().flat_map(BTreeMap::keys);
        let from: BTreeSet<String> = self.settings.from.iter().chain(named).cloned().collect();
        let mut worst = Ended::Done;
        let mut failed = false;
        for url in &from {
            let mut pulled = Pulled::default();
            let done = self.pass(topic, url, &mut pulled).await;
            self.teller.state.send_modify(|state| state.add(&pulled, done.is_err()));
            self.settle(id, url, done.is_ok().then_some(pulled.ended));
            match done {
                Ok(()) => tell(topic, url, why, &pulled),
                Err(error) => {
                    failed = true;
                    let error = format!("{error:#}");
                    tracing::warn!(topic = %id, from = url, %error, "backfill failed after {pulled}");
                }
            }
            if pulled.ended != Ended::Done {
                worst = pulled.ended;
            }
        }
        let now = (self.puller.clock)();
        match worst {
            _ if failed => self.agenda.failed(id, now),
            // It goes on where it was when it may again.
            Ended::Stopped | Ended::Interrupted => {}
            Ended::OverBudget => {
                self.agenda.done(id, now);
                self.agenda.ask(id, Why::Retried, now);
            }
            Ended::Done | Ended::NotAllowed => self.agenda.done(id, now),
        }
    }

    /// Keeps a relay that was named in mind until it has told all that it has, or has failed too often.
    fn settle(&mut self, topic: &TopicId, url: &str, ended: Option<Ended>) {
        let Some(named) = self.named.get_mut(topic) else { return };
        let Some(tries_left) = named.get_mut(url) else { return };
        match ended {
            Some(Ended::Stopped | Ended::Interrupted | Ended::OverBudget) => {}
            Some(Ended::Done | Ended::NotAllowed) => *tries_left = 0,
            None => *tries_left -= 1,
        }
        if *tries_left == 0 {
            named.remove(url);
        }
        if named.is_empty() {
            self.named.remove(topic);
        }
    }

    /// One reconciliation, for as long as it takes and the lease is ours.
    async fn pass(
        &mut self,
        topic: &NodeTopic,
        url: &str,
        pulled: &mut Pulled,
    ) -> anyhow::Result<()> {
        let Self { puller, tenure, .. } = self;
        let watch = Watch { bar: ProgressBar::hidden(), stop: CancellationToken::new() };
        watch.bar.set_length(0);
        let pull = puller.pull(topic, url, &watch, pulled);
        tokio::pin!(pull);
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            tokio::select! {
                done = &mut pull => return done,
                _ = ticks.tick() => {
                    let (at, of) = (watch.bar.position(), watch.bar.length().unwrap_or(0));
                    tracing::info!(topic = %topic.topic_id, from = url, at, of, "backfill goes on");
                    if !matches!(tenure.hold(&puller.lane, &puller.clock).await, Ok(Some(_))) {
                        watch.stop.cancel();
                    }
                }
            }
        }
    }
}

impl Backfilled {
    fn add(&mut self, pulled: &Pulled, failed: bool) {
        self.passes += 1;
        self.passes_failed += u64::from(failed);
        self.named += pulled.named;
        self.fetched += pulled.fetched;
        self.accepted += pulled.accepted;
        self.refused += pulled.refused();
    }
}

fn agenda(settings: &BackfillSettings) -> Agenda {
    let interval = settings.interval;
    Agenda::new(Pauses { interval, retry: RETRY_PAUSE.min(interval), least: LEAST_PAUSE })
}

/// What brought nothing is not worth a line.
fn tell(topic: &NodeTopic, url: &str, why: Why, pulled: &Pulled) {
    let (topic, why) = (&topic.topic_id, why.as_str());
    if pulled.fetched > 0 || pulled.ended != Ended::Done {
        tracing::info!(%topic, from = url, why, ended = ?pulled.ended, "backfill: {pulled}");
    } else {
        tracing::debug!(%topic, from = url, why, "backfill: {pulled}");
    }
}
