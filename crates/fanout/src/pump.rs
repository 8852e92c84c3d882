//! The task that reads the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, FeedRow, Op, ReadSet, Record};
use kukuri_event::{Body, EventId};
use kukuri_feed::{FeedError, Tail};
use kukuri_store::StoreError;
use tokio::time::sleep;

use crate::fanout::Shared;
use crate::ring::Entry;

/// The pause after the first failed read; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Pump {
    shared: Arc<Shared>,
    tail: Tail,
    /// Rows that were read, of which the bodies could not be.
    waiting: Vec<FeedRow>,
}

impl Pump {
    pub fn new(shared: Arc<Shared>, after: Cursor) -> Self {
        let tail = tail(&shared, after);
        Self { shared, tail, waiting: Vec::new() }
    }

    /// Never ends by itself: a feed that cannot be read now is tried again.
    pub async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        loop {
            match self.step().await {
                Ok(()) => backoff = BACKOFF_MIN,
                Err(error) => {
                    tracing::warn!(%error, "live delivery waits for the feed");
                    self.shared.note_trouble(Some(&error));
                    if matches!(error, FeedError::Cursor(_)) {
                        self.restart().await;
                    }
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<(), FeedError> {
        if self.waiting.is_empty() {
            self.waiting = self.tail.rows_so_far(self.shared.config.page_rows_max).await?;
        }
        if self.waiting.is_empty() {
            self.shared.note_trouble(None);
            self.tail.wait().await;
            return Ok(());
        }
        let entries = with_bodies(&self.shared, self.waiting.clone()).await?;
        self.shared.note_trouble(None);
        self.waiting.clear();
        self.shared.dispatch(entries).await;
        if self.tail.knows_no_more() {
            self.tail.wait().await;
        }
        Ok(())
    }

    /// The feed is another one, or has forgotten where we were: nobody can be told what was missed.
    async fn restart(&mut self) {
        if let Ok(bounds) = self.shared.store.bounds().await {
            let start = Cursor { epoch: bounds.epoch, seq: bounds.head };
            self.waiting.clear();
            self.tail = tail(&self.shared, start);
            self.shared.diverge(start);
        }
    }
}

fn tail(shared: &Shared, after: Cursor) -> Tail {
    Tail::new(Arc::clone(&shared.store), after, shared.config.poll_interval)
}

/// Finds the bodies of new events: those seen lately, and the others in the store, all at once. An
/// event that is effective no longer has none.
async fn with_bodies(shared: &Shared, rows: Vec<FeedRow>) -> Result<Vec<Entry>, StoreError> {
    let new = rows.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id);
    let new: BTreeSet<EventId> = new.collect();
    let seen = new.iter().filter_map(|id| Some((*id, shared.bodies.get(id)?)));
    let mut bodies: BTreeMap<EventId, Arc<Body>> = seen.collect();
    let missing = new.into_iter().filter(|id| !bodies.contains_key(id)).collect();
    let records = effective(shared, missing).await?;
    bodies.extend(records.into_iter().map(|(id, record)| (id, record.body)));
    let entry = |row: FeedRow| {
        let body = bodies.get(&row.event_id).filter(|_| row.op == Op::Upsert).cloned();
        Entry { row, body }
    };
    Ok(rows.into_iter().map(entry).collect())
}

/// Reads those of the events that are visible now.
pub(crate) async fn effective(
    shared: &Shared,
    events: BTreeSet<EventId>,
) -> Result<BTreeMap<EventId, Record>, StoreError> {
    if events.is_empty() {
        return Ok(BTreeMap::new());
    }
    let needs = ReadSet { events, ..ReadSet::default() };
    let records = shared.store.facts(needs).await?.records.into_values().flatten();
    let effective = records.filter(Record::is_effective);
    Ok(effective.map(|record| (record.event().id(), record)).collect())
}
