//! Writing what was decided: the net changes and the feed rows, each table in its own key order,
//! because neighbours share pages.

use kukuri_core::{
    Change, Decision, NodeKey, NodeState, NodeTopic, Record, Tombstone, TombstoneKey, TopicId,
    Usage, Version, VersionKey,
};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use rusqlite::{CachedStatement, Connection, params};

use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};
use crate::indexes::IndexChanges;
use crate::tail::Segment;
use crate::{dedupe, feed};

pub(crate) fn write(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    segment: &Segment,
    decision: &Decision,
) -> Result<(), StoreError> {
    let writes = &decision.writes;
    let mut indexes = IndexChanges::default();
    for change in &writes.records {
        indexes.add(conn, numbers, segment, change)?;
    }
    let leaving = dedupe::leaving(conn, writes)?;
    write_records(conn, numbers, &writes.records)?;
    indexes.write(conn, &leaving)?;
    dedupe::write(conn, writes, &leaving)?;
    write_versions(conn, &writes.versions)?;
    write_tombstones(conn, &writes.tombstones)?;
    write_topics(conn, &writes.topics)?;
    write_usage(conn, numbers, &writes.usage)?;
    write_node(conn, &writes.node)?;
    if let Some(floor) = decision.floor {
        // Its rows are deleted in steps of their own.
        let mut raise = conn.prepare_cached("UPDATE feed_meta SET floor_seq = ?1").or_store()?;
        one(&mut raise, [floor.0])?;
    }
    feed::write(conn, numbers, &decision.rows)
}

/// Runs a statement that must change exactly one row: a change starts from what is stored.
pub(crate) fn one(
    statement: &mut CachedStatement<'_>,
    values: impl rusqlite::Params,
) -> Result<(), StoreError> {
    match statement.execute(values).or_store()? {
        1 => Ok(()),
        changed => Err(corrupt(format!("{changed} rows where a change expected one"))),
    }
}

fn write_records(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    changes: &[Change<EventId, Record>],
) -> Result<(), StoreError> {
    let mut changes: Vec<_> =
        changes.iter().map(|change| (&change.before, &change.after)).collect();
    changes
        .sort_unstable_by_key(|(before, after)| after.as_ref().or(before.as_ref()).map(|r| r.seq));
    let mut insert = conn.prepare_cached(
        "INSERT INTO events (seq, event_id, pubkey, kind, created_at, ingested_at, expires_at, keep, state, links, event_json)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    ).or_store()?;
    let mut update = conn
        .prepare_cached("UPDATE events SET state = ?2, links = ?3 WHERE seq = ?1")
        .or_store()?;
    let mut delete = conn.prepare_cached("DELETE FROM events WHERE seq = ?1").or_store()?;
    for (before, after) in changes {
        match (before, after) {
            (Some(before), None) => one(&mut delete, [before.seq.0])?,
            (Some(before), Some(after)) if before.seq == after.seq => {
                let links = numbers.write_links(conn, after)?;
                one(&mut update, params![after.seq.0, after.state.code(), links])?;
            }
            (before, Some(record)) => {
                // Forgotten with its topic and published again within one batch.
                if let Some(before) = before {
                    one(&mut delete, [before.seq.0])?;
                }
                let event = record.event();
                one(
                    &mut insert,
                    params![
                        record.seq.0,
                        &event.id().as_bytes()[..],
                        &event.pubkey().as_bytes()[..],
                        event.kind().0,
                        event.created_at().0,
                        record.ingested_at.0,
                        record.expires_at().map(|end| end.0),
                        record.keep.code(),
                        record.state.code(),
                        numbers.write_links(conn, record)?,
                        record.body.json(),
                    ],
                )?;
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// Versions, tombstones and topics are few: an old row is removed and the new one put in its place.
fn write_versions(
    conn: &Connection,
    changes: &[Change<VersionKey, Version>],
) -> Result<(), StoreError> {
    let mut delete = conn
        .prepare_cached("DELETE FROM current_versions WHERE kind = ?1 AND pubkey = ?2 AND d = ?3")
        .or_store()?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO current_versions (kind, pubkey, d, created_at, event_id, state, deleted_until, event_json)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    ).or_store()?;
    for Change { key, before, after } in changes {
        let (pubkey, d) = (&key.pubkey.as_bytes()[..], key.d.as_bytes());
        if before.is_some() {
            one(&mut delete, params![key.kind.0, pubkey, d])?;
        }
        if let Some(version) = after {
            let mark = version.mark.as_ref();
            one(
                &mut insert,
                params![
                    key.kind.0,
                    pubkey,
                    d,
                    mark.map(|mark| mark.created_at.0),
                    mark.map(|mark| &mark.event_id.as_bytes()[..]),
                    mark.map(|mark| mark.state.code()),
                    version.deleted_until.map(|until| until.0),
                    version.body.as_ref().map(|body| body.json()),
                ],
            )?;
        }
    }
    Ok(())
}

fn write_tombstones(
    conn: &Connection,
    changes: &[Change<TombstoneKey, Tombstone>],
) -> Result<(), StoreError> {
    let mut delete = conn
        .prepare_cached(
            "DELETE FROM deletion_tombstones WHERE target_event_id = ?1 AND pubkey = ?2",
        )
        .or_store()?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO deletion_tombstones (target_event_id, pubkey, deletion_event_id, requested_at, recorded_at, applied_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    ).or_store()?;
    for Change { key, before, after } in changes {
        let (target, pubkey) = (&key.target.as_bytes()[..], &key.pubkey.as_bytes()[..]);
        if before.is_some() {
            one(&mut delete, params![target, pubkey])?;
        }
        if let Some(row) = after {
            let deletion = &row.deletion_event_id.as_bytes()[..];
            let (recorded_at, applied_at) = (row.recorded_at.0, row.applied_at.map(|at| at.0));
            one(
                &mut insert,
                params![target, pubkey, deletion, row.requested_at.0, recorded_at, applied_at],
            )?;
        }
    }
    Ok(())
}

fn write_topics(
    conn: &Connection,
    changes: &[Change<TopicId, NodeTopic>],
) -> Result<(), StoreError> {
    let mut delete =
        conn.prepare_cached("DELETE FROM node_subscriptions WHERE topic_id = ?1").or_store()?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO node_subscriptions (topic_id, name, enabled, pinned, wanted, ingest_policy, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    ).or_store()?;
    for Change { key, before, after } in changes {
        if before.is_some() {
            one(&mut delete, [key.as_str()])?;
        }
        if let Some(topic) = after {
            let policy =
                serde_json::to_string(&topic.ingest_policy).expect("a policy is plain data");
            one(
                &mut insert,
                params![
                    key.as_str(),
                    topic.name,
                    topic.enabled,
                    topic.pinned,
                    topic.wanted,
                    policy,
                    topic.created_at.0,
                    topic.updated_at.0,
                ],
            )?;
        }
    }
    Ok(())
}

fn write_usage(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    changes: &[Change<TopicId, Usage>],
) -> Result<(), StoreError> {
    let mut insert = conn
        .prepare_cached("INSERT INTO topic_usage (topic_no, events, bytes) VALUES (?1, ?2, ?3)")
        .or_store()?;
    let mut update = conn
        .prepare_cached("UPDATE topic_usage SET events = ?2, bytes = ?3 WHERE topic_no = ?1")
        .or_store()?;
    let mut delete =
        conn.prepare_cached("DELETE FROM topic_usage WHERE topic_no = ?1").or_store()?;
    for Change { key, before, after } in changes {
        let no = numbers.assign(conn, key)?;
        let Some(usage) = after else {
            one(&mut delete, [no])?;
            continue;
        };
        let statement = if before.is_some() { &mut update } else { &mut insert };
        one(statement, params![no, count(usage.events), count(usage.bytes)])?;
    }
    Ok(())
}

fn write_node(conn: &Connection, changes: &[Change<NodeKey, NodeState>]) -> Result<(), StoreError> {
    for Change { before, after, .. } in changes {
        let node = after.as_ref().ok_or_else(|| corrupt("the state of the node was to go"))?;
        let sql = match before {
            Some(_) => {
                "UPDATE node_state
                 SET events = ?1, bytes = ?2, allowance = ?3, leases = ?4, past = ?5"
            }
            None => {
                "INSERT INTO node_state (events, bytes, allowance, leases, past)
                 VALUES (?1, ?2, ?3, ?4, ?5)"
            }
        };
        let allowance = serde_json::to_string(&node.allowance).expect("it is plain data");
        let leases = serde_json::to_string(&node.leases).expect("they are plain data");
        let past = serde_json::to_string(&node.past).expect("it is plain data");
        let (events, bytes) = (count(node.usage.events), count(node.usage.bytes));
        let mut statement = conn.prepare_cached(sql).or_store()?;
        one(&mut statement, params![events, bytes, allowance, leases, past])?;
    }
    Ok(())
}

pub(crate) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
