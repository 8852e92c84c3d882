//! The end of a rebuild: the new generation is compared with the old one at the same row, and takes over.

use super::doubt::Doubt;
use super::fault::Fault;
use super::worker::Next;
use super::{Shared, Step};
use crate::ledger::{GenerationState, Hold, Role, Wish};
use crate::{Consumer, Desk, Digest, Generation, Sample};

impl<C: Consumer> Shared<C> {
    /// Lets a generation that has read everything take over, if it holds what the active one holds.
    pub(super) async fn finish(&self, hold: &mut Hold, doubt: &mut Doubt) -> Result<Next, Fault> {
        let view = self.ledger.view().await?;
        let active = view.with_role(Role::Active);
        let comparable =
            active.filter(|active| view.wish == Wish::Running && self.compares(active, hold));
        match comparable {
            // It comes after, if it lives; who waits for it looks again.
            Some(active) if active.cursor.seq < hold.cursor.seq => Ok(Next::Wait),
            Some(_) => self.compare_and_switch(hold, doubt).await,
            None => {
                if let Some(active) = active {
                    tracing::warn!(
                        consumer = %self.consumer.name(),
                        old = %active.generation,
                        new = %hold.generation,
                        "a generation takes over that cannot be compared with the old one, which stands still or is of another version"
                    );
                }
                self.switch_only(hold).await
            }
        }
    }

    fn compares(&self, active: &GenerationState, hold: &Hold) -> bool {
        active.halted.is_none()
            && active.version == hold.version
            && active.cursor.epoch == hold.cursor.epoch
    }

    async fn switch_only(&self, hold: &mut Hold) -> Result<Next, Fault> {
        let mut writing = self.ledger.home.write().await?;
        self.ledger.lock_active(writing.desk()).await?;
        if self.still(writing.desk(), hold).await? {
            self.ledger.switch(writing.desk(), hold.generation).await?;
            self.reach(Step::Switched);
            self.commit(writing).await?;
            hold.role = Role::Active;
            return Ok(Next::More);
        }
        Err(Fault::Fenced)
    }

    /// All in one transaction, during which the old generation stays where it is: the new one comes to the
    /// same row, both are looked at, and the new one takes over.
    async fn compare_and_switch(&self, hold: &mut Hold, doubt: &mut Doubt) -> Result<Next, Fault> {
        let mut writing = self.ledger.home.write().await?;
        let Some((old, at)) = self.ledger.lock_active(writing.desk()).await? else {
            return Ok(Next::More);
        };
        let behind = usize::try_from(at.0 - hold.cursor.seq.0).unwrap_or(0);
        if at < hold.cursor.seq || behind > self.config.batch_rows_max {
            writing.roll_back().await?;
            return Ok(if at < hold.cursor.seq { Next::Wait } else { Next::More });
        }
        let mut moved = hold.clone();
        while moved.cursor.seq < at {
            let left = usize::try_from(at.0 - moved.cursor.seq.0).unwrap_or(0);
            let Some(chunk) = self.next_of_feed(moved.cursor, left).await? else {
                return Ok(Next::More);
            };
            let effects = self.project(&chunk);
            // A row that fails is found on the way that every other goes.
            let Ok(effects) = effects else { return self.leave(writing).await };
            match self.write(writing.desk(), &moved, &chunk, effects).await {
                Err(Fault::Poison(_)) => return self.leave(writing).await,
                done => done?,
            }
            moved = moved.moved(&chunk.mark);
        }
        if !self.still(writing.desk(), &moved).await? {
            return Err(Fault::Fenced);
        }
        // Both stay as they are from here on. Without a row beyond this one, neither can have seen more.
        let settled = self.store.bounds().await?.head == at;
        let sample = doubt.sample(at, rand::random());
        let (was, is) = self.digests(writing.desk(), old, hold.generation, sample).await?;
        self.reach(Step::Compared);
        if was != is {
            writing.roll_back().await?;
            let differences = doubt.differs(sample);
            if !settled && differences < self.config.differences_max {
                tracing::warn!(consumer = %self.consumer.name(), %old, new = %hold.generation, %at, differences, "a generation differs from the active one, which has more rows to come: it is compared again");
                return Ok(Next::Wait);
            }
            let place = if settled { "at" } else { "again and again, now at" };
            return Err(Fault::Broken(format!(
                "generation {} differs from {old} {place} row {at}: {} rows and hash {:016x} against {} and {:016x}; \
                 `consumer rebuild {name} --accept` takes it all the same, `--cancel` drops it",
                hold.generation,
                is.rows,
                is.hash,
                was.rows,
                was.hash,
                name = self.consumer.name(),
            )));
        }
        self.ledger.switch(writing.desk(), hold.generation).await?;
        self.reach(Step::Switched);
        self.commit(writing).await?;
        tracing::info!(consumer = %self.consumer.name(), %old, new = %hold.generation, rows = is.rows, "a generation takes over");
        *hold = moved;
        hold.role = Role::Active;
        Ok(Next::More)
    }

    async fn leave(&self, writing: crate::Writing) -> Result<Next, Fault> {
        writing.roll_back().await?;
        Ok(Next::More)
    }

    /// Whether the generation is still this instance's, and stays so until the transaction ends.
    async fn still(&self, desk: &mut Desk, hold: &Hold) -> Result<bool, Fault> {
        Ok(self.ledger.lock_own(desk, hold).await?)
    }

    async fn digests(
        &self,
        desk: &mut Desk,
        old: Generation,
        new: Generation,
        sample: Sample,
    ) -> Result<(Digest, Digest), Fault> {
        let was = self.consumer.digest(desk, old, sample).await?;
        Ok((was, self.consumer.digest(desk, new, sample).await?))
    }
}
