//! One reconciliation with one other node: what it has of a topic and we do not know is fetched and taken
//! in, through the checks and the lane that everything comes through.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use kukuri_client::Prefix;
use kukuri_client::sync::{Peer, PeerConfig, ReconcileError, SyncError};
use kukuri_core::admission::{Age, Topicless};
use kukuri_core::backfill::{Reach, Window, windows};
use kukuri_core::ladder::Step;
use kukuri_core::{Backfill, Limits, NodeTopic, Source};
use kukuri_event::EventId;
use kukuri_lane::Lane;
use kukuri_store::{Clock, Store, node_state};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::intake::Intake;
use super::known::{self, Bounds, Refused};
use super::pulled::{Ended, Pulled};
use crate::import::check::{Checker, Terms};

/// What is on its way when the rate is low lasts for no longer than so many seconds: a node that is not
/// read from for a minute hangs up.
const QUESTION_SECONDS_MAX: u64 = 5;

/// The pause after which a relay that wants it slower is asked again, and how often it is.
const SLOWER_PAUSE: Duration = Duration::from_secs(1);
const SLOWER_TRIES_MAX: u32 = 60;
/// Comparisons of one reconciliation. One is enough for what two nodes compare at once, and halves that are too
/// big cost one each; a relay that finds everything too big would be asked about every second there was.
const COMPARISONS_MAX: u32 = 1024;

/// How much is asked for and taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub window_days: u32,
    /// Events that are fetched in a second; 0 is any number.
    pub per_second: u32,
    /// Events that one reconciliation fetches; what is left is found by the next one.
    pub events_max: u64,
    /// How long one reconciliation lasts, whoever holds it up: others wait for their turn meanwhile.
    pub time_max: Duration,
}

/// Who reconciles.
pub struct Puller {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub clock: Clock,
    pub limits: Limits,
    pub topicless: Topicless,
    /// How much of our own is read at once.
    pub own: Bounds,
    /// How many chunks of events may be in the lane.
    pub chunks_in_lane_max: usize,
    /// Ids of one question.
    pub question_ids_max: usize,
    /// How long a relay may take.
    pub waits: PeerConfig,
    pub allowed: Allowed,
    /// Ids that were fetched and refused for good.
    pub refused: Arc<Mutex<Refused>>,
}

/// Who looks on, and may end it.
#[derive(Clone)]
pub struct Watch {
    pub bar: ProgressBar,
    pub stop: CancellationToken,
}

impl Puller {
    /// Reconciles a topic. What has come is taken in, whatever happens then: `pulled` tells of it.
    pub async fn pull(
        &self,
        topic: &NodeTopic,
        url: &str,
        watch: &Watch,
        pulled: &mut Pulled,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        if let Some(why) = self.obstacle(topic, watch).await? {
            pulled.ended = why;
            return Ok(());
        }
        let mut errand = Errand {
            puller: self,
            peer: Peer::connect(url, self.waits).await?,
            from: url.into(),
            topic,
            watch,
            ends_at: started.checked_add(self.allowed.time_max),
            tries_left: SLOWER_TRIES_MAX,
        };
        let done = errand.run(pulled).await;
        pulled.traffic = errand.peer.traffic();
        pulled.elapsed = started.elapsed();
        done
    }

    /// Why nothing may be fetched now.
    pub(super) async fn obstacle(
        &self,
        topic: &NodeTopic,
        watch: &Watch,
    ) -> anyhow::Result<Option<Ended>> {
        let node = node_state(&*self.store).await.context("cannot read what the node allows")?;
        Ok(match node.allowance.step {
            _ if watch.stop.is_cancelled() => Some(Ended::Interrupted),
            step if step >= Step::StopBackfill => Some(Ended::Stopped),
            _ if topic.ingest_policy.backfill == Backfill::Off => Some(Ended::NotAllowed),
            _ => None,
        })
    }

    async fn windows(&self, topic: &NodeTopic) -> anyhow::Result<Vec<Window>> {
        let Puller { store, clock, limits, allowed, .. } = self;
        let node = node_state(&**store).await.context("cannot read what the node allows")?;
        let reach = Reach { node: &node, limits, days_max: allowed.window_days, now: clock() };
        Ok(windows(&topic.topic_id, &topic.ingest_policy, reach))
    }

    pub(super) async fn intake<'a>(
        &'a self,
        topic: &'a NodeTopic,
        from: &'a Arc<str>,
        watch: &'a Watch,
        came: u64,
    ) -> anyhow::Result<Intake<'a>> {
        let Puller { store, clock, limits, topicless, .. } = self;
        let terms = Terms {
            limits: limits.clone(),
            topicless: *topicless,
            age: Age::Bounded,
            source: Source::Backfill,
        };
        let checker = Checker::new(Arc::clone(store), Arc::clone(clock), terms).await?;
        Ok(Intake { puller: self, checker: Arc::new(checker), topic, from, watch, came })
    }

    pub(super) fn question_ids(&self) -> usize {
        let by_rate = match u64::from(self.allowed.per_second) {
            0 => usize::MAX,
            rate => usize::try_from(rate * QUESTION_SECONDS_MAX).unwrap_or(usize::MAX),
        };
        by_rate.min(self.question_ids_max).max(1)
    }
}

/// What a comparison came to.
enum Needed {
    Ids(Vec<EventId>),
    /// The relay wants it slower.
    Later,
    /// It has to be made in parts, if there are any.
    Less(Option<[Window; 2]>),
}

/// A reconciliation under way.
pub(super) struct Errand<'a> {
    pub(super) puller: &'a Puller,
    pub(super) peer: Peer,
    pub(super) from: Arc<str>,
    pub(super) topic: &'a NodeTopic,
    pub(super) watch: &'a Watch,
    /// `None` is never.
    ends_at: Option<Instant>,
    /// How often it may still be compared anew because the relay wants it slower.
    tries_left: u32,
}

impl Errand<'_> {
    async fn run(&mut self, pulled: &mut Pulled) -> anyhow::Result<()> {
        let mut left: VecDeque<Window> = self.puller.windows(self.topic).await?.into();
        let mut comparisons = 0;
        while let Some(window) = left.pop_front() {
            comparisons += 1;
            ensure!(
                comparisons <= COMPARISONS_MAX,
                "the relay compares too little at once: {COMPARISONS_MAX} comparisons were not enough"
            );
            let halted = self.halted();
            let needed = tokio::select! {
                needed = self.needed(&window, pulled) => needed?,
                why = halted => {
                    pulled.ended = why;
                    break;
                }
            };
            match needed {
                Needed::Ids(needed) => self.fetch(&window, needed, pulled).await?,
                Needed::Later => left.push_front(window),
                Needed::Less(Some(parts)) => {
                    parts.into_iter().rev().for_each(|part| left.push_front(part));
                }
                // What is older than a second that is too full is wanted nevertheless.
                Needed::Less(None) => pulled.crowded += 1,
            }
            if pulled.ended != Ended::Done {
                break;
            }
        }
        self.judge(pulled)
    }

    /// Whether it has come to what it was for.
    fn judge(&self, pulled: &Pulled) -> anyhow::Result<()> {
        let is_late = self.ends_at.is_some_and(|at| at <= Instant::now());
        match pulled.ended {
            Ended::OverBudget if is_late && pulled.accepted == 0 => {
                bail!("nothing was taken in within {:?}", self.puller.allowed.time_max)
            }
            Ended::Done if pulled.crowded > 0 => bail!(
                "more events in a second than can be compared: {} such seconds were left out",
                pulled.crowded
            ),
            _ => Ok(()),
        }
    }

    /// Waits until it is to end, whatever the relay does.
    pub(super) fn halted(&self) -> impl Future<Output = Ended> + Send + use<> {
        let (stop, ends_at) = (self.watch.stop.clone(), self.ends_at);
        let late = async move {
            match ends_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        async move {
            tokio::select! {
                () = stop.cancelled() => Ended::Interrupted,
                () = late => Ended::OverBudget,
            }
        }
    }

    /// The ids that the other node has and we have not.
    async fn needed(&mut self, window: &Window, pulled: &mut Pulled) -> anyhow::Result<Needed> {
        self.watch.bar.set_message("comparing");
        let Puller { store, clock, own: bounds, .. } = self.puller;
        let (filter, now) = (window.filter(), clock().seconds());
        let own = known::own(&**store, filter.clone(), now, *bounds).await;
        let Some(own) = own.context("cannot read our own events")? else {
            return Ok(Needed::Less(window.halves()));
        };
        let (compared, before) = (own.len() as u64, self.peer.traffic().bytes());
        let reconciled = self.peer.reconcile(&filter, own).await;
        pulled.comparing_bytes += self.peer.traffic().bytes() - before;
        match reconciled {
            Ok(differences) => {
                pulled.compared += compared;
                pulled.only_here += differences.have as u64;
                pulled.named += differences.need.len() as u64;
                Ok(Needed::Ids(differences.need))
            }
            Err(SyncError::TooBig(_) | SyncError::Reconcile(ReconcileError::TooMany)) => {
                Ok(Needed::Less(window.halves()))
            }
            Err(SyncError::Refused(why))
                if why.prefix() == Prefix::RateLimited && self.tries_left > 0 =>
            {
                self.tries_left -= 1;
                tokio::time::sleep(SLOWER_PAUSE).await;
                Ok(Needed::Later)
            }
            // A relay may take fewer values in a filter than others do.
            Err(SyncError::Refused(why))
                if why.prefix() == Prefix::Invalid && window.half_kinds().is_some() =>
            {
                Ok(Needed::Less(window.half_kinds()))
            }
            Err(error) => Err(error.into()),
        }
    }
}
