//! What an operator asks of a consumer. Each of it works beside a running node, on the tables alone.

use kukuri_core::{Cursor, CursorError, Op, ReadSet, Seq};
use kukuri_store::{FeedError, StoreError};

use super::chunk::Chunk;
use super::fault::Fault;
use super::{Runner, RunnerError};
use crate::ledger::{Mark, Parked, Role, Wish};
use crate::{Consumer, DeskError, Generation, Update, What};

/// Why what an operator asked for was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error(transparent)]
    Desk(#[from] DeskError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error("there is no generation to replay to yet: wait for the first one to be built")]
    NoActive,
    #[error("row {from} lies beyond what was read, row {last}: going there would skip rows")]
    Ahead { from: Seq, last: Seq },
    #[error("row {0} is not parked: consumer parked list")]
    NotParked(Seq),
    #[error("row {seq} still cannot be handled: {why}")]
    StillPoison { seq: Seq, why: String },
    #[error("no generation is being built")]
    NotBuilding,
    #[error("the state is still being read into generation {0}: it cannot be taken yet")]
    NotReady(Generation),
}

impl From<RunnerError> for OperateError {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Desk(error) => Self::Desk(error),
            RunnerError::Store(error) => Self::Store(error),
            RunnerError::Feed(error) => Self::Feed(error),
        }
    }
}

impl<C: Consumer> Runner<C> {
    /// Pauses the consumer in every process, or lets it go on, also from where it had halted.
    pub async fn wish(&self, wish: Wish) -> Result<(), OperateError> {
        let mut writing = self.shared.ledger.home.write().await?;
        self.shared.ledger.wish(writing.desk(), wish).await?;
        Ok(writing.commit().await?)
    }

    /// Handles rows again that are still in the feed, from this one on.
    pub async fn replay(&self, from: Seq) -> Result<(), OperateError> {
        let view = self.shared.ledger.view().await?;
        let active = view.with_role(Role::Active).ok_or(OperateError::NoActive)?;
        let bounds = self.shared.store.bounds().await?;
        let to = Cursor { epoch: active.cursor.epoch, seq: Seq(from.0 - 1) };
        bounds.check(to).map_err(FeedError::Cursor)?;
        let mut writing = self.shared.ledger.home.write().await?;
        if !self.shared.ledger.rewind(writing.desk(), active.generation, to).await? {
            return Err(OperateError::Ahead { from, last: active.cursor.seq });
        }
        Ok(writing.commit().await?)
    }

    /// Begins a new generation beside the one that is read, unless one is being built already. Whoever runs
    /// the consumer builds it.
    pub async fn begin_rebuild(&self) -> Result<Option<Generation>, OperateError> {
        Ok(self.shared.begin().await?)
    }

    /// Drops the generation that is being built.
    pub async fn cancel_rebuild(&self) -> Result<Generation, OperateError> {
        let building = self.building().await?;
        self.shared.discard(building).await?;
        Ok(building)
    }

    /// Lets a generation take over that differs from the one that is read.
    pub async fn accept_rebuild(&self) -> Result<Generation, OperateError> {
        let view = self.shared.ledger.view().await?;
        let building = view.with_role(Role::Building).ok_or(OperateError::NotBuilding)?;
        if building.scan.is_some() {
            return Err(OperateError::NotReady(building.generation));
        }
        let mut writing = self.shared.ledger.home.write().await?;
        self.shared.ledger.depose(writing.desk(), building.generation).await?;
        self.shared.ledger.switch(writing.desk(), building.generation).await?;
        writing.commit().await?;
        Ok(building.generation)
    }

    async fn building(&self) -> Result<Generation, OperateError> {
        let view = self.shared.ledger.view().await?;
        let building = view.with_role(Role::Building).ok_or(OperateError::NotBuilding)?;
        Ok(building.generation)
    }

    /// The rows that are parked, at most so many, in order.
    pub async fn parked(&self, rows_max: usize) -> Result<Vec<Parked>, OperateError> {
        Ok(self.shared.ledger.parked(rows_max).await?)
    }

    /// Forgets that a row was parked.
    pub async fn discard_parked(&self, parked: &Parked) -> Result<(), OperateError> {
        let mut writing = self.shared.ledger.home.write().await?;
        let desk = writing.desk();
        if !self.shared.ledger.unpark(desk, parked.generation, parked.seq).await? {
            return Err(OperateError::NotParked(parked.seq));
        }
        Ok(writing.commit().await?)
    }

    /// Tries a parked row again: what is the matter with its event in its topic now is written, whatever
    /// has happened to it meanwhile.
    pub async fn retry_parked(&self, parked: &Parked) -> Result<(), OperateError> {
        let update = self.update_of(parked).await?;
        let mark = Mark::State { scan: None };
        let chunk = Chunk { updates: vec![update], rows: 1, first: parked.seq, mark };
        let poison =
            |fault: Fault| OperateError::StillPoison { seq: parked.seq, why: fault.to_string() };
        let effects = self.shared.project(&chunk).map_err(poison)?;
        let mut writing = self.shared.ledger.home.write().await?;
        let desk = writing.desk();
        // Nobody moves the generation on meanwhile.
        self.shared.ledger.depose(desk, parked.generation).await?;
        if !self.shared.ledger.unpark(desk, parked.generation, parked.seq).await? {
            return Err(OperateError::NotParked(parked.seq));
        }
        if let Some(effects) = effects {
            let applied = self.shared.consumer.apply(desk, parked.generation, effects).await;
            applied.map_err(|error| match error {
                DeskError::Refused(_) => poison(error.into()),
                error => error.into(),
            })?;
        }
        Ok(writing.commit().await?)
    }

    async fn update_of(&self, parked: &Parked) -> Result<Update, OperateError> {
        let events = [parked.event_id].into();
        let facts = self.shared.store.facts(ReadSet { events, ..ReadSet::default() }).await?;
        let record = facts.records.into_values().flatten().next();
        let visible = record.filter(|record| record.is_effective());
        let shown = visible.iter().flat_map(Update::of_state);
        if let Some(update) = shown.into_iter().find(|update| update.topic_id == parked.topic_id) {
            return Ok(update);
        }
        let bounds = self.shared.store.bounds().await?;
        let before = Cursor { epoch: bounds.epoch, seq: Seq(parked.seq.0 - 1) };
        let row = self.shared.store.feed(before, 1).await?.into_iter().next();
        let row = row.filter(|row| row.event_id == parked.event_id);
        let row = row.ok_or(FeedError::Cursor(CursorError::Diverged { head: bounds.head }))?;
        let mut update = Update::of_row(row, None);
        if parked.op == Op::Upsert {
            // It is visible no longer, and its later delete found nothing to delete.
            update.what = What::Gone;
        }
        Ok(update)
    }
}
