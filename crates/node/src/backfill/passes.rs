//! Reconciliations that are under way: a few relays at once, each about one topic at a time, so that one that is
//! slow holds up nobody but itself.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use indicatif::ProgressBar;
use kukuri_core::backfill::Why;
use kukuri_core::{NodeTopic, TopicId};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::pulled::Pulled;
use super::puller::{Puller, Watch};

/// How often the progress is told while something is fetched.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Relays that are asked at once. Each pass holds at most twice as many ids as may be compared at once, and two
/// groups of bodies.
pub const RELAYS_AT_ONCE_MAX: usize = 4;
/// Those of them that the operator has not chosen: however many are named and however slow they are, the others
/// have their turn.
pub const NAMED_AT_ONCE_MAX: usize = 2;

/// One relay that is asked about one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub topic: TopicId,
    pub from: String,
}

/// What became of it.
pub(super) struct Passed {
    pub call: Call,
    pub why: Why,
    pub pulled: Pulled,
    pub done: Result<(), Fault>,
}

pub(super) struct Passes {
    running: JoinSet<Passed>,
    calls: BTreeMap<Call, Begun>,
    /// Relays that the operator has chosen.
    chosen: Vec<String>,
    /// How long a topic is asked of one relay before another one is asked as well: what both have is then
    /// fetched once, unless the first one is slow.
    head_start: Duration,
}

struct Begun {
    at: Instant,
    stop: CancellationToken,
}

impl Passes {
    pub fn new(chosen: Vec<String>, head_start: Duration) -> Self {
        Self { running: JoinSet::new(), calls: BTreeMap::new(), chosen, head_start }
    }

    pub fn may_begin(&self, call: &Call) -> bool {
        let in_the_way = |(other, begun): (&Call, &Begun)| {
            let is_ahead = other.topic == call.topic && begun.at.elapsed() < self.head_start;
            other.from == call.from || is_ahead
        };
        let is_named = |call: &Call| !self.chosen.contains(&call.from);
        let named = self.calls.keys().filter(|call| is_named(call)).count();
        self.calls.len() < RELAYS_AT_ONCE_MAX
            && (named < NAMED_AT_ONCE_MAX || !is_named(call))
            && !self.calls.iter().any(in_the_way)
    }

    pub fn begin(&mut self, puller: &Arc<Puller>, topic: NodeTopic, call: Call, why: Why) {
        let stop = CancellationToken::new();
        let begun = Begun { at: Instant::now(), stop: stop.clone() };
        self.calls.insert(call.clone(), begun);
        let puller = Arc::clone(puller);
        self.running.spawn(async move {
            let mut pulled = Pulled::default();
            let work = AssertUnwindSafe(pass(&puller, &topic, &call.from, stop, &mut pulled));
            let done = work.catch_unwind().await.unwrap_or(Err(Fault::Panicked));
            Passed { call, why, pulled, done }
        });
    }

    /// All of them are to end soon.
    pub fn stop(&self) {
        self.calls.values().for_each(|begun| begun.stop.cancel());
    }

    /// The next one that ends; `None` if none is under way.
    pub async fn ended(&mut self) -> Option<Passed> {
        let passed = match self.running.join_next().await? {
            Ok(passed) => passed,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.calls.remove(&passed.call);
        Some(passed)
    }
}

/// One reconciliation, which tells how far it is.
async fn pass(
    puller: &Puller,
    topic: &NodeTopic,
    from: &str,
    stop: CancellationToken,
    pulled: &mut Pulled,
) -> Result<(), Fault> {
    let watch = Watch { bar: ProgressBar::hidden(), stop };
    watch.bar.set_length(0);
    let pull = puller.pull(topic, from, &watch, pulled);
    tokio::pin!(pull);
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        tokio::select! {
            done = &mut pull => return done,
            _ = ticks.tick() => {
                let (at, of) = (watch.bar.position(), watch.bar.length().unwrap_or(0));
                tracing::info!(topic = %topic.topic_id, from, at, of, "backfill goes on");
            }
        }
    }
}
