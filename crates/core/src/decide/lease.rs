//! Tasks that one instance does for all: who has one, and what the others may not do meanwhile.

use std::time::Duration;

use super::step::Step;
use crate::node::LEASE_MAX;
use crate::{Fence, Holder, Lease, Outcome, Task, UnixMillis};

/// A lease that has run out is anybody's, and changes hands even if it comes back to the same.
pub(super) fn hold(
    step: &mut Step,
    at: UnixMillis,
    task: Task,
    holder: Holder,
    lease_ms: u32,
) -> Outcome {
    let mut node = step.node().clone();
    let known = node.leases.get(task);
    let held = known.filter(|lease| lease.is_held(at));
    if held.is_some_and(|lease| lease.holder != Some(holder)) {
        return Outcome::HeldElsewhere;
    }
    let fence = match held {
        Some(lease) => lease.fence,
        None => Fence(known.map_or(0, |lease| lease.fence.0) + 1),
    };
    let until = at.saturating_add(Duration::from_millis(lease_ms.into()).min(LEASE_MAX));
    let lease = Lease { fence, holder: Some(holder), until };
    node.leases.set(task, lease);
    step.set_node(node);
    Outcome::Held(lease)
}

pub(super) fn release(step: &mut Step, task: Task, holder: Holder) -> Outcome {
    let mut node = step.node().clone();
    let held = node.leases.get(task).filter(|lease| lease.holder == Some(holder));
    let Some(lease) = held else {
        return Outcome::HeldElsewhere;
    };
    node.leases.set(task, Lease { holder: None, ..lease });
    step.set_node(node);
    Outcome::Done
}

/// Whether the task is still in the hands it was in.
pub(super) fn holds(step: &Step, task: Task, fence: Fence) -> bool {
    let lease = step.node().leases.get(task);
    lease.is_some_and(|lease| lease.holder.is_some() && lease.fence == fence)
}
