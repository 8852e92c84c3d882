//! The pace at which events leave, whatever the reason. It waits, and knows nothing of stores.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Events that leave at once.
pub const CHUNK_EVENTS_MAX: usize = 500;

/// How often events leave at a pace. Whoever publishes waits for the chunk that is in their batch; but what is
/// written once for a chunk, in each topic and index, is written less often the larger it is.
const CHUNKS_PER_SECOND: u32 = 12;

/// Who keeps a pace and was held up makes up for it, but not for what was missed before this.
const LATE_MAX: Duration = Duration::from_secs(2);

/// How fast events leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many per second, so that ingest keeps its rate.
    EventsPerSecond(u32),
    /// As fast as it goes.
    Unbounded,
}

impl Pace {
    /// Somewhat more than the 5 000 that are promised: who is held up, as by SQLite while it writes the index rows
    /// of many new events at once, makes up for it only afterwards.
    pub const BESIDE_INGEST: Self = Self::EventsPerSecond(5_200);

    fn duration(self, events: u64) -> Duration {
        match self {
            Self::EventsPerSecond(rate) => {
                Duration::from_secs_f64(events as f64 / f64::from(rate.max(1)))
            }
            Self::Unbounded => Duration::ZERO,
        }
    }
}

/// Who keeps a pace, from one sweep to the next: the time that other work takes in between is made up for.
#[derive(Debug)]
pub struct Beat {
    pace: Pace,
    /// When the next events are to leave; `None` if nobody can be late.
    due: Option<Instant>,
}

impl Beat {
    pub fn new(pace: Pace) -> Self {
        Self { pace, due: None }
    }

    /// Nothing that was missed so far is made up for.
    pub(super) fn begin_anew(&mut self) {
        self.due = None;
    }

    /// Events that leave next. Who is late takes more of them, and does not rest until it has caught up.
    pub(super) fn chunk_events_max(&self) -> usize {
        let Pace::EventsPerSecond(rate) = self.pace else { return CHUNK_EVENTS_MAX };
        let late = self.due.map_or(Duration::ZERO, |due| due.elapsed());
        let missed = (late.as_secs_f64() * f64::from(rate)) as usize;
        let events = usize::try_from(rate / CHUNKS_PER_SECOND).unwrap_or(CHUNK_EVENTS_MAX);
        events.saturating_add(missed).clamp(1, CHUNK_EVENTS_MAX)
    }

    /// Waits until the next events are to leave, after so many.
    pub(super) async fn rest(&mut self, events: u64) {
        let now = Instant::now();
        let earliest = now.checked_sub(LATE_MAX).unwrap_or(now);
        let due = self.due.unwrap_or(now).max(earliest) + self.pace.duration(events);
        self.due = Some(due);
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn events_per_second(rate: u32) -> Beat {
        Beat::new(Pace::EventsPerSecond(rate))
    }

    /// Lets go of a tenth of a second's events until it has to wait, and says how often that was.
    async fn chunks_until_rest(beat: &mut Beat) -> u32 {
        let begun = Instant::now();
        let mut chunks = 0;
        while begun.elapsed() == Duration::ZERO {
            beat.rest(100).await;
            chunks += 1;
        }
        chunks
    }

    #[test]
    fn a_chunk_is_a_part_of_a_second_and_not_too_large() {
        for (beat, events_max) in [
            (events_per_second(1), 1),
            (events_per_second(1_200), 100),
            (events_per_second(u32::MAX), CHUNK_EVENTS_MAX),
            (Beat::new(Pace::Unbounded), CHUNK_EVENTS_MAX),
        ] {
            assert_eq!(beat.chunk_events_max(), events_max, "{beat:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_late_takes_more_at_once() {
        let mut beat = events_per_second(1_200);
        beat.rest(1).await;
        let mut chunks = vec![beat.chunk_events_max()];
        for millis in [10, 323, 1, 10_000] {
            advance(Duration::from_millis(millis)).await;
            chunks.push(beat.chunk_events_max());
        }
        assert_eq!(chunks, [100, 112, 499, CHUNK_EVENTS_MAX, CHUNK_EVENTS_MAX]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_other_work_takes_is_made_up_for() {
        let mut beat = events_per_second(1_000);
        assert_eq!(chunks_until_rest(&mut beat).await, 1);
        advance(Duration::from_millis(500)).await;
        assert_eq!(chunks_until_rest(&mut beat).await, 5 + 1);
        advance(10 * LATE_MAX).await;
        let made_up_for = chunks_until_rest(&mut beat).await - 1;
        assert_eq!(Duration::from_millis(100) * made_up_for, LATE_MAX, "and no more than this");
        advance(LATE_MAX).await;
        beat.begin_anew();
        assert_eq!(chunks_until_rest(&mut beat).await, 1);
    }
}
