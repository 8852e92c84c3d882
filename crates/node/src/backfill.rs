//! Backfill of a running node: what other nodes have of our topics and we have missed is fetched from them.
//! One instance does it for all, under a lease in the store. Nothing of how far it is survives the process: what
//! has come is in the store, and a reconciliation that begins anew finds what is still missing for a few hundred
//! bytes.

mod errand;
mod fault;
mod intake;
mod known;
mod memory;
mod passes;
mod pulled;
mod puller;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use kukuri_core::backfill::{Agenda, Pauses, Why};
use kukuri_core::ladder::Step;
use kukuri_core::{Backfill, Holder, NodeTopic, Task, TopicId};
use kukuri_lane::Lane;
use kukuri_store::node_state;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::tenure::{Tenure, release};
pub use fault::{Blame, Fault};
pub use known::Bounds;
pub use memory::Memory;
pub use passes::RELAYS_AT_ONCE_MAX;
use passes::{Call, Passed, Passes};
pub use pulled::{Ended, Pulled};
pub use puller::{Allowed, Puller, Watch};

/// How often it is looked whether something is due. A relay is called no more often than that.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure, and however often somebody asks.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
const LEAST_PAUSE: Duration = Duration::from_secs(2);
/// How long one relay is asked about one topic at a time: its other topics wait meanwhile. The next
/// reconciliation goes on with what is left.
pub const PASS_TIME_MAX: Duration = Duration::from_secs(10 * 60);
/// How long a topic is asked of one relay before another one is asked as well.
pub const HEAD_START: Duration = Duration::from_secs(10);
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
    pub head_start: Duration,
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
    told: Arc<Mutex<Told>>,
    news: Arc<Notify>,
    state: watch::Sender<Backfilled>,
}

/// What was told and not taken note of yet: however often, once for each topic.
#[derive(Default)]
struct Told {
    missed: BTreeMap<TopicId, Why>,
    named: BTreeSet<(TopicId, String)>,
}

impl Gaps {
    fn new() -> Self {
        let state = watch::Sender::new(Backfilled::default());
        Self { told: Arc::default(), news: Arc::default(), state }
    }

    pub fn tell(&self, Gap { topic, why, from }: Gap) {
        let mut told = self.lock();
        if told.missed.len() >= MISSED_TOPICS_MAX && !told.missed.contains_key(&topic) {
            drop(told);
            return self.drop_one();
        }
        told.missed.insert(topic.clone(), why);
        let of_topic = told.named.iter().filter(|(of, _)| *of == topic).count();
        if let Some(from) = from.filter(|_| of_topic < NAMED_SOURCES_MAX) {
            told.named.insert((topic, from));
        }
        drop(told);
        self.news.notify_one();
    }

    fn take(&self) -> Told {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Does backfill, relay by relay and topic by topic.
pub struct Backfiller {
    puller: Arc<Puller>,
    settings: BackfillSettings,
    tenure: Tenure,
    agenda: Agenda<Call>,
    passes: Passes,
    /// Topics of which a gap was told that is not on the agenda yet. Whoever stands by keeps them until it is
    /// its turn: nobody else has heard of them.
    missed: BTreeMap<TopicId, Why>,
    /// Relays that were named in gaps, by nodes that the operator has named, with the tries that each has left: they
    /// are asked like those of the settings until they fail too often.
    named: BTreeMap<TopicId, BTreeMap<String, u32>>,
    teller: Gaps,
}

impl Backfiller {
    pub fn new(puller: Puller, settings: BackfillSettings) -> Self {
        let teller = Gaps::new();
        let agenda = agenda(&settings);
        let tenure = Tenure::new(Task::Backfill);
        let (missed, named) = (BTreeMap::new(), BTreeMap::new());
        let passes = Passes::new(settings.from.clone(), settings.head_start);
        let puller = Arc::new(puller);
        Self { puller, settings, tenure, agenda, passes, missed, named, teller }
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
        let news = Arc::clone(&self.teller.news);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    if let Err(error) = self.round().await {
                        let error = format!("{error:#}");
                        tracing::warn!(error, "backfill waits for its next round");
                    }
                }
                () = news.notified() => self.note(),
                Some(passed) = self.passes.ended() => self.settle(passed),
            }
        }
    }

    fn note(&mut self) {
        let Told { missed, named } = self.teller.take();
        for (topic, why) in missed {
            if self.missed.len() < MISSED_TOPICS_MAX || self.missed.contains_key(&topic) {
                self.missed.insert(topic, why);
            } else {
                self.teller.drop_one();
            }
        }
        for (topic, from) in named {
            let named = self.named.entry(topic).or_default();
            if named.len() < NAMED_SOURCES_MAX || named.contains_key(&from) {
                named.insert(from, NAMED_TRIES_MAX);
            }
        }
    }

    /// Asks what is due of relays that are not being asked, unless another instance does.
    async fn round(&mut self) -> anyhow::Result<()> {
        if self.settings.from.is_empty() && self.named.is_empty() {
            // Nobody is there to be asked.
            self.missed.clear();
            return Ok(());
        }
        let held = self.tenure.hold(&self.puller.lane, &self.puller.clock).await;
        if !matches!(held, Ok(Some(_))) {
            self.passes.stop();
        }
        let held = held?.is_some();
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
        if may {
            self.begin(&topics);
        }
        Ok(())
    }

    fn begin(&mut self, topics: &BTreeMap<TopicId, NodeTopic>) {
        let now = (self.puller.clock)();
        let calls: BTreeSet<Call> = topics.keys().flat_map(|topic| self.calls(topic)).collect();
        self.agenda.follow(&calls, now);
        for (topic, why) in std::mem::take(&mut self.missed) {
            for call in self.calls(&topic) {
                self.agenda.ask(&call, why, now);
            }
        }
        while let Some((call, why)) = self.agenda.next(now, |call| self.passes.may_begin(call))
            && let Some(topic) = topics.get(&call.topic)
        {
            self.agenda.begin(&call);
            self.passes.begin(&self.puller, topic.clone(), call, why);
        }
    }

    /// Who is asked about a topic.
    fn calls(&self, topic: &TopicId) -> BTreeSet<Call> {
        let named = self.named.get(topic).into_iter().flat_map(BTreeMap::keys);
        let from = self.settings.from.iter().chain(named).cloned();
        from.map(|from| Call { topic: topic.clone(), from }).collect()
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

    /// Tells what became of a reconciliation, and when the relay is asked again.
    fn settle(&mut self, passed: Passed) {
        let Passed { call, why, pulled, done } = passed;
        self.teller.state.send_modify(|state| state.add(&pulled, done.is_err()));
        match &done {
            Ok(()) => tell(&call, why, &pulled),
            Err(fault) => {
                let (topic, from, fault) = (&call.topic, &call.from, format!("{fault:#}"));
                tracing::warn!(%topic, from, error = fault, "backfill failed after {pulled}");
            }
        }
        let heard = Heard::of(&done, pulled.ended);
        let now = (self.puller.clock)();
        match heard {
            Heard::All => self.agenda.done(&call, now),
            Heard::Some => {
                self.agenda.done(&call, now);
                self.agenda.ask(&call, Why::Retried, now);
            }
            Heard::Interrupted => self.agenda.leave(&call),
            Heard::Failed(_) => self.agenda.failed(&call, now),
        }
        self.count_tries(&call, heard);
    }

    /// Keeps a relay that was named in mind until it has failed too often.
    fn count_tries(&mut self, Call { topic, from }: &Call, heard: Heard) {
        let Some(named) = self.named.get_mut(topic) else { return };
        let Some(tries_left) = named.get_mut(from) else { return };
        match heard {
            Heard::Some | Heard::Interrupted | Heard::Failed(Blame::Here) => {}
            Heard::All => *tries_left = NAMED_TRIES_MAX,
            Heard::Failed(Blame::Relay) => *tries_left -= 1,
        }
        if *tries_left == 0 {
            named.remove(from);
        }
        if named.is_empty() {
            self.named.remove(topic);
        }
    }
}

/// How much a relay has told of what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// As much as can be compared here.
    All,
    /// There is more, and it can be asked for.
    Some,
    /// It goes on where it was when it may again.
    Interrupted,
    Failed(Blame),
}

impl Heard {
    fn of(done: &Result<(), Fault>, ended: Ended) -> Self {
        match (done, ended) {
            (Err(Fault::CrowdedHere(_)), _) => Self::All,
            (Err(fault), _) => Self::Failed(fault.blame()),
            (Ok(()), Ended::Done | Ended::NotAllowed) => Self::All,
            (Ok(()), Ended::OverBudget) => Self::Some,
            (Ok(()), Ended::Stopped | Ended::Interrupted) => Self::Interrupted,
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

fn agenda(settings: &BackfillSettings) -> Agenda<Call> {
    let interval = settings.interval;
    Agenda::new(Pauses { interval, retry: RETRY_PAUSE.min(interval), least: LEAST_PAUSE })
}

/// What brought nothing is not worth a line.
fn tell(Call { topic, from }: &Call, why: Why, pulled: &Pulled) {
    let why = why.as_str();
    if pulled.fetched > 0 || pulled.ended != Ended::Done {
        tracing::info!(%topic, from, why, ended = ?pulled.ended, "backfill: {pulled}");
    } else {
        tracing::debug!(%topic, from, why, "backfill: {pulled}");
    }
}
