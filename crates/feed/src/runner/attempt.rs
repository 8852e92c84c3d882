//! Handling a chunk: projected, then written with the offset in one transaction, or put aside in one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::chunk::Chunk;
use super::fault::Fault;
use super::{Shared, Step};
use crate::ledger::Hold;
use crate::{Consumer, Desk, Writing};

impl<C: Consumer> Shared<C> {
    pub(super) async fn attempt(&self, hold: &Hold, chunk: &Chunk) -> Result<(), Fault> {
        let effects = self.project(chunk)?;
        self.reach(Step::Projected);
        let mut writing = self.ledger.home.write().await?;
        self.reach(Step::Begun);
        match self.write(writing.desk(), hold, chunk, effects).await {
            Ok(()) => self.commit(writing).await,
            Err(fault) => {
                // A connection that cannot even do this is closed with the drop.
                let _ = writing.roll_back().await;
                Err(fault)
            }
        }
    }

    /// Nothing to write is no effects at all.
    pub(super) fn project(&self, chunk: &Chunk) -> Result<Option<C::Effects>, Fault> {
        if chunk.updates.is_empty() {
            return Ok(None);
        }
        // It has no state that a panic could leave half changed.
        let projected = catch_unwind(AssertUnwindSafe(|| self.consumer.project(&chunk.updates)));
        match projected {
            Ok(projected) => Ok(Some(projected?)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Fault::Poison(format!("panicked: {}", text.unwrap_or("without a word"))))
            }
        }
    }

    pub(super) async fn write(
        &self,
        desk: &mut Desk,
        hold: &Hold,
        chunk: &Chunk,
        effects: Option<C::Effects>,
    ) -> Result<(), Fault> {
        if !self.ledger.advance(desk, hold, &chunk.mark).await? {
            return Err(Fault::Fenced);
        }
        self.reach(Step::Advanced);
        if let Some(effects) = effects {
            self.consumer.apply(desk, hold.generation, effects).await?;
        }
        self.reach(Step::Applied);
        Ok(())
    }

    pub(super) async fn commit(&self, writing: Writing) -> Result<(), Fault> {
        // Whatever a commit fails of, it says nothing about the rows.
        writing.commit().await.map_err(|error| Fault::Away(error.to_string()))?;
        self.reach(Step::Committed);
        Ok(())
    }

    /// Moves past a chunk without its effects, and remembers what was left out.
    pub(super) async fn park(
        &self,
        hold: &Hold,
        chunk: &Chunk,
        reason: &str,
        tries: i64,
    ) -> Result<(), Fault> {
        let mut writing = self.ledger.home.write().await?;
        let desk = writing.desk();
        if !self.ledger.advance(desk, hold, &chunk.mark).await? {
            return Err(Fault::Fenced);
        }
        for update in &chunk.updates {
            self.ledger.park(desk, hold, update, (reason, tries)).await?;
            tracing::error!(
                consumer = %self.consumer.name(),
                seq = %update.seq,
                event = %update.event_id,
                reason,
                "a row is parked: consumer parked list"
            );
        }
        self.reach(Step::Parked);
        self.commit(writing).await
    }
}
