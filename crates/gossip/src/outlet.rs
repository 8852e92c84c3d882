//! What goes out: rows of the feed from its head on, and ephemeral events as the lane passes them. What was
//! written while nobody gossiped is not sent later: others ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kukuri_core::{Cursor, FeedRow, ReadSet, Record, TopicId};
use kukuri_event::{Body, EventId};
use kukuri_feed::{FeedError, POLL_INTERVAL, Tail};
use kukuri_lane::Ephemerals;
use kukuri_store::StoreError;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::counters::add_one;
use crate::gossip::Shared;
use crate::outgoing;
use crate::patience::Patience;

const ROWS_MAX: usize = 256;
/// The pause after the first failed read; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Never ends by itself: a feed that cannot be read now is tried again.
pub(crate) async fn follow_feed(shared: Arc<Shared>, after: Cursor) {
    let store = || Arc::clone(&shared.ground.store);
    let mut tail = Tail::new(store(), after, POLL_INTERVAL);
    let (mut backoff, mut patience) = (BACKOFF_MIN, Patience::default());
    loop {
        match step(&shared, &mut tail, &mut patience).await {
            Ok(()) => backoff = BACKOFF_MIN,
            Err(error) => {
                tracing::warn!(%error, "gossip waits for the feed");
                // Another life of the feed, or rows that are gone: it goes on at the head.
                if matches!(error, FeedError::Cursor(_))
                    && let Ok(bounds) = shared.ground.store.bounds().await
                {
                    let head = Cursor { epoch: bounds.epoch, seq: bounds.head };
                    tail = Tail::new(store(), head, POLL_INTERVAL);
                }
                sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

async fn step(shared: &Shared, tail: &mut Tail, patience: &mut Patience) -> Result<(), FeedError> {
    let before = tail.cursor();
    let rows = tail.next_rows(ROWS_MAX).await?;
    let rows: Vec<FeedRow> = rows.into_iter().filter(|row| outgoing::of_row(row).is_ok()).collect();
    let found = bodies(shared, &rows).await;
    // Rows whose bodies could not be read are read again.
    let bodies = found.inspect_err(|_| {
        *tail = Tail::new(Arc::clone(&shared.ground.store), before, POLL_INTERVAL);
    })?;
    for row in &rows {
        // Whatever is gone again is not worth telling of.
        let Some(body) = bodies.get(&row.event_id) else { continue };
        let (Some(json), Some(out)) = (leaving(shared, body), out(shared, &row.topic_id)) else {
            continue;
        };
        if !patience.give(&row.topic_id, &out, copy(json)).await {
            add_one(&shared.counters.out_dropped);
        }
    }
    Ok(())
}

async fn bodies(
    shared: &Shared,
    rows: &[FeedRow],
) -> Result<BTreeMap<EventId, Arc<Body>>, StoreError> {
    let wanted: BTreeSet<EventId> = rows.iter().map(|row| row.event_id).collect();
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
