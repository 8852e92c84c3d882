//! The lane's own connection: a batch from its first look to its commit.
//!
//! The one row of the table `lane` counts batches, and every batch changes it: who writes compares it
//! with what it has read. As a rule nobody else writes: then what the last batch left behind is still true,
//! and a batch of events that are new, or leave and were foreseen, is one statement, which writes and commits unless one
//! of the former is there already. Where one is, or others are replaced, a statement reads first and another one writes. Where
//! somebody else writes, a batch locks the row before it looks, and others wait for it.

pub(crate) mod foresight;
mod known;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Command, Decision, Epoch, ReadSet, Seq, View, decide, follow_up, needs};
use sqlx::postgres::PgConnection;
use sqlx::raw_sql;

use crate::Fsync;
use crate::bounds::Expected;
use crate::error::Fault;
use crate::facts;
use crate::partition::Partitions;
use crate::session::{Role, Server};
use crate::subscriptions::Topics;
use crate::write::{Places, Premise, topics_of, write};
use foresight::{Changed, Foreseen, Foresight};
use known::{Known, new_or_leaving};

/// How long one try may take: connecting (10 s), waiting for the fence and then for the lock (5 s each), and
/// some statements of far less than a second each. It ends before the lane gives up on a store that is stuck
/// (`apply_wait_max`, 30 s), so that the lane always learns why.
pub(crate) const APPLY_LIMIT: Duration = Duration::from_secs(25);

/// Whoever gets the lock sees all that its last holder wrote: the statements after this one take
/// snapshots of their own, whatever isolation the server offers by itself.
const BEGIN_LOCKED: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT revision FROM lane WHERE one FOR UPDATE";

/// How many batches lock before they look once another writer was met: where several write, who only
/// hopes for the best does most of its work in vain.
const CROWDED_BATCHES: u32 = 64;

/// How many batches look before they write once an event was met that is there already: who sends some
/// again, sends more of them.
const DOUBTFUL_BATCHES: u32 = 16;

pub(crate) struct Session {
    connection: PgConnection,
    partitions: Partitions,
    /// The feed, and a head that this session has seen.
    expected: Expected,
    /// What the last batch has left behind.
    known: Option<Known>,
    /// What was looked up for batches to come, and what has changed since.
    foresight: Arc<Foresight>,
    changed: Changed,
    /// How many more batches lock before they look.
    crowded_batches: u32,
    /// How many more batches look before they write.
    doubtful_batches: u32,
}

/// What came of a try to write without a lock.
enum Written {
    Done,
    /// A topic has no number yet, or a row no partition: nothing was tried.
    NotThere,
    /// What the decision was made by is no longer so.
    Overtaken,
}

impl Session {
    pub async fn open(
        server: &Server,
        fsync: Fsync,
        epoch: Epoch,
        partition_rows_min: u32,
        foresight: Arc<Foresight>,
    ) -> Result<Self, Fault> {
        let mut connection = server.connect(Role::Lane(fsync)).await?;
        let partitions = Partitions::load(&mut connection, partition_rows_min).await?;
        let expected = Expected { epoch, head: Seq::ZERO };
        Ok(Self {
            connection,
            partitions,
            expected,
            known: None,
            foresight,
            changed: Changed::default(),
            crowded_batches: 0,
            doubtful_batches: 0,
        })
    }

    /// Runs a batch. After an error the session is of unknown state and must be dropped.
    pub async fn run(
        &mut self,
        batch: &Arc<[Command]>,
        topics: &Topics,
    ) -> Result<Decision, Fault> {
        self.partitions.prepare(&mut self.connection, self.expected.head).await?;
        let mut decision = None;
        if self.crowded_batches == 0 {
            let needs = needs(batch);
            let mut foreseen = self.foresight.take(&needs);
            decision = self.run_unseen(batch, topics, &needs, &mut foreseen).await?;
            if decision.is_none() {
                decision = self.run_free(batch, topics, needs, foreseen).await?;
            }
        }
        let decision = match decision {
            Some(decision) => decision,
            None => self.run_locked(batch, topics).await?,
        };
        self.expected.head = decision.head();
        Ok(decision)
    }

    /// Writes without a look, by what the last batch has left behind and what was foreseen; `None` if nothing was
    /// written because that is not enough.
    async fn run_unseen(
        &mut self,
        batch: &[Command],
        topics: &Topics,
        needs: &ReadSet,
        foreseen: &mut Option<Foreseen>,
    ) -> Result<Option<Decision>, Fault> {
        if self.doubtful_batches > 0 {
            self.doubtful_batches -= 1;
            return Ok(None);
        }
        if !new_or_leaving(batch) {
            return Ok(None);
        }
        let Some(known) = &self.known else { return Ok(None) };
        let Some(mut facts) = known.facts(needs, topics) else { return Ok(None) };
        if !needs.records.is_empty() {
            let tells_all = |foreseen: &mut Foreseen| {
                foreseen.has_all(&needs.records)
                    && foreseen.is_true_at(known.revision(), &self.changed)
                    && follow_up(batch, foreseen.facts()).is_empty()
            };
            let Some(foreseen) = foreseen.take_if(tells_all) else { return Ok(None) };
            facts.extend(foreseen.into_facts());
        }
        let decision = decide(View::new(facts), known.feed(), batch);
        // What changes nothing is not compared with the store.
        if decision.is_empty() {
            return Ok(None);
        }
        let revision = known.revision();
        Ok(match self.write(topics, &decision, revision, Some(needs)).await? {
            Written::Done => Some(decision),
            Written::NotThere => None,
            Written::Overtaken => {
                self.doubtful_batches = DOUBTFUL_BATCHES;
                None
            }
        })
    }

    /// Looks and writes without a lock; `None` if nothing was written because that is not enough.
    async fn run_free(
        &mut self,
        batch: &[Command],
        topics: &Topics,
        needs: ReadSet,
        foreseen: Option<Foreseen>,
    ) -> Result<Option<Decision>, Fault> {
        let before = foreseen.map(|foreseen| (foreseen, &self.changed));
        let (connection, expected) = (&mut self.connection, self.expected);
        let loaded = facts::load_free(connection, topics, expected, batch, needs, before).await?;
        let Some(loaded) = loaded else { return Ok(None) };
        self.known = Some(Known::of(&loaded, self.known.take()));
        let (revision, feed) = (loaded.revision, loaded.bounds.feed);
        let decision = decide(View::new(loaded.facts), feed, batch);
        if decision.is_empty() {
            return Ok(Some(decision));
        }
        Ok(match self.write(topics, &decision, revision, None).await? {
            Written::Done => Some(decision),
            Written::NotThere => None,
            Written::Overtaken => {
                self.crowded_batches = CROWDED_BATCHES;
                None
            }
        })
    }

    /// Writes what was decided at a revision, if it is still that one and all of `absent` is absent.
    async fn write(
        &mut self,
        topics: &Topics,
        decision: &Decision,
        revision: i64,
        absent: Option<&ReadSet>,
    ) -> Result<Written, Fault> {
        let numbers = topics.numbers.assigned(&topics_of(decision));
        let Some(numbers) = numbers.filter(|_| self.partitions.hold(decision.head())) else {
            return Ok(Written::NotThere);
        };
        let premise = Premise { revision, epoch: self.expected.epoch, absent };
        let places = Places { numbers: &numbers, partitions: &self.partitions };
        match write(&mut self.connection, places, decision, premise).await {
            Ok(()) => {
                self.changed.add(revision, decision);
                self.known = self.known.take().and_then(|known| known.after(decision));
                Ok(Written::Done)
            }
            Err(Fault::Fenced) => Ok(Written::Overtaken),
            Err(fault) => Err(fault),
        }
    }

    async fn run_locked(&mut self, batch: &[Command], topics: &Topics) -> Result<Decision, Fault> {
        self.crowded_batches = self.crowded_batches.saturating_sub(1);
        // Under the lock everything is read anew.
        self.foresight.clear();
        loop {
            let connection = &mut self.connection;
            raw_sql(BEGIN_LOCKED).execute(&mut *connection).await?;
            let loaded = facts::load_all(connection, topics, self.expected, batch).await?;
            self.known = Some(Known::of(&loaded, self.known.take()));
            let (revision, feed) = (loaded.revision, loaded.bounds.feed);
            let decision = decide(View::new(loaded.facts), feed, batch);
            if decision.is_empty() {
                raw_sql("ROLLBACK").execute(connection).await?;
                return Ok(decision);
            }
            if !self.partitions.hold(decision.head()) {
                raw_sql("ROLLBACK").execute(&mut *connection).await?;
                self.partitions.extend(connection, decision.head()).await?;
                continue;
            }
            let numbers = topics.numbers.assign(connection, &topics_of(&decision)).await?;
            let premise = Premise { revision, epoch: feed.epoch, absent: None };
            let places = Places { numbers: &numbers, partitions: &self.partitions };
            write(connection, places, &decision, premise).await?;
            raw_sql("COMMIT").execute(connection).await?;
            topics.numbers.commit(numbers);
            self.changed.add(revision, &decision);
            self.known = self.known.take().and_then(|known| known.after(&decision));
            return Ok(decision);
        }
    }
}
