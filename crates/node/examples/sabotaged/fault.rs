//! What is done wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kukuri_core::{Act, Command, Decision, FeedRow, Op, View, decide, follow_up, needs};
use kukuri_store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::behind::Database;

pub enum Fault {
    /// Answers first, and commits a batch when the next one comes.
    AckBeforeCommit { waiting: Mutex<Option<Arc<[Command]>>> },
    /// Takes the newest feed row away, so that its number is given again.
    ReusedSeq { database: Database },
    /// Takes one feed row away that is not the newest.
    DroppedRow { database: Database, done: AtomicBool },
}

impl Fault {
    pub fn named(name: &str, database: Database) -> Fault {
        match name {
            "ack-before-commit" => Fault::AckBeforeCommit { waiting: Mutex::new(None) },
            "reused-seq" => Fault::ReusedSeq { database },
            "dropped-row" => Fault::DroppedRow { database, done: AtomicBool::new(false) },
            _ => panic!("no fault has the name {name}"),
        }
    }

    pub async fn apply(
        &self,
        store: &dyn Store,
        batch: Arc<[Command]>,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::AckBeforeCommit { waiting } => {
                let mut waiting = waiting.lock().await;
                if let Some(earlier) = waiting.take() {
                    store.apply(earlier).await?;
                }
                let decision = foresee(store, &batch).await?;
                *waiting = Some(batch);
                Ok(decision)
            }
            Self::ReusedSeq { database } => {
                let mut commands = batch.to_vec();
                let last = commands.len() - 1;
                let linked_twice = commands.iter().rposition(is_linked_twice).unwrap_or(last);
                commands.swap(linked_twice, last);
                let mut decision = store.apply(commands.into()).await?;
                decision.outcomes.swap(linked_twice, last);
                if let Some(row) = decision.rows.last().filter(|row| is_nobodys_number(row)) {
                    database.remove_row(row.seq).await;
                }
                Ok(decision)
            }
            Self::DroppedRow { database, done } => {
                let decision = store.apply(batch).await?;
                if let [row, _, ..] = &decision.rows[..]
                    && !done.swap(true, Ordering::Relaxed)
                {
                    database.remove_row(row.seq).await;
                }
                Ok(decision)
            }
        }
    }
}

/// What the batch would come to.
async fn foresee(store: &dyn Store, batch: &[Command]) -> Result<Decision, StoreError> {
    let bounds = store.bounds().await?;
    let mut facts = store.facts(needs(batch)).await?;
    facts.extend(store.facts(follow_up(batch, &facts)).await?);
    Ok(decide(View::new(facts), bounds, batch))
}

/// Whether the last row of an event is not its first.
fn is_linked_twice(command: &Command) -> bool {
    matches!(&command.act, Act::Publish(admitted) if admitted.topics().len() > 1)
}

/// An event's first row is also the number of its record, which cannot be given twice without an
/// error. Its other rows, and deletes, can.
fn is_nobodys_number(row: &FeedRow) -> bool {
    row.op == Op::Delete || !row.prior.is_empty()
}
