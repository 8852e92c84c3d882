//! Letting go of what a plan names, chunk by chunk. Each chunk is a command of its own, so that it can
//! stop between any two and others get their turn.

use std::time::Duration;

use kukuri_core::{Act, Fence, Look, Outcome, ReadSet, Removed, Task, UnixMillis, Usage};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::{Store, StoreError, name};
use tokio::time::{Instant, sleep_until};

use super::Aging;

/// Events that leave in one command.
pub const CHUNK_EVENTS_MAX: usize = 500;

/// How often events leave at a pace. Whoever publishes waits for the chunk that is in their batch, so that
/// many small ones cost them less than a few large ones.
const CHUNKS_PER_SECOND: u32 = 50;

/// Who keeps a pace and was held up catches up, but for no more than this.
const LATE_MAX: Duration = Duration::from_secs(1);

/// How fast events leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At most so many per second, so that ingest keeps its rate.
    EventsPerSecond(u32),
    /// As fast as it goes.
    Unbounded,
}

impl Pace {
    pub const BESIDE_INGEST: Self = Self::EventsPerSecond(6_000);

    /// Events that leave in one command: few enough that other writers hardly notice. Where a command takes
    /// longer than the pace allows for, more of them leave with the next one.
    fn chunk_events_max(self, late: Duration) -> usize {
        match self {
            Self::EventsPerSecond(rate) => {
                let missed = (late.as_secs_f64() * f64::from(rate)) as usize;
                let events = usize::try_from(rate / CHUNKS_PER_SECOND).unwrap_or(CHUNK_EVENTS_MAX);
                events.saturating_add(missed).clamp(1, CHUNK_EVENTS_MAX)
            }
            Self::Unbounded => CHUNK_EVENTS_MAX,
        }
    }

    fn duration(self, events: u64) -> Duration {
        match self {
            Self::EventsPerSecond(rate) => {
                Duration::from_secs_f64(events as f64 / f64::from(rate.max(1)))
            }
            Self::Unbounded => Duration::ZERO,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// Who sweeps, and how.
pub struct Sweep<'a> {
    pub store: &'a dyn Store,
    pub lane: &'a Lane,
    /// Of who does upkeep; an operator's own command needs none.
    pub fence: Option<Fence>,
    pub pace: Pace,
    /// When it stops, whatever is left.
    pub until: Option<Instant>,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing left that leaves.
    Done,
    OutOfTime,
}

impl Sweep<'_> {
    /// Lets go of all that a plan names there, and says how much that was; `told` hears of each chunk. It
    /// ends early when another instance has taken over, or when what is found does not leave.
    pub async fn run(
        &self,
        look: &Look,
        now: UnixMillis,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<(Usage, Ended), SweepError> {
        let mut work = Work::begin(self.pace);
        while let Some(act) = name(self.store, look, now, CHUNK_EVENTS_MAX).await? {
            let before = work.total.events;
            let mut rest = Some(act);
            while let Some(act) = rest.take() {
                let chunk;
                (chunk, rest) = split(act, work.chunk_events_max());
                let removed = self.remove(vec![chunk]).await?;
                let Some(removed) = removed.and_then(|mut one| one.pop()) else {
                    return Ok((work.total, Ended::Done));
                };
                if removed.events == 0 {
                    break;
                }
                told(removed);
                work.rest(removed).await;
                if self.is_over() {
                    return Ok((work.total, Ended::OutOfTime));
                }
            }
            if work.total.events == before {
                break;
            }
        }
        Ok((work.total, Ended::Done))
    }

    /// Lets go of what has aged, as far as it gets: what is known and not done by then waits there, and
    /// which topics could not be looked at is told there.
    pub async fn age(
        &self,
        aging: &mut Aging,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<(Usage, Ended), SweepError> {
        let mut work = Work::begin(self.pace);
        loop {
            while let Some(nth) = aging.blank() {
                aging.look(nth, self.store).await;
                if self.is_over() {
                    return Ok((work.total, Ended::OutOfTime));
                }
            }
            let (places, acts): (Vec<usize>, Vec<Act>) =
                aging.next(work.chunk_events_max()).into_iter().unzip();
            if acts.is_empty() {
                break;
            }
            let Some(removed) = self.remove(acts).await? else { break };
            let mut chunk = Removed::default();
            for (place, removed) in places.into_iter().zip(removed) {
                aging.note(place, removed.events);
                chunk.add(removed);
            }
            told(chunk);
            work.rest(chunk).await;
            if self.is_over() {
                return Ok((work.total, Ended::OutOfTime));
            }
        }
        Ok((work.total, Ended::Done))
    }

    /// What each of the commands has removed; `None` if another instance has taken over.
    async fn remove(&self, acts: Vec<Act>) -> Result<Option<Vec<Removed>>, SweepError> {
        let mut needs = ReadSet::default();
        acts.iter().for_each(|act| needs.add(act));
        self.store.foresee(needs.events).await;
        let acts = acts.into_iter().map(|act| self.fenced(act)).collect();
        let mut all = Vec::new();
        for answer in self.lane.submit_all(acts).await?.await {
            match answer? {
                Outcome::Removed(removed) => all.push(removed),
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn fenced(&self, act: Act) -> Act {
        match self.fence {
            Some(fence) => Act::Fenced { task: Task::Upkeep, fence, act: Box::new(act) },
            None => act,
        }
    }
}

/// What was done, and when the next chunk is due.
struct Work {
    pace: Pace,
    total: Usage,
    due: Instant,
}

impl Work {
    fn begin(pace: Pace) -> Self {
        Self { pace, total: Usage::default(), due: Instant::now() }
    }

    fn chunk_events_max(&self) -> usize {
        self.pace.chunk_events_max(Instant::now().saturating_duration_since(self.due))
    }

    /// Counts a chunk, and waits until the next one is due.
    async fn rest(&mut self, removed: Removed) {
        self.total.events += removed.events;
        self.total.bytes += removed.bytes;
        let now = Instant::now();
        // What was due before that is not made up for.
        let earliest = now.checked_sub(LATE_MAX).unwrap_or(now);
        self.due = self.due.max(earliest) + self.pace.duration(removed.events);
        sleep_until(self.due).await;
    }
}

/// A command for so many events at most, and one for the others.
fn split(act: Act, events_max: usize) -> (Act, Option<Act>) {
    match act {
        Act::Unlink { topic, mut events, reason } if events.len() > events_max => {
            let others = events.split_off(events_max);
            let rest = Act::Unlink { topic: topic.clone(), events: others, reason };
            (Act::Unlink { topic, events, reason }, Some(rest))
        }
        act => (act, None),
    }
}

#[cfg(test)]
mod tests {
    use kukuri_core::{TopicId, UnlinkReason};
    use kukuri_event::EventId;

    use super::*;

    #[test]
    fn a_pace_is_kept_in_small_chunks_that_leave_nothing_out() {
        let ids: Vec<EventId> = (0..=250_u8).map(|nth| EventId::from_bytes([nth; 32])).collect();
        let reason = UnlinkReason::Retention;
        for (pace, events_max) in [
            (Pace::EventsPerSecond(1), 1),
            (Pace::EventsPerSecond(6_000), 120),
            (Pace::EventsPerSecond(u32::MAX), CHUNK_EVENTS_MAX),
            (Pace::Unbounded, CHUNK_EVENTS_MAX),
        ] {
            assert_eq!(pace.chunk_events_max(Duration::ZERO), events_max, "{pace:?}");
            let act = Act::Unlink { topic: TopicId::global(), events: ids.clone(), reason };
            let (mut rest, mut chunks) = (Some(act), Vec::<Vec<EventId>>::new());
            while let Some(act) = rest.take() {
                let chunk;
                (chunk, rest) = split(act, events_max);
                let Act::Unlink { events, .. } = chunk else { panic!("{chunk:?}") };
                chunks.push(events);
            }
            assert!(chunks.iter().all(|chunk| (1..=events_max).contains(&chunk.len())));
            assert_eq!(chunks.concat(), ids);
        }
    }

    #[test]
    fn who_is_late_takes_more_at_once() {
        let chunk = |millis| Pace::BESIDE_INGEST.chunk_events_max(Duration::from_millis(millis));
        assert_eq!([chunk(0), chunk(10), chunk(1_000)], [120, 180, CHUNK_EVENTS_MAX]);
    }
}
