//! What goes out: rows of the feed from its head on, and ephemeral events as the lane passes them. What was
//! written while nobody gossiped is not sent later: others ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kukuri_core::{Cursor, FeedRow, ReadSet, Record, Seq, TopicId};
use kukuri_event::{Body, EventId};
use kukuri_feed::{FeedError, POLL_INTERVAL, Tail};
use kukuri_lane::Ephemerals;
use kukuri_store::StoreError;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::counters::add_one;
use crate::gossip::Shared;
use crate::outgoing;
use crate::slow::{Slow, offer, room};

const ROWS_MAX: usize = 256;
/// How often it is looked whether slow swarms have room: a part of a burst is said in that time.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(10);
/// As much room as makes it worth reading the feed again.
const CATCH_UP_ROOM: usize = 64;
const IDLE: Duration = Duration::from_secs(60);
/// The pause after the first failed read; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Never ends by itself: a feed that cannot be read now is tried again.
pub(crate) async fn follow_feed(shared: Arc<Shared>, after: Cursor) {
    let store = || Arc::clone(&shared.ground.store);
    let mut reader = Reader {
        shared: Arc::clone(&shared),
        tail: Tail::new(store(), after, POLL_INTERVAL),
        slow: Slow::default(),
    };
    let mut backoff = BACKOFF_MIN;
    loop {
        match reader.step().await {
            Ok(()) => backoff = BACKOFF_MIN,
            Err(error) => {
                tracing::warn!(%error, "gossip waits for the feed");
                // Another life of the feed, or rows that are gone: it goes on at the head.
                if matches!(error, FeedError::Cursor(_))
                    && let Ok(bounds) = shared.ground.store.bounds().await
                {
                    let head = Cursor { epoch: bounds.epoch, seq: bounds.head };
                    reader.tail = Tail::new(store(), head, POLL_INTERVAL);
                    reader.slow = Slow::default();
                }
                sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// Reads the feed for all swarms, and again for those that had no room.
struct Reader {
    shared: Arc<Shared>,
    tail: Tail,
    slow: Slow,
}

impl Reader {
    /// What is new, and what slow ones have room for by now.
    async fn step(&mut self) -> Result<(), FeedError> {
        let wait = if self.slow.is_empty() { IDLE } else { CATCH_UP_INTERVAL };
        let before = self.tail.cursor();
        if let Ok(rows) = timeout(wait, self.tail.next_rows(ROWS_MAX)).await {
            let shared = Arc::clone(&self.shared);
            let rows: Vec<FeedRow> =
                rows?.into_iter().filter(|row| outgoing::of_row(row).is_ok()).collect();
            let found = bodies(&shared, rows.iter()).await;
            // Rows whose bodies could not be read are read again.
            let bodies = found.inspect_err(|_| {
                self.tail = Tail::new(Arc::clone(&shared.ground.store), before, POLL_INTERVAL);
            })?;
            for row in &rows {
                let is_late = self.slow.contains(&row.topic_id);
                if !is_late && !give(&shared, row, &bodies) {
                    self.slow.stays(&row.topic_id, Seq(row.seq.0 - 1));
                }
            }
        }
        self.catch_up().await
    }

    async fn catch_up(&mut self) -> Result<(), FeedError> {
        let Cursor { epoch, seq: head } = self.tail.cursor();
        for topic in self.slow.give_up(head) {
            add_one(&self.shared.counters.out_dropped);
            tracing::warn!(%topic, "more is published than its swarm takes; others have to ask for it");
        }
        for (topic, place) in self.slow.places(epoch) {
            let Some(out) = out(&self.shared, &topic) else {
                self.slow.leave(&topic);
                continue;
            };
            if room(&out) < CATCH_UP_ROOM {
                continue;
            }
            let rows = self.shared.ground.store.feed(place, ROWS_MAX).await?;
            let last = rows.last().map_or(head, |row| row.seq.min(head));
            let own = |row: &&FeedRow| {
                row.topic_id == topic && row.seq <= head && outgoing::of_row(row).is_ok()
            };
            let own: Vec<&FeedRow> = rows.iter().filter(own).collect();
            let bodies = bodies(&self.shared, own.iter().copied()).await?;
            let full = own.iter().find(|row| !give(&self.shared, row, &bodies));
            match full {
                Some(row) => self.slow.stays(&topic, Seq(row.seq.0 - 1)),
                None if last < head => self.slow.stays(&topic, last),
                None => self.slow.leave(&topic),
            }
        }
        self.shared.out_lag_rows.store(self.slow.lag_rows(head), Ordering::Relaxed);
        Ok(())
    }
}

/// Whether there was room for it, or there is nothing to give.
fn give(shared: &Shared, row: &FeedRow, bodies: &BTreeMap<EventId, Arc<Body>>) -> bool {
    // Whatever is gone again is not worth telling of; and whoever has left is not told.
    let (Some(body), Some(out)) = (bodies.get(&row.event_id), out(shared, &row.topic_id)) else {
        return true;
    };
    leaving(shared, body).is_none_or(|json| offer(&out, copy(json)))
}

async fn bodies(
    shared: &Shared,
    rows: impl Iterator<Item = &FeedRow>,
) -> Result<BTreeMap<EventId, Arc<Body>>, StoreError> {
    let wanted: BTreeSet<EventId> = rows.map(|row| row.event_id).collect();
    let seen = wanted.iter().filter_map(|id| Some((*id, shared.ground.memory.recall(id)?)));
    let mut bodies: BTreeMap<EventId, Arc<Body>> = seen.collect();
    let missing: BTreeSet<EventId> =
        wanted.into_iter().filter(|id| !bodies.contains_key(id)).collect();
    if !missing.is_empty() {
        let needs = ReadSet { events: missing, ..ReadSet::default() };
        let records = shared.ground.store.facts(needs).await?.records.into_values().flatten();
        let effective = records.filter(Record::is_effective);
        bodies.extend(effective.map(|record| (record.event().id(), record.body)));
    }
    Ok(bodies)
}

/// Ends when the lane does. What is ephemeral waits for nobody.
pub(crate) async fn follow_ephemerals(shared: Arc<Shared>, mut ephemerals: Ephemerals) {
    while let Some(event) = ephemerals.next().await {
        let carried = Arc::clone(&shared.carried.borrow());
        let Some(json) = leaving(&shared, event.body()) else { continue };
        let topics = outgoing::of_ephemeral(&event, &carried);
        for out in topics.iter().filter_map(|topic| out(&shared, topic)) {
            if out.try_send(copy(json)).is_err() {
                add_one(&shared.counters.out_dropped);
            }
        }
    }
}

/// The JSON of an event, if it may leave.
fn leaving<'a>(shared: &Shared, body: &'a Body) -> Option<&'a str> {
    let json = outgoing::of_body(body);
    json.inspect_err(|_| add_one(&shared.counters.kept_back)).ok()
}

fn out(shared: &Shared, topic: &TopicId) -> Option<mpsc::Sender<Bytes>> {
    shared.outs().get(topic).cloned()
}

fn copy(json: &str) -> Bytes {
    Bytes::copy_from_slice(json.as_bytes())
}
