//! One reconciliation with one other node: what it has of a topic and we do not know is fetched and taken
//! in, through the checks and the lane that everything comes through.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use kukuri_client::sync::{Peer, PeerConfig};
use kukuri_core::admission::{Age, Topicless};
use kukuri_core::backfill::{Reach, Window, windows};
use kukuri_core::ladder::Step;
use kukuri_core::{Backfill, Limits, NodeTopic, Source};
use kukuri_lane::Lane;
use kukuri_store::{Clock, Store, node_state};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::errand::Errand;
use super::fault::Fault;
use super::intake::Intake;
use super::known::Bounds;
use super::memory::Memory;
use super::pulled::{Ended, Pulled};
use crate::import::check::{Checker, Terms};

/// What is on its way when the rate is low lasts for no longer than so many seconds, for each of the
/// reconciliations that share the rate: a node that is not read from for a minute hangs up.
const QUESTION_SECONDS_MAX: u64 = 5;

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
    /// What earlier reconciliations have left in mind.
    pub memory: Arc<Memory>,
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
    ) -> Result<(), Fault> {
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
            halvings: 0,
            slower: 0,
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

    pub(super) async fn windows(&self, topic: &NodeTopic) -> anyhow::Result<Vec<Window>> {
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
