//! Writing a decision: one statement, with a part per table and kind of change, over arrays. Every
//! part says how many rows it means, and a different count is an error: there is nothing left to
//! choose, so nothing may be skipped. The first part is the fence: without it no other does anything.
//!
//! Arrays are unnested in the select list and not in FROM, where the server would write each of
//! them to a buffer of its own first. COPY is as fast on the server, but the driver ends it with a
//! second small packet, which waits 40 ms for the acknowledgement of the first.

mod bulk;
mod events;
mod held;
mod index;
mod keys;
mod node;
mod outbox;
mod topics;

use std::collections::HashSet;

use kukuri_core::{Decision, Epoch, ReadSet, TopicId};
use sqlx::postgres::PgConnection;

use crate::error::Fault;
use crate::numbers::BatchNumbers;
use crate::partition::Partitions;
use bulk::{Bulk, Columns, Sorted};
use events::Events;
use held::Held;
use index::Index;

/// What a decision was made by, and what must hold for anything to be written.
#[derive(Clone, Copy)]
pub(crate) struct Premise<'a> {
    /// How many batches were committed.
    pub revision: i64,
    pub epoch: Epoch,
    /// Keys of events that were taken for absent and not looked for.
    pub absent: Option<&'a ReadSet>,
}

/// Where things lie: what topics are called in rows, and which partitions there are.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub numbers: &'a BatchNumbers,
    pub partitions: &'a Partitions,
}

/// Writes everything, if its premise holds. Outside of a transaction it is durable when it returns.
pub(crate) async fn write(
    connection: &mut PgConnection,
    places: Places<'_>,
    decision: &Decision,
    premise: Premise<'_>,
) -> Result<(), Fault> {
    let writes = &decision.writes;
    let Places { numbers, partitions } = places;
    let mut events = Events::default();
    let mut index = Index::new(numbers);
    let mut held = Held::new(partitions);
    for change in &writes.records {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        events.change(before, after);
        index.change(before, after);
        held.change(before, after)?;
    }
    let mut bulk = Bulk::default();
    events.write(&mut bulk, numbers)?;
    index.write(&mut bulk);
    held.write(&mut bulk);
    keys::dedupe(&mut bulk, &writes.dedupe);
    keys::versions(&mut bulk, &writes.versions);
    keys::tombstones(&mut bulk, &writes.tombstones);
    topics::subscriptions(&mut bulk, &writes.topics);
    topics::usage(&mut bulk, &writes.usage, numbers);
    node::state(&mut bulk, &writes.node);
    node::feed(&mut bulk, decision);
    outbox::rows(&mut bulk, &decision.rows, numbers);
    if let Some(absent) = premise.absent {
        keys::absent(&mut bulk, absent);
    }
    bulk.run(connection, premise).await
}

/// Every topic that a row will speak of.
pub(crate) fn topics_of(decision: &Decision) -> HashSet<&TopicId> {
    let mut topics = HashSet::new();
    for change in &decision.writes.records {
        for record in [&change.before, &change.after].into_iter().flatten() {
            topics.extend(record.topics().chain(&record.left));
        }
    }
    topics.extend(decision.writes.usage.iter().map(|change| &change.key));
    for row in &decision.rows {
        topics.insert(&row.topic_id);
        topics.extend(row.prior.iter().chain(&row.via));
    }
    topics
}
