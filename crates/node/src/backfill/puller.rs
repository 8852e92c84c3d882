//! One reconciliation with one other node: what it has of a topic and we do not know is fetched and taken
//! in, through the checks and the lane that everything comes through.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use kukuri_client::Prefix;
use kukuri_client::sync::{Fetch, Peer, PeerConfig, ReconcileError, SyncError};
use kukuri_core::admission::{Age, Topicless};
use kukuri_core::backfill::{Reach, Window, windows};
use kukuri_core::ladder::Step;
use kukuri_core::{Backfill, Limits, NodeTopic, Source};
use kukuri_event::EventId;
use kukuri_lane::Lane;
use kukuri_store::{Clock, Store, node_state};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::intake::Intake;
use super::known::{self, Found, Refused};
use super::pulled::{Ended, Pulled};
use crate::import::check::{Checker, Terms};

/// Groups of events that may wait to be checked; then nothing more is read from the other node.
const GROUPS_WAITING_MAX: usize = 2;
/// What is on its way when the rate is low lasts for no longer than so many seconds: a node that is not
/// read from for a minute hangs up.
const QUESTION_SECONDS_MAX: u64 = 5;

/// The pause after which a relay that wants it slower is asked again, and how often it is.
const SLOWER_PAUSE: Duration = Duration::from_secs(1);
const SLOWER_TRIES_MAX: u32 = 60;

/// How much is asked for and taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub window_days: u32,
    /// Events that are fetched in a second; 0 is any number.
    pub per_second: u32,
    /// Events that one reconciliation fetches; what is left is found by the next one.
    pub events_max: u64,
}

/// Who reconciles.
pub struct Puller {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub clock: Clock,
    pub limits: Limits,
    pub topicless: Topicless,
    /// Index rows that one read may cost.
    pub scan_rows_max: usize,
    /// How many chunks of events may be in the lane.
    pub chunks_in_lane_max: usize,
    /// Ids of one question.
    pub question_ids_max: usize,
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
        let peer = Peer::connect(url, PeerConfig::STANDARD).await?;
        let mut errand = Errand { puller: self, peer, topic, watch, tries_left: SLOWER_TRIES_MAX };
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

    async fn intake<'a>(
        &'a self,
        topic: &'a NodeTopic,
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
        Ok(Intake { puller: self, checker: Arc::new(checker), topic, watch, came })
    }

    fn question_ids(&self) -> usize {
        let by_rate = match u64::from(self.allowed.per_second) {
            0 => usize::MAX,
            rate => usize::try_from(rate * QUESTION_SECONDS_MAX).unwrap_or(usize::MAX),
        };
        by_rate.min(self.question_ids_max)
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
struct Errand<'a> {
    puller: &'a Puller,
    peer: Peer,
    topic: &'a NodeTopic,
    watch: &'a Watch,
    /// How often it may still be compared anew because the relay wants it slower.
    tries_left: u32,
}

impl Errand<'_> {
    async fn run(&mut self, pulled: &mut Pulled) -> anyhow::Result<()> {
        let mut left: VecDeque<Window> = self.puller.windows(self.topic).await?.into();
        while let Some(window) = left.pop_front() {
            let stop = self.watch.stop.clone();
            let needed = tokio::select! {
                needed = self.needed(&window, pulled) => needed?,
                () = stop.cancelled() => {
                    pulled.ended = Ended::Interrupted;
                    break;
                }
            };
            match needed {
                Needed::Ids(needed) => self.fetch(&window, needed, pulled).await?,
                Needed::Later => left.push_front(window),
                Needed::Less(parts) => {
                    let parts = parts.context("more events in a second than can be compared")?;
                    parts.into_iter().rev().for_each(|part| left.push_front(part));
                }
            }
            if pulled.ended != Ended::Done {
                break;
            }
        }
        Ok(())
    }

    /// The ids that the other node has and we have not.
    async fn needed(&mut self, window: &Window, pulled: &mut Pulled) -> anyhow::Result<Needed> {
        self.watch.bar.set_message("comparing");
        let Puller { store, clock, scan_rows_max, .. } = self.puller;
        let (filter, now) = (window.filter(), clock().seconds());
        let own = known::own(&**store, filter.clone(), now, *scan_rows_max).await;
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

    /// Fetches those of the ids that are not known, and takes them in.
    async fn fetch(
        &mut self,
        window: &Window,
        needed: Vec<EventId>,
        pulled: &mut Pulled,
    ) -> anyhow::Result<()> {
        let Puller { store, refused, allowed, .. } = self.puller;
        let found = known::unknown(&**store, refused, &self.topic.topic_id, needed).await;
        let Found { mut unknown, at_hand, known } = found.context("cannot look up ids")?;
        pulled.known += known;
        let room = allowed.events_max.saturating_sub(pulled.fetched);
        let is_over = unknown.len() as u64 > room;
        unknown.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        if !unknown.is_empty() || !at_hand.is_empty() {
            self.take_in(window, &unknown, at_hand, pulled).await?;
        }
        if is_over && pulled.ended == Ended::Done {
            pulled.ended = Ended::OverBudget;
        }
        Ok(())
    }

    async fn take_in(
        &mut self,
        window: &Window,
        ids: &[EventId],
        at_hand: Vec<String>,
        pulled: &mut Pulled,
    ) -> anyhow::Result<()> {
        self.watch.bar.inc_length((ids.len() + at_hand.len()) as u64);
        self.watch.bar.set_message("fetching");
        let intake = self.puller.intake(self.topic, self.watch, pulled.came()).await?;
        let (groups, coming) = mpsc::channel(GROUPS_WAITING_MAX);
        let (filter, question_ids) = (window.filter(), self.puller.question_ids());
        let fetching = async {
            if !at_hand.is_empty() && groups.send(at_hand).await.is_err() {
                return Err(SyncError::Unwanted);
            }
            self.peer.fetch(Fetch { filter: &filter, ids, question_ids, into: groups }).await
        };
        let (fetched, taken) = tokio::join!(fetching, intake.take(coming));
        // Events that came before it broke are in.
        let broken = pulled.add(taken);
        pulled.fetched += *fetched.as_ref().unwrap_or(&0) as u64;
        broken?;
        match fetched {
            Err(SyncError::Unwanted) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
