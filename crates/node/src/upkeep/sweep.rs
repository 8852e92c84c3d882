//! Letting go of what a plan names, chunk by chunk. Each chunk is a command of its own, so that it can
//! stop between any two and others get their turn.

use std::time::Duration;

use kukuri_core::{
    Act, Cutoffs, Fence, Look, Outcome, Removed, Task, TopicId, UnixMillis, UnlinkReason, Usage,
};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::{Store, StoreError, name};
use tokio::time::{Instant, sleep_until};

/// Events that leave in one command.
pub const CHUNK_EVENTS_MAX: usize = 500;

/// How often events leave at a pace. Whoever publishes waits for the chunk that is in their batch, so that
/// many small ones cost them less than a few large ones.
const CHUNKS_PER_SECOND: u32 = 50;

/// Who keeps a pace and was held up catches up, but for no more than this.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Events that are looked for at once where most of what is found leaves: whoever looks passes by what
/// stays, and by what has left and was not cleared away yet.
const LOOK_EVENTS_MAX: usize = 16 * CHUNK_EVENTS_MAX;

/// How fast events leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At most so many per second, so that ingest keeps its rate.
    EventsPerSecond(u32),
    /// As fast as it goes.
    Unbounded,
}

impl Pace {
    pub const BESIDE_INGEST: Self = Self::EventsPerSecond(5_500);

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

/// What leaves.
#[derive(Clone, Debug)]
pub enum Target {
    /// What a plan names.
    Planned(Look),
    /// What was taken into a topic before a time, whatever the topic keeps. A cutoff is the last moment
    /// that counts.
    Before { topic: TopicId, before: UnixMillis },
}

impl Target {
    /// What to do about some of it; `None` if there is none.
    async fn next(&self, store: &dyn Store, now: UnixMillis) -> Result<Option<Act>, StoreError> {
        let (topic, before) = match self {
            Self::Planned(look @ Look::Aged { .. }) => {
                return name(store, look, now, LOOK_EVENTS_MAX).await;
            }
            Self::Planned(look) => return name(store, look, now, CHUNK_EVENTS_MAX).await,
            Self::Before { topic, before } => (topic, *before),
        };
        let cutoffs = cutoffs_before(before);
        let events = store.aged(topic.clone(), cutoffs, LOOK_EVENTS_MAX).await?;
        let (topic, reason) = (topic.clone(), UnlinkReason::Before(before));
        Ok((!events.is_empty()).then_some(Act::Unlink { topic, events, reason }))
    }
}

/// What was taken in before a time.
pub fn cutoffs_before(time: UnixMillis) -> Cutoffs {
    Cutoffs::all(UnixMillis(time.0.saturating_sub(1)))
}

impl Sweep<'_> {
    /// Lets go of all that is found, and says how much that was; `told` hears of each chunk. It ends early
    /// when another instance has taken over, or when what is found does not leave.
    pub async fn run(
        &self,
        target: &Target,
        now: UnixMillis,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<(Usage, Ended), SweepError> {
        let (mut total, mut due) = (Usage::default(), Instant::now());
        while let Some(act) = target.next(self.store, now).await? {
            let before = total.events;
            let mut rest = Some(act);
            while let Some(act) = rest.take() {
                let late = Instant::now().saturating_duration_since(due);
                let chunk;
                (chunk, rest) = split(act, self.pace.chunk_events_max(late));
                let Outcome::Removed(removed) = self.lane.run(self.fenced(chunk)).await? else {
                    return Ok((total, Ended::Done));
                };
                if removed.events == 0 {
                    break;
                }
                total.events += removed.events;
                total.bytes += removed.bytes;
                told(removed);
                due = due.max(earliest()) + self.pace.duration(removed.events);
                sleep_until(due).await;
                if self.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok((total, Ended::OutOfTime));
                }
            }
            if total.events == before {
                break;
            }
        }
        Ok((total, Ended::Done))
    }

    fn fenced(&self, act: Act) -> Act {
        match self.fence {
            Some(fence) => Act::Fenced { task: Task::Upkeep, fence, act: Box::new(act) },
            None => act,
        }
    }
}

/// What was due before that is not made up for.
fn earliest() -> Instant {
    let now = Instant::now();
    now.checked_sub(LATE_MAX).unwrap_or(now)
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
    use kukuri_event::EventId;

    use super::*;

    #[test]
    fn a_pace_is_kept_in_small_chunks_that_leave_nothing_out() {
        let ids: Vec<EventId> = (0..=250_u8).map(|nth| EventId::from_bytes([nth; 32])).collect();
        let reason = UnlinkReason::Retention;
        for (pace, events_max) in [
            (Pace::EventsPerSecond(1), 1),
            (Pace::EventsPerSecond(5_500), 110),
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
        assert_eq!([chunk(0), chunk(10), chunk(1_000)], [110, 165, CHUNK_EVENTS_MAX]);
    }
}
