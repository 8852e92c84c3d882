//! The ladder of a running node, and what the node allows by it.

use kukuri_core::ladder::{Dwell, Ladder, Load, Pressure, Standing, Step};
use kukuri_core::{Act, Allowance, Fence, NodeState, Task};

use super::{Disk, Keeper, UpkeepError, UpkeepSettings, felt, space};

impl Keeper {
    /// Lets the ladder follow the pressure, and tells every process what the node allows now.
    pub(super) async fn feel(&mut self, fence: Fence) -> Result<Pressure, UpkeepError> {
        let (topics, node) = self.stats().await?;
        let free_bytes = self.disk.as_ref().and_then(Disk::free_bytes);
        let load = Load {
            usage: node.usage,
            disk_free_bytes: free_bytes,
            lag_seconds: *self.lag_seconds.borrow(),
        };
        let felt = felt::felt(&self.settings, &topics, &load);
        let step = self.climb(&node, &felt, fence).await?;
        let UpkeepSettings { capacity, on_full, retention, disk_reserve_bytes, .. } = self.settings;
        let storage = space::storage(node.allowance.storage, free_bytes, disk_reserve_bytes);
        let allowance = Allowance { capacity, on_full, retention, step, storage };
        if allowance != (Allowance { step, ..node.allowance }) {
            if storage != node.allowance.storage {
                space::tell(storage);
            }
            let act = Box::new(Act::Allow(allowance));
            tracing::info!(before = ?node.allowance, after = ?allowance, "what the node allows has changed");
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        Ok(felt)
    }

    /// Lets the ladder follow the pressure, and says where it stands.
    async fn climb(
        &mut self,
        node: &NodeState,
        felt: &Pressure,
        fence: Fence,
    ) -> Result<Step, UpkeepError> {
        let standing =
            Standing { step: node.allowance.step, last_move: node.past.last_move.clone() };
        // What the store says holds; this process knows for how long the pressure has lasted.
        let known = self.ladder.take().filter(|ladder| *ladder.standing() == standing);
        let mut ladder = known.unwrap_or_else(|| Ladder::resume(standing, Dwell::STANDARD));
        if let Some(moved) = ladder.observe((self.clock)(), felt) {
            tracing::warn!(from = moved.from.as_str(), to = moved.to.as_str(), reason = %moved.reason, "the ladder moved");
            let act = Box::new(Act::Climb(moved));
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        let step = ladder.step();
        self.ladder = Some(ladder);
        Ok(step)
    }
}
