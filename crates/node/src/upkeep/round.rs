//! One round of upkeep: what is felt, what leaves, and in which order.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::ladder::{Cause, Pressure};
use kukuri_core::{Belief, Fence, Look, Removed, Stats, UnixMillis, plan};
use kukuri_store::{Scope, Store, StoreError, Tidied};
use tokio::sync::watch;
use tokio::time::Instant;

use super::felt::{Felt, is_of_use};
use super::{Aging, Ended, Keeper, Sweep, UpkeepError, Upkept};

/// How often what has aged is looked for, in every topic.
const FULL_ROUND_INTERVAL: Duration = Duration::from_secs(60);
/// How often space is given back while events leave: the more of it at once, the less it costs, and the longer
/// it takes. Until then fewer events leave at our pace than the smallest partition of PostgreSQL holds, so that as
/// a rule one is dropped at a time.
pub const TIDY_INTERVAL: Duration = Duration::from_secs(10);

impl Keeper {
    /// One round, unless another instance does them.
    pub async fn round(&mut self) -> Result<(), UpkeepError> {
        self.urgent_is_left = false;
        let held = self.hold().await?;
        self.upkept.send_modify(|upkept| upkept.holds = held.is_some());
        let Some(lease) = held else {
            self.ladder = None;
            return Ok(());
        };
        let end = self.budget.round.map(|time| Instant::now() + time);
        // What fails does not keep the others from their turn.
        let mut failed = Failed::default();
        let felt = failed.unless(self.feel(lease.fence).await).unwrap_or(Felt::NOTHING);
        let now = (self.clock)();
        let plausible = self.judge(now).await? == Belief::Plausible;
        if plausible {
            self.begin(lease.fence, now, &mut failed).await?;
            // What has aged leaves first, then what has to make room, and then what was remembered of either.
            self.age(end, &mut failed).await?;
        }
        self.make_room(&felt, now, end, &mut failed).await?;
        if plausible && self.aging.is_none() {
            // Topics that are always over their limits keep nobody from being forgotten.
            let end = end.zip(self.urgent_end()).map(|(end, urgent)| end.max(urgent));
            self.sweep_pending(now, end, &mut failed).await?;
        }
        if self.is_time_to_tidy(&felt) {
            self.tidied_at = Some(Instant::now());
            failed.unless(give_back(&*self.store, self.budget.tidy).await);
        }
        failed.into_result()
    }

    /// What has expired leaves at once. The rest of a full round is begun when it is time for one.
    async fn begin(
        &mut self,
        fence: Fence,
        now: UnixMillis,
        failed: &mut Failed,
    ) -> Result<(), UpkeepError> {
        let (topics, node) = self.stats().await?;
        let looks = plan(Stats { topics: &topics, node: &node }, self.settings.keeping, now);
        let (now_due, mut rest): (Vec<Look>, Vec<Look>) =
            looks.into_iter().partition(|look| *look == Look::Expired);
        for look in &now_due {
            let ended = failed.unless(self.sweep(look, fence, now, self.urgent_end()).await);
            self.urgent_is_left |= ended == Some(Ended::OutOfTime);
        }
        if !self.is_under_way() && self.is_time_for_all(now) {
            self.full_round_at = Some(now);
            self.aging = Some(Aging::planned(&rest));
            rest.retain(|look| scope_of(look).is_none() && !matches!(look, Look::Aged { .. }));
            self.pending.extend(rest);
        }
        Ok(())
    }

    /// Whether it can be that late. What was begun by a clock that cannot is begun again.
    async fn judge(&mut self, now: UnixMillis) -> Result<Belief, StoreError> {
        let Some(doubt) = &mut self.doubt else { return Ok(Belief::Plausible) };
        let belief = doubt.judge(&*self.store, now).await?;
        let clock_ahead = match belief {
            Belief::Plausible => Duration::ZERO,
            Belief::Ahead { by } => by,
        };
        if belief != Belief::Plausible {
            (self.aging, self.full_round_at) = (None, None);
            self.pending.clear();
        }
        self.upkept.send_modify(|upkept| upkept.clock_ahead = clock_ahead);
        Ok(belief)
    }

    /// A disk that is short of space gets it at once.
    fn is_time_to_tidy(&self, felt: &Felt) -> bool {
        let is_disk = |cause: &Cause| matches!(cause, Cause::Disk { .. });
        let is_short =
            matches!(&felt.pressure, Pressure::High(causes) if causes.iter().any(is_disk));
        is_short || !self.has_more_to_do() || self.is_due_to_tidy()
    }

    fn is_due_to_tidy(&self) -> bool {
        self.tidied_at.is_none_or(|last| last.elapsed() >= TIDY_INTERVAL)
    }

    /// Whether something of the last full round is left to do.
    fn is_under_way(&self) -> bool {
        self.aging.is_some() || !self.pending.is_empty()
    }

    /// Whether the next round has been waited for long enough.
    pub(super) fn has_more_to_do(&self) -> bool {
        self.is_under_way() || self.urgent_is_left
    }

    /// Goes on with what has aged, as long as there is time. What fails is found again by the next full round.
    async fn age(&mut self, end: Option<Instant>, failed: &mut Failed) -> Result<(), UpkeepError> {
        // Who has all the time gives space back afterwards.
        let tidies = end.is_some() && self.is_due_to_tidy();
        let Some(mut aging) = self.aging.take() else { return Ok(()) };
        if let Some(lease) = self.hold().await? {
            let store = Arc::clone(&self.store);
            let tidy = self.budget.tidy;
            let giving_back =
                async { if tidies { give_back(&*store, tidy).await } else { Ok(()) } };
            if tidies {
                self.tidied_at = Some(Instant::now());
            }
            let (mut sweep, upkept) = self.sweeper(lease.fence, end);
            let mut told = |chunk| count_removed(upkept, chunk);
            // What leaves keeps its pace while space is given back.
            let (swept, given_back) = tokio::join!(sweep.age(&mut aging, &mut told), giving_back);
            failed.unless(given_back);
            match failed.unless(swept.map_err(UpkeepError::from)) {
                Some((_, Ended::Done)) => {
                    failed.unless(aging.into_result().map_err(UpkeepError::from));
                }
                _ => self.aging = Some(aging),
            }
        }
        Ok(())
    }

    /// Goes on with what else the full round looks for, as long as there is time. What fails is looked for
    /// again in the next one.
    async fn sweep_pending(
        &mut self,
        now: UnixMillis,
        end: Option<Instant>,
        failed: &mut Failed,
    ) -> Result<(), UpkeepError> {
        while let Some(look) = self.pending.front().cloned() {
            let Some(lease) = self.hold().await? else { return Ok(()) };
            let ended = failed.unless(self.sweep(&look, lease.fence, now, end).await);
            if ended == Some(Ended::OutOfTime) {
                break;
            }
            self.pending.pop_front();
            // Waiting for what fails takes time as well.
            if ended.is_none() && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
        }
        Ok(())
    }

    /// What is over its limit lets the oldest go, once what has aged has left. However many topics that are, one
    /// round has its time, and the next one goes on with whoever comes next.
    async fn make_room(
        &mut self,
        felt: &Felt,
        now: UnixMillis,
        end: Option<Instant>,
        failed: &mut Failed,
    ) -> Result<(), UpkeepError> {
        let (topics, node) = self.stats().await?;
        let looks = plan(Stats { topics: &topics, node: &node }, self.settings.keeping, now);
        let mut crowded: Vec<(Scope, Look)> = looks
            .into_iter()
            .filter(|look| is_of_use(look, felt, &node))
            .filter_map(|look| Some((scope_of(&look)?, look)))
            .collect();
        crowded.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let is_next = |(scope, _): &(Scope, Look)| Some(scope) > self.made_room.as_ref();
        let next = crowded.iter().position(is_next).unwrap_or(0);
        crowded.rotate_left(next);
        let mut is_over = false;
        for (scope, look) in crowded {
            if is_over {
                self.urgent_is_left = true;
                break;
            }
            let Some(lease) = self.hold().await? else { return Ok(()) };
            let ended = failed.unless(self.sweep(&look, lease.fence, now, self.urgent_end()).await);
            self.urgent_is_left |= ended == Some(Ended::OutOfTime);
            self.made_room = Some(scope);
            is_over = end.is_some_and(|end| Instant::now() >= end);
        }
        Ok(())
    }

    fn urgent_end(&self) -> Option<Instant> {
        self.budget.urgent.map(|time| Instant::now() + time)
    }

    /// Whether what has aged is to be looked for; a clock that went back begins anew.
    fn is_time_for_all(&self, now: UnixMillis) -> bool {
        let due = |last: UnixMillis| last > now || last.until(now) >= FULL_ROUND_INTERVAL;
        self.full_round_at.is_none_or(due)
    }

    async fn sweep(
        &mut self,
        look: &Look,
        fence: Fence,
        now: UnixMillis,
        until: Option<Instant>,
    ) -> Result<Ended, UpkeepError> {
        let (mut sweep, upkept) = self.sweeper(fence, until);
        let mut told = |chunk: Removed| match look {
            Look::Expired => upkept.send_modify(|upkept| upkept.expired_events += chunk.events),
            Look::Forgettable { .. } => {
                upkept.send_modify(|upkept| upkept.forgotten += chunk.events);
            }
            _ => count_removed(upkept, chunk),
        };
        let (_, ended) = sweep.run(look, now, &mut told).await?;
        Ok(ended)
    }

    /// Who sweeps, and where that is counted.
    fn sweeper(
        &mut self,
        fence: Fence,
        until: Option<Instant>,
    ) -> (Sweep<'_>, &watch::Sender<Upkept>) {
        let Self { store, lane, beat, upkept, .. } = self;
        (Sweep { store: &**store, lane, fence: Some(fence), beat, until }, upkept)
    }
}

/// Gives space back, a little at a time.
async fn give_back(store: &dyn Store, time: Option<Duration>) -> Result<(), UpkeepError> {
    let start = Instant::now();
    while time.is_none_or(|time| start.elapsed() < time) {
        match store.tidy().await? {
            Tidied::More => tokio::task::yield_now().await,
            Tidied::Done => break,
            Tidied::Blocked(why) => {
                tracing::debug!(why, "space is given back later");
                break;
            }
        }
    }
    Ok(())
}

fn count_removed(upkept: &watch::Sender<Upkept>, chunk: Removed) {
    upkept.send_modify(|upkept| upkept.removed_links += chunk.events);
}

/// What failed first in a round.
#[derive(Default)]
struct Failed(Option<UpkeepError>);

impl Failed {
    /// What was done, unless it failed.
    fn unless<T>(&mut self, done: Result<T, UpkeepError>) -> Option<T> {
        done.map_err(|error| {
            tracing::debug!(%error, "upkeep goes on with what comes next");
            self.0.get_or_insert(error);
        })
        .ok()
    }

    fn into_result(self) -> Result<(), UpkeepError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Where something makes room; `None` if it leaves for another reason.
fn scope_of(look: &Look) -> Option<Scope> {
    match look {
        Look::OldestOfTopic(topic) => Some(Scope::Topic(topic.clone())),
        Look::OldestOfNode { .. } => Some(Scope::Node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use kukuri_core::{Act, Capacity, IngestPolicy, OnFull, Retention, TopicId};
    use kukuri_lane::{Lane, LaneConfig};
    use kukuri_store::conformance::signing::{Author, Draft};
    use kukuri_store::{Clock, Model};

    use super::super::{Budget, ROUND_INTERVAL, UpkeepSettings};
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_760_000_000_000);
    const TOPICS: u32 = 3;

    const SETTINGS: UpkeepSettings = UpkeepSettings {
        retention: Retention::STANDARD,
        keeping: kukuri_core::Keeping::STANDARD,
        capacity: Capacity { max_events: None, max_bytes: None },
        on_full: OnFull::Evict,
        soft_percent: 90,
        disk_reserve_bytes: 0,
    };

    fn topic(nth: u32) -> TopicId {
        TopicId::parse(&format!("kukuri:{nth:064x}")).expect("it is canonical")
    }

    /// Each topic has room for one event, and two.
    async fn crowd(lane: &Lane) {
        for nth in 0..TOPICS {
            let act = Act::SetTopic {
                topic_id: topic(nth),
                name: String::new(),
                enabled: true,
                pinned: true,
                wanted: 0,
                ingest_policy: IngestPolicy { max_events: Some(1), ..IngestPolicy::default() },
            };
            assert!(lane.run(act).await.is_ok());
            for first in [true, false] {
                let now = NOW.seconds();
                let draft = Draft::new(1, now).tag("t", topic(nth)).tag("r", first);
                let event = Author::numbered(1).admit(&draft, now);
                assert!(lane.run(Act::Publish(event)).await.is_ok());
            }
        }
    }

    /// By a clock that is ahead nothing expires: what was left to do before it jumped kept rounds following each other
    /// without a pause, and nothing left.
    #[tokio::test]
    async fn what_cannot_be_done_is_not_waited_for_at_once() {
        let days = Arc::new(AtomicI64::new(0));
        let clock: Clock = {
            let days = Arc::clone(&days);
            Arc::new(move || UnixMillis(NOW.0 + days.load(Ordering::SeqCst) * 86_400_000))
        };
        let store: Arc<dyn Store> = Arc::new(Model::default());
        let lane =
            Arc::new(Lane::start(Arc::clone(&store), Arc::clone(&clock), LaneConfig::STANDARD));
        crowd(&lane).await;
        let keeper = Keeper::new(store, lane, clock, SETTINGS, None);
        let mut keeper = keeper.doubting(Arc::new(|| Duration::ZERO));
        keeper.round().await.expect("the round ends well");
        keeper.urgent_is_left = true;
        days.store(200, Ordering::SeqCst);
        keeper.round().await.expect("the round ends well");
        assert!(!keeper.upkept.borrow().clock_ahead.is_zero(), "the clock is doubted");
        assert!(!keeper.has_more_to_do());
    }

    /// A topic that took in more than left in a second of every five grew without end.
    #[tokio::test(start_paused = true)]
    async fn what_is_left_to_make_room_does_not_wait_for_the_next_round() {
        let store: Arc<dyn Store> = Arc::new(Model::default());
        let clock: Clock = Arc::new(|| NOW);
        let lane =
            Arc::new(Lane::start(Arc::clone(&store), Arc::clone(&clock), LaneConfig::STANDARD));
        crowd(&lane).await;
        let keeper = Keeper::new(store, lane, clock, SETTINGS, None);
        let none = Some(Duration::ZERO);
        let keeper = keeper.with_budget(Budget { round: none, urgent: none, tidy: none });
        let (mut upkept, start) = (keeper.upkept(), Instant::now());
        let running = tokio::spawn(keeper.run());
        let done = upkept.wait_for(|upkept| upkept.removed_links == u64::from(TOPICS)).await;
        assert!(done.expect("it never ends by itself").rounds >= u64::from(TOPICS) - 1);
        assert!(start.elapsed() < ROUND_INTERVAL, "each has waited for a round of its own");
        running.abort();
    }
}
