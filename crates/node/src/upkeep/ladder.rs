//! The ladder of a running node, and what the node allows by it.

use kukuri_core::ladder::{DiskLoad, Dwell, Ladder, Load, Pressure, Standing, Step};
use kukuri_core::{Act, Allowance, Fence, NodeState, OnFull, Task};
use kukuri_store::Space;

use super::felt::{Felt, felt};
use super::{Disk, Keeper, UpkeepError, UpkeepSettings, space};

/// With so many times the reserve free on the disk, nobody has to know what more there could be.
const SPACE_ASKED_BELOW: u64 = 4;

impl Keeper {
    /// Lets the ladder follow the pressure, and tells every process what the node allows now.
    pub(super) async fn feel(&mut self, fence: Fence) -> Result<Felt, UpkeepError> {
        let (topics, mut node) = self.stats().await?;
        let (usage, lag_seconds) = (node.usage, *self.lag_seconds.borrow());
        let load = Load { usage, disk: self.disk_load().await, lag_seconds };
        let mut felt = felt(&self.settings, &topics, &load);
        if self.disk.is_some() && load.disk.is_none() && felt.pressure == Pressure::Low {
            // A disk that nobody sees may be as short as it was.
            felt.pressure = Pressure::Between;
        }
        let step = self.climb(&mut node, &felt.pressure, fence).await?;
        let UpkeepSettings { capacity, on_full, retention, disk_reserve_bytes, .. } = self.settings;
        let before = node.allowance.storage;
        let storage = space::seen(self.disk.as_ref(), before, disk_reserve_bytes);
        let allowance = Allowance { capacity, on_full, retention, step, storage };
        if storage != self.told {
            space::tell(storage);
            self.told = storage;
        }
        if allowance != node.allowance {
            let act = Box::new(Act::Allow(allowance));
            tracing::info!(before = ?node.allowance, after = ?allowance, "what the node allows has changed");
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        Ok(felt)
    }

    /// `None` if no disk is known, or it cannot be looked at.
    async fn disk_load(&self) -> Option<DiskLoad> {
        let free_bytes = self.disk.as_ref().and_then(Disk::free_bytes)?;
        let is_short =
            free_bytes < self.settings.disk_reserve_bytes.saturating_mul(SPACE_ASKED_BELOW);
        let space = match is_short {
            true => self.store.space().await,
            false => Ok(Space::default()),
        };
        // A store that cannot tell lets nothing leave for the disk; that this is short is felt all the same.
        let Space { vacant_bytes, held_bytes } = space.unwrap_or_else(|error| {
            tracing::debug!(%error, "nobody knows how much space can be given back");
            Space::default()
        });
        Some(DiskLoad { free_bytes, vacant_bytes, held_bytes })
    }

    /// Lets the ladder follow the pressure, and says where it stands. What the node knows of it goes along.
    async fn climb(
        &mut self,
        node: &mut NodeState,
        felt: &Pressure,
        fence: Fence,
    ) -> Result<Step, UpkeepError> {
        let standing =
            Standing { step: node.allowance.step, last_move: node.past.last_move.clone() };
        // What the store says holds; this process knows for how long the pressure has lasted.
        let known = self.ladder.take().filter(|ladder| *ladder.standing() == standing);
        // A node that refuses what is too much lets nothing leave for it.
        let top = match self.settings.on_full {
            OnFull::Evict => Step::EvictOldest,
            OnFull::Refuse => Step::StopLowPriority,
        };
        let mut ladder = known.unwrap_or_else(|| Ladder::resume(standing, Dwell::STANDARD, top));
        if let Some(moved) = ladder.observe((self.clock)(), felt) {
            tracing::warn!(from = moved.from.as_str(), to = moved.to.as_str(), reason = %moved.reason, "the ladder moved");
            node.allowance.step = moved.to;
            let act = Box::new(Act::Climb(moved));
            let _ = self.lane.run(Act::Fenced { task: Task::Upkeep, fence, act }).await?;
        }
        let step = ladder.step();
        self.ladder = Some(ladder);
        Ok(step)
    }
}
