//! Reading columns back into the values they were written from.

use std::sync::Arc;

use kukuri_core::{
    Dedupe, IngestPolicy, Keep, Mark, MarkState, NodeState, NodeTopic, Record, Seq, State,
    Tombstone, TopicId, UnixMillis, Usage, Version,
};
use kukuri_event::{Body, EventId, Pubkey, UnixSeconds};
use kukuri_store::StoreError;
use rusqlite::{Connection, Row};

use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};

pub(crate) const RECORD_COLUMNS: &str = "seq, ingested_at, keep, state, links, event_json";

pub(crate) fn record(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    row: &Row<'_>,
) -> Result<Record, StoreError> {
    let keep: i16 = row.get(2).or_store()?;
    let state: i16 = row.get(3).or_store()?;
    let links = row.get_ref(4).or_store()?.as_str().map_err(corrupt)?;
    let (links, left) = numbers.read_links(conn, links)?;
    Ok(Record {
        seq: Seq(row.get(0).or_store()?),
        ingested_at: UnixMillis(row.get(1).or_store()?),
        keep: Keep::from_code(keep).ok_or_else(|| corrupt(format!("keep {keep}")))?,
        state: State::from_code(state).ok_or_else(|| corrupt(format!("state {state}")))?,
        links,
        left,
        body: body(row.get(5).or_store()?)?,
    })
}

pub(crate) fn body(json: String) -> Result<Arc<Body>, StoreError> {
    Body::restore(json).map(Arc::new).map_err(|error| corrupt(format!("a broken event ({error})")))
}

pub(crate) const DEDUPE_COLUMNS: &str = "first_seen_at, last_seen_at, seen_count, seq";

pub(crate) fn dedupe(row: &Row<'_>, from: usize) -> rusqlite::Result<Dedupe> {
    Ok(Dedupe {
        first_seen_at: UnixMillis(row.get(from)?),
        last_seen_at: UnixMillis(row.get(from + 1)?),
        seen_count: row.get::<_, i64>(from + 2)?.unsigned_abs(),
        seq: row.get::<_, Option<i64>>(from + 3)?.map(Seq),
    })
}

pub(crate) const VERSION_COLUMNS: &str = "created_at, event_id, state, deleted_until, event_json";

pub(crate) fn version(row: &Row<'_>, from: usize) -> Result<Version, StoreError> {
    let created_at: Option<i64> = row.get(from).or_store()?;
    let mark = match created_at {
        None => None,
        Some(created_at) => {
            let code: i16 = row.get(from + 2).or_store()?;
            Some(Mark {
                created_at: UnixSeconds(created_at),
                event_id: event_id(row, from + 1)?,
                state: MarkState::from_code(code)
                    .ok_or_else(|| corrupt(format!("mark state {code}")))?,
            })
        }
    };
    let json: Option<String> = row.get(from + 4).or_store()?;
    Ok(Version {
        mark,
        deleted_until: row.get::<_, Option<i64>>(from + 3).or_store()?.map(UnixSeconds),
        body: json.map(body).transpose()?,
    })
}

pub(crate) const TOMBSTONE_COLUMNS: &str =
    "deletion_event_id, requested_at, recorded_at, applied_at";

pub(crate) fn tombstone(row: &Row<'_>, from: usize) -> Result<Tombstone, StoreError> {
    Ok(Tombstone {
        deletion_event_id: event_id(row, from)?,
        requested_at: UnixSeconds(row.get(from + 1).or_store()?),
        recorded_at: UnixMillis(row.get(from + 2).or_store()?),
        applied_at: row.get::<_, Option<i64>>(from + 3).or_store()?.map(UnixMillis),
    })
}

pub(crate) const NODE_COLUMNS: &str = "events, bytes, allowance, leases, past";

pub(crate) fn node_state(row: &Row<'_>) -> Result<NodeState, StoreError> {
    let json = |column| row.get_ref(column).or_store()?.as_str().map_err(corrupt);
    let broken = |what, error| corrupt(format!("{what} of the node: {error}"));
    Ok(NodeState {
        usage: usage(row).or_store()?,
        allowance: serde_json::from_str(json(2)?).map_err(|e| broken("allowance", e))?,
        leases: serde_json::from_str(json(3)?).map_err(|e| broken("leases", e))?,
        past: serde_json::from_str(json(4)?).map_err(|e| broken("past", e))?,
    })
}

/// Events and bytes, the first two columns.
pub(crate) fn usage(row: &Row<'_>) -> rusqlite::Result<Usage> {
    Ok(Usage {
        events: row.get::<_, i64>(0)?.unsigned_abs(),
        bytes: row.get::<_, i64>(1)?.unsigned_abs(),
    })
}

pub(crate) const TOPIC_COLUMNS: &str =
    "topic_id, name, enabled, pinned, wanted, ingest_policy, created_at, updated_at";

pub(crate) fn node_topic(row: &Row<'_>) -> Result<NodeTopic, StoreError> {
    let topic_id: String = row.get(0).or_store()?;
    let policy: String = row.get(5).or_store()?;
    let policy: IngestPolicy = serde_json::from_str(&policy)
        .map_err(|error| corrupt(format!("policy of {topic_id}: {error}")))?;
    Ok(NodeTopic {
        topic_id: TopicId::parse(&topic_id).map_err(corrupt)?,
        name: row.get(1).or_store()?,
        enabled: row.get(2).or_store()?,
        pinned: row.get(3).or_store()?,
        wanted: row.get(4).or_store()?,
        ingest_policy: policy,
        created_at: UnixMillis(row.get(6).or_store()?),
        updated_at: UnixMillis(row.get(7).or_store()?),
    })
}

pub(crate) fn event_id(row: &Row<'_>, column: usize) -> Result<EventId, StoreError> {
    let bytes = row.get_ref(column).or_store()?.as_blob().map_err(corrupt)?;
    EventId::from_slice(bytes).ok_or_else(|| corrupt("an event id of the wrong length"))
}

pub(crate) fn pubkey(row: &Row<'_>, column: usize) -> Result<Pubkey, StoreError> {
    let bytes = row.get_ref(column).or_store()?.as_blob().map_err(corrupt)?;
    Pubkey::from_slice(bytes).ok_or_else(|| corrupt("a pubkey of the wrong length"))
}
