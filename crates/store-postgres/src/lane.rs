//! The lane's own connection: a batch from lock to commit.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Command, Decision, Epoch, Seq, View, decide, follow_up, needs};
use sqlx::postgres::PgConnection;
use sqlx::raw_sql;

use crate::error::Fault;
use crate::partition::Partitions;
use crate::session::{Role, Server};
use crate::subscriptions::Topics;
use crate::write::write;
use crate::{Fsync, bounds, facts};

/// "cn_relay" in ASCII. Advisory locks belong to one database, so the schema is all there is to name.
pub(crate) const LOCK_KEY: i64 = 7_164_769_002_125_549_945;

/// How long one try may take: connecting (10 s), waiting for the lock (5 s), and some statements of
/// far less than a second each. It ends before the lane gives up on a store that is stuck
/// (`apply_wait_max`, 30 s), so that the lane always learns why.
pub(crate) const APPLY_LIMIT: Duration = Duration::from_secs(25);

/// Whoever gets the lock sees all that its last holder wrote: the statements after this one take
/// snapshots of their own, whatever isolation the server offers by itself.
const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(7164769002125549945)";

pub(crate) struct Session {
    connection: PgConnection,
    partitions: Partitions,
    epoch: Epoch,
    /// A head that this session has seen.
    head: Seq,
}

impl Session {
    pub async fn open(
        server: &Server,
        fsync: Fsync,
        epoch: Epoch,
        outbox_partition_rows: u32,
    ) -> Result<Self, Fault> {
        let mut connection = server.connect(Role::Lane(fsync)).await?;
        let partitions = Partitions::load(&mut connection, outbox_partition_rows).await?;
        Ok(Self { connection, partitions, epoch, head: Seq::ZERO })
    }

    /// Runs a batch. After an error the session is of unknown state and must be dropped.
    pub async fn run(
        &mut self,
        batch: &Arc<[Command]>,
        topics: &Topics,
    ) -> Result<Decision, Fault> {
        self.partitions.prepare(&mut self.connection, batch, self.head).await?;
        loop {
            if let Some(decision) = self.attempt(batch, topics).await? {
                self.head = decision.head();
                return Ok(decision);
            }
        }
    }

    /// `None` if the feed ran out of partitions, which are there now.
    async fn attempt(
        &mut self,
        batch: &[Command],
        topics: &Topics,
    ) -> Result<Option<Decision>, Fault> {
        let connection = &mut self.connection;
        let bounds = bounds::begin(connection, BEGIN, self.epoch, self.head).await?;
        let version = bounds.topics_version;
        let mut facts = facts::load(connection, topics, version, &needs(batch)).await?;
        let more = follow_up(batch, &facts);
        facts.extend(facts::load(connection, topics, version, &more).await?);
        let decision = decide(View::new(facts), bounds.feed, batch);
        if decision.is_empty() {
            raw_sql("ROLLBACK").execute(connection).await?;
            return Ok(Some(decision));
        }
        if !self.partitions.hold(decision.head()) {
            raw_sql("ROLLBACK").execute(&mut *connection).await?;
            self.partitions.extend(connection, decision.head()).await?;
            return Ok(None);
        }
        let added = write(connection, &topics.numbers, &decision).await?;
        raw_sql("COMMIT").execute(connection).await?;
        topics.numbers.commit(added);
        Ok(Some(decision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_named_after_the_schema() {
        assert_eq!(LOCK_KEY.to_be_bytes(), *b"cn_relay");
        assert!(BEGIN.ends_with(&format!("({LOCK_KEY})")));
    }
}
