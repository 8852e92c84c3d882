//! A task that one instance does for all, as seen by one that would do it.

use std::time::Duration;

use kukuri_core::{Act, Holder, Lease, Outcome, Task};
use kukuri_lane::{Lane, LaneError};
use kukuri_store::Clock;

/// How long nobody else does a task after the last word of who does.
const LEASE_MS: u32 = 30_000;
/// A task that others wait for meanwhile.
const BRIEF_LEASE_MS: u32 = 10_000;

#[derive(Debug)]
pub struct Tenure {
    task: Task,
    holder: Holder,
    lease_ms: u32,
    held: Option<Lease>,
}

impl Tenure {
    pub fn new(task: Task) -> Self {
        Self { task, holder: Holder(rand::random()), lease_ms: LEASE_MS, held: None }
    }

    /// For a task that another instance should take up soon if this one is killed.
    pub fn brief(task: Task) -> Self {
        Self { lease_ms: BRIEF_LEASE_MS, ..Self::new(task) }
    }

    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Whether it was held when it was last asked for.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes or keeps the task; `None` if another instance has it.
    pub async fn hold(&mut self, lane: &Lane, clock: &Clock) -> Result<Option<Lease>, LaneError> {
        let now = clock();
        // Renewed once a third of it has passed.
        let renew_before = Duration::from_millis(u64::from(self.lease_ms) * 2 / 3);
        let fresh = |lease: &Lease| now.until(lease.until) > renew_before;
        if let Some(lease) = self.held.filter(fresh) {
            return Ok(Some(lease));
        }
        let act = Act::Hold { task: self.task, holder: self.holder, lease_ms: self.lease_ms };
        self.held = match lane.run(act).await? {
            Outcome::Held(lease) => Some(lease),
            _ => None,
        };
        Ok(self.held)
    }

    /// Lets another instance go on at once; this one may ask for it again.
    pub async fn give_up(&mut self, lane: &Lane) {
        self.held = None;
        release(lane, self.task, self.holder).await;
    }
}

/// Lets another instance go on at once.
pub async fn release(lane: &Lane, task: Task, holder: Holder) {
    // Without it, others wait until the lease has run out.
    let _ = lane.run(Act::Release { task, holder }).await;
}
