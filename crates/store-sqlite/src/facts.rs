//! Loading the facts a batch is decided on.

use kukuri_core::{Dedupe, Facts, NodeState, ReadSet, Record, Usage};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::desk::TopicNumbers;
use crate::error::OrStore;
use crate::tail::TailAt;
use crate::{dedupe, rows};

pub(crate) fn load(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    tail: TailAt<'_>,
    needs: &ReadSet,
) -> Result<Facts, StoreError> {
    let mut facts = Facts::absent(needs);
    load_events(conn, numbers, tail, &mut facts)?;
    load_tombstones(conn, &mut facts)?;
    load_versions(conn, &mut facts)?;
    load_topics(conn, numbers, &mut facts)?;
    for node in facts.node.values_mut() {
        *node = load_node(conn)?;
    }
    Ok(facts)
}

fn load_events(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    tail: TailAt<'_>,
    facts: &mut Facts,
) -> Result<(), StoreError> {
    for (id, slot) in &mut facts.records {
        let seqs = seqs(conn, tail, id)?;
        *slot = load_record(conn, numbers, &seqs, id)?;
        if let Some(known) = facts.dedupe.get_mut(id) {
            *known = match (dedupe::load(conn, id)?, slot) {
                (Some(row), _) => Some(row),
                (None, Some(record)) => Some(Dedupe::of(record)),
                (None, None) => dedupe::remembered(conn, &seqs, id)?,
            };
        }
    }
    Ok(())
}

fn load_record(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    seqs: &[i64],
    id: &EventId,
) -> Result<Option<Record>, StoreError> {
    for seq in seqs {
        let sql = format!("SELECT {} FROM events WHERE seq = ?1", rows::RECORD_COLUMNS);
        let mut select = conn.prepare_cached(&sql).or_store()?;
        let mut found = select.query([seq]).or_store()?;
        let record = found.next().or_store()?.map(|row| rows::record(conn, numbers, row));
        if let Some(record) = record.transpose()?.filter(|record| record.event().id() == *id) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// The numbers of the events that may have this id.
pub(crate) fn seqs(
    conn: &Connection,
    tail: TailAt<'_>,
    id: &EventId,
) -> Result<Vec<i64>, StoreError> {
    match tail.seq_of(id) {
        Some(seq) => Ok(vec![seq]),
        None => dedupe::indexed(conn, id),
    }
}

fn load_tombstones(conn: &Connection, facts: &mut Facts) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {} FROM deletion_tombstones WHERE target_event_id = ?1 AND pubkey = ?2",
        rows::TOMBSTONE_COLUMNS
    );
    let mut select = conn.prepare_cached(&sql).or_store()?;
    for (key, slot) in &mut facts.tombstones {
        let mut found = select
            .query(params![&key.target.as_bytes()[..], &key.pubkey.as_bytes()[..]])
            .or_store()?;
        *slot = found.next().or_store()?.map(|row| rows::tombstone(row, 0)).transpose()?;
    }
    Ok(())
}

fn load_versions(conn: &Connection, facts: &mut Facts) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {} FROM current_versions WHERE kind = ?1 AND pubkey = ?2 AND d = ?3",
        rows::VERSION_COLUMNS
    );
    let mut select = conn.prepare_cached(&sql).or_store()?;
    for (key, slot) in &mut facts.versions {
        let mut found = select
            .query(params![key.kind.0, &key.pubkey.as_bytes()[..], key.d.as_bytes()])
            .or_store()?;
        *slot = found.next().or_store()?.map(|row| rows::version(row, 0)).transpose()?;
    }
    Ok(())
}

fn load_topics(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    facts: &mut Facts,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {} FROM node_subscriptions WHERE topic_id = ?1", rows::TOPIC_COLUMNS);
    let mut select = conn.prepare_cached(&sql).or_store()?;
    for (topic, slot) in &mut facts.topics {
        let mut found = select.query([topic.as_str()]).or_store()?;
        *slot = found.next().or_store()?.map(rows::node_topic).transpose()?;
    }
    for (topic, slot) in &mut facts.usage {
        if let Some(no) = numbers.find(conn, topic)? {
            *slot = load_usage(conn, no)?;
        }
    }
    Ok(())
}

pub(crate) fn load_usage(conn: &Connection, topic_no: i64) -> Result<Option<Usage>, StoreError> {
    let mut select = conn
        .prepare_cached("SELECT events, bytes FROM topic_usage WHERE topic_no = ?1")
        .or_store()?;
    select.query_row([topic_no], rows::usage).optional().or_store()
}

pub(crate) fn load_node(conn: &Connection) -> Result<Option<NodeState>, StoreError> {
    let sql = format!("SELECT {} FROM node_state", rows::NODE_COLUMNS);
    let mut select = conn.prepare_cached(&sql).or_store()?;
    let mut found = select.query([]).or_store()?;
    found.next().or_store()?.map(rows::node_state).transpose()
}
