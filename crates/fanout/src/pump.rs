//! The task that reads the feed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, FeedRow, Op, ReadSet};
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
            self.waiting = self.tail.next_rows(self.shared.config.page_rows_max).await?;
        }
        let entries = with_bodies(&self.shared, self.waiting.clone()).await?;
        self.waiting.clear();
        self.shared.dispatch(entries).await;
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
pub(crate) async fn with_bodies(
    shared: &Shared,
    rows: Vec<FeedRow>,
) -> Result<Vec<Entry>, StoreError> {
    let mut found = Found::new();
    for row in rows.iter().filter(|row| row.op == Op::Upsert) {
        found.entry(row.event_id).or_insert_with(|| shared.bodies.get(&row.event_id));
    }
    read_missing(shared, &mut found).await?;
    Ok(entries(rows, &found))
}

/// Finds the bodies of those events that are visible now, whatever was seen lately.
pub(crate) async fn effective(
    shared: &Shared,
    rows: Vec<FeedRow>,
) -> Result<Vec<Entry>, StoreError> {
    let mut found: Found = rows.iter().map(|row| (row.event_id, None)).collect();
    read_missing(shared, &mut found).await?;
    Ok(entries(rows, &found))
}

type Found = BTreeMap<EventId, Option<Arc<Body>>>;

async fn read_missing(shared: &Shared, found: &mut Found) -> Result<(), StoreError> {
    let missing = found.iter().filter(|(_, body)| body.is_none()).map(|(id, _)| *id);
    let needs = ReadSet { events: missing.collect(), ..ReadSet::default() };
    if !needs.events.is_empty() {
        let records = shared.store.facts(needs).await?.records;
        let effective = records.into_values().flatten().filter(|record| record.is_effective());
        found.extend(effective.map(|record| (record.event().id(), Some(record.body))));
    }
    Ok(())
}

fn entries(rows: Vec<FeedRow>, found: &Found) -> Vec<Entry> {
    let entry = |row: FeedRow| {
        let body = match row.op {
            Op::Upsert => found.get(&row.event_id).cloned().flatten(),
            Op::Delete => None,
        };
        Entry { row, body }
    };
    rows.into_iter().map(entry).collect()
}
