//! Loading the facts a batch is decided on.

use kukuri_core::{Facts, ReadSet, Record, Seq, Usage};
use kukuri_store::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::desk::TopicNumbers;
use crate::error::OrStore;
use crate::rows;
use crate::tail::TailAt;

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
    Ok(facts)
}

fn load_events(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    tail: TailAt<'_>,
    facts: &mut Facts,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {} FROM event_dedupe WHERE event_id = ?1", rows::DEDUPE_COLUMNS);
    let mut select = conn.prepare_cached(&sql).or_store()?;
    // Taken first, so that the tail is not locked while the disk is read.
    tail.fill(&mut facts.dedupe);
    for (id, slot) in &mut facts.dedupe {
        *slot = match slot.take() {
            Some(dedupe) => Some(dedupe),
            None => select
                .query_row([&id.as_bytes()[..]], |row| rows::dedupe(row, 0))
                .optional()
                .or_store()?,
        };
        if let Some(seq) = slot.and_then(|dedupe| dedupe.seq) {
            facts.records.insert(*id, load_record(conn, numbers, seq)?);
        }
    }
    Ok(())
}

fn load_record(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    seq: Seq,
) -> Result<Option<Record>, StoreError> {
    let sql = format!("SELECT {} FROM events WHERE seq = ?1", rows::RECORD_COLUMNS);
    let mut select = conn.prepare_cached(&sql).or_store()?;
    let mut found = select.query([seq.0]).or_store()?;
    found.next().or_store()?.map(|row| rows::record(conn, numbers, row)).transpose()
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
    let usage = |row: &rusqlite::Row<'_>| {
        Ok(Usage {
            events: row.get::<_, i64>(0)?.unsigned_abs(),
            bytes: row.get::<_, i64>(1)?.unsigned_abs(),
        })
    };
    select.query_row([topic_no], usage).optional().or_store()
}
