//! Reading what comes next: rows of the feed with the events they are about, or a stretch of the state.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::{Cursor, CursorError, FeedRow, Op, ReadSet, Record, Seq};
use kukuri_event::EventId;
use kukuri_store::{Entry, FeedError, Place, Store, StoreError};

use super::Shared;
use super::fault::Fault;
use crate::ledger::{Hold, Mark, STATE_WINDOW, digest_of_row};
use crate::tail::check_gapless;
use crate::{Consumer, Update};

/// How many events are read at a time: few enough not to pass the bytes of a batch by much.
const EVENTS_PER_READ: usize = 128;

/// What comes next, and where the generation stands after it.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Those that concern the consumer, in order.
    pub updates: Vec<Update>,
    /// How many rows of the feed, or events of the state, they were found among.
    pub rows: usize,
    /// The row that the chunk begins with, or the event.
    pub first: Seq,
    pub mark: Mark,
}

impl<C: Consumer> Shared<C> {
    /// The rows after the cursor, at most `rows_max`; none at the head.
    pub(super) async fn next_of_feed(
        &self,
        after: Cursor,
        rows_max: usize,
    ) -> Result<Option<Chunk>, Fault> {
        let rows = self.store.feed(after, rows_max).await?;
        check_gapless(after.seq, &rows)?;
        let mut chunk = FeedChunk::default();
        for rows in rows.chunks(EVENTS_PER_READ) {
            let records = self.records(rows).await?;
            chunk.extend(rows, &records, |row| self.consumer.wants(row.kind));
            if chunk.bytes >= self.config.batch_bytes_max {
                break;
            }
        }
        let FeedChunk { updates, last, rows, .. } = chunk;
        Ok(last.map(|last| {
            let mark = Mark::Feed { last_seq: last.seq, last_row: digest_of_row(&last) };
            Chunk { updates, rows, first: after.seq.next(), mark }
        }))
    }

    /// The events that the rows speak of, those that are stored.
    async fn records(&self, rows: &[FeedRow]) -> Result<BTreeMap<EventId, Record>, StoreError> {
        let shown = |row: &&FeedRow| row.op == Op::Upsert && self.consumer.wants(row.kind);
        let events: BTreeSet<EventId> = rows.iter().filter(shown).map(|row| row.event_id).collect();
        if events.is_empty() {
            return Ok(BTreeMap::new());
        }
        let needs = ReadSet { events, ..ReadSet::default() };
        let records = self.store.facts(needs).await?.records;
        Ok(records.into_iter().filter_map(|(id, record)| Some((id, record?))).collect())
    }

    /// The next events of the state, at most `events_max`. What is younger than the generation comes with
    /// the feed.
    pub(super) async fn next_of_state(
        &self,
        hold: &Hold,
        scan: Seq,
        events_max: usize,
    ) -> Result<Chunk, Fault> {
        let (mut updates, mut last, mut rows, mut bytes) = (Vec::new(), scan, 0, 0);
        let mut ended = false;
        while rows < events_max && bytes < self.config.batch_bytes_max && !ended {
            let wanted = (events_max - rows).min(EVENTS_PER_READ);
            let entries = self.store.page(Place::Records(Some(last)), wanted).await?;
            let records = entries.into_iter().filter_map(|entry| match entry {
                Entry::Record(record) => Some(record),
                _ => None,
            });
            ended = true;
            for record in records {
                // Who ended over one of these is looked for within the window.
                let far = record.seq.0 > scan.0 + STATE_WINDOW && rows > 0;
                ended = record.seq > hold.start;
                if ended || far {
                    let mark = Mark::State { scan: (!ended).then_some(last) };
                    return Ok(Chunk { updates, rows, first: scan.next(), mark });
                }
                (last, rows, bytes) = (record.seq, rows + 1, bytes + record.body.json().len());
                if record.is_effective() && self.consumer.wants(record.event().kind()) {
                    updates.extend(Update::of_state(&record));
                }
            }
        }
        let mark = Mark::State { scan: (!ended).then_some(last) };
        Ok(Chunk { updates, rows, first: scan.next(), mark })
    }
}

#[derive(Default)]
struct FeedChunk {
    updates: Vec<Update>,
    rows: usize,
    bytes: usize,
    last: Option<FeedRow>,
}

impl FeedChunk {
    fn extend(
        &mut self,
        rows: &[FeedRow],
        records: &BTreeMap<EventId, Record>,
        wants: impl Fn(&FeedRow) -> bool,
    ) {
        self.rows += rows.len();
        self.last = rows.last().cloned();
        for row in rows.iter().filter(|row| wants(row)) {
            let record = records.get(&row.event_id);
            self.bytes += record.map_or(0, |record| record.body.json().len());
            self.updates.push(Update::of_row(row.clone(), record));
        }
    }
}

/// Whether the row at a cursor is the one that was handled there: a feed that was put back and has grown
/// again has others at the same numbers.
pub(super) async fn check_last_row(store: &dyn Store, hold: &Hold) -> Result<(), Fault> {
    let bounds = store.bounds().await?;
    bounds.check(hold.cursor).map_err(Fault::Lost)?;
    let found = last_row(store, hold.cursor).await?;
    match (&hold.last_row, found) {
        (Some(known), Some(found)) if *known != found => {
            Err(Fault::Lost(CursorError::Diverged { head: bounds.head }))
        }
        _ => Ok(()),
    }
}

/// What tells the row at a cursor from others; none if it is not kept.
pub(super) async fn last_row(
    store: &dyn Store,
    cursor: Cursor,
) -> Result<Option<Vec<u8>>, FeedError> {
    let bounds = store.bounds().await?;
    if cursor.seq <= bounds.floor {
        return Ok(None);
    }
    let before = Cursor { seq: Seq(cursor.seq.0 - 1), ..cursor };
    let rows = match store.feed(before, 1).await {
        // It was let go of at this very moment.
        Err(FeedError::Cursor(CursorError::Truncated { .. })) => return Ok(None),
        rows => rows?,
    };
    check_gapless(before.seq, &rows)?;
    Ok(rows.first().map(digest_of_row))
}
