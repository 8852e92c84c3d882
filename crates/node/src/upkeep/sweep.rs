//! Letting go of what a plan names, chunk by chunk. Each chunk is a few commands of its own, so that it can
//! stop between any two and others get their turn.

use kukuri_core::{
    Act, Fence, Look, Outcome, ReadSet, Removed, Task, UnixMillis, UnlinkReason, Usage,
};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::{Store, StoreError, name};
use tokio::time::Instant;

use super::{Aging, Beat};

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
    pub beat: &'a mut Beat,
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

/// How many events an act names that leave one after the other until there is room; `None` if all of them leave.
fn room_for(act: &Act) -> Option<u64> {
    match act {
        Act::Unlink { events, reason: UnlinkReason::Capacity, .. } | Act::Evict { events, .. } => {
            Some(events.len() as u64)
        }
        _ => None,
    }
}

impl Sweep<'_> {
    /// Lets go of all that a plan names there, and says how much that was; `told` hears of each chunk. It
    /// ends early when another instance has taken over, or when what is found does not leave.
    pub async fn run(
        &mut self,
        look: &Look,
        now: UnixMillis,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<(Usage, Ended), SweepError> {
        let mut total = Usage::default();
        while let Some(act) = name(self.store, look, now, self.beat.chunk_events_max()).await? {
            let room_for = room_for(&act);
            let removed = self.remove(vec![act]).await?.and_then(|mut one| one.pop());
            let Some(removed) = removed.filter(|removed| removed.events > 0) else { break };
            told(removed);
            self.rest(removed, &mut total).await;
            // Whoever has come meanwhile makes no reason to go on: there would always be one.
            if room_for.is_some_and(|events| removed.events < events) {
                break;
            }
            if self.is_over() {
                return Ok((total, Ended::OutOfTime));
            }
        }
        Ok((total, Ended::Done))
    }

    /// Lets go of what has aged, as far as it gets: what is known and not done by then waits there, and
    /// which topics could not be looked at is told there.
    pub async fn age(
        &mut self,
        aging: &mut Aging,
        told: &mut (dyn FnMut(Removed) + Send),
    ) -> Result<(Usage, Ended), SweepError> {
        let mut total = Usage::default();
        loop {
            while let Some(nth) = aging.blank() {
                aging.look(nth, self.store).await;
                if self.is_over() {
                    return Ok((total, Ended::OutOfTime));
                }
            }
            let (places, acts): (Vec<usize>, Vec<Act>) =
                aging.next(self.beat.chunk_events_max()).into_iter().unzip();
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
            self.rest(chunk, &mut total).await;
            if self.is_over() {
                return Ok((total, Ended::OutOfTime));
            }
        }
        Ok((total, Ended::Done))
    }

    /// Counts a chunk, and waits until the next one is due.
    async fn rest(&mut self, removed: Removed, total: &mut Usage) {
        total.events += removed.events;
        total.bytes += removed.bytes;
        self.beat.rest(removed.events).await;
    }

    /// What each of the commands has removed; `None` if another instance has taken over.
    async fn remove(&self, acts: Vec<Act>) -> Result<Option<Vec<Removed>>, SweepError> {
        let mut needs = ReadSet::default();
        acts.iter().for_each(|act| needs.add(act));
        self.store.foresee(needs.records).await;
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
