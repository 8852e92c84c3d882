//! Walking the raw state, table by table in key order.

use std::rc::Rc;

use kukuri_core::{NodeKey, Record, Seq, TombstoneKey, TopicId, VersionKey};
use kukuri_event::{EventId, Kind, UnixSeconds};
use kukuri_store::{Entry, Place, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, Params, Row, params};

use crate::desk::{Desk, Snapshot, TopicNumbers};
use crate::error::{OrStore, corrupt};
use crate::tail::TailAt;
use crate::{dedupe, facts, feed, rows};

pub(crate) fn page(
    desk: &mut Desk,
    after: &Place,
    entries_max: usize,
) -> Result<Vec<Entry>, StoreError> {
    let Snapshot { conn: tx, numbers, segment, bounds } = desk.snapshot()?;
    let tail = TailAt { segment: &segment, head: bounds.head };
    let max = limit(entries_max);
    match after {
        Place::Records(after) => {
            let records = records(&tx, numbers, after.unwrap_or(Seq(i64::MIN)), max)?;
            Ok(records.into_iter().map(Entry::Record).collect())
        }
        Place::Dedupe(after) => {
            let rows = dedupe::walk(&tx, tail, after.as_ref(), max)?;
            Ok(rows.into_iter().take(entries_max).map(|(id, row)| Entry::Dedupe(id, row)).collect())
        }
        Place::Versions(after) => versions(&tx, after.as_ref(), max),
        Place::Tombstones(after) => tombstones(&tx, after.as_ref(), max),
        Place::Topics(after) => {
            topics(&tx, numbers, after.as_ref().map_or("", |t| t.as_str()), max)
        }
        Place::Node(Some(NodeKey)) => Ok(Vec::new()),
        Place::Node(None) => {
            let node = facts::load_node(&tx)?.filter(|_| entries_max > 0);
            Ok(node.into_iter().map(Entry::Node).collect())
        }
        Place::Feed(after) => {
            let after = after.unwrap_or(bounds.floor).max(bounds.floor);
            let rows = feed::select(&tx, numbers, after, entries_max)?;
            Ok(rows.into_iter().map(Entry::Row).collect())
        }
    }
}

/// A LIMIT of SQL.
pub(crate) fn limit(entries_max: usize) -> i64 {
    i64::try_from(entries_max).unwrap_or(i64::MAX)
}

/// Runs a statement and reads each row of its answer.
pub(crate) fn collect<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut select = conn.prepare_cached(sql).or_store()?;
    let mut found = select.query(values).or_store()?;
    let mut out = Vec::new();
    while let Some(row) = found.next().or_store()? {
        out.push(read(row)?);
    }
    Ok(out)
}

fn records(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    after: Seq,
    max: i64,
) -> Result<Vec<Record>, StoreError> {
    let sql =
        format!("SELECT {} FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2", rows::RECORD_COLUMNS);
    collect(conn, &sql, params![after.0, max], |row| rows::record(conn, numbers, row))
}

fn versions(
    conn: &Connection,
    after: Option<&VersionKey>,
    max: i64,
) -> Result<Vec<Entry>, StoreError> {
    let sql = format!(
        "SELECT kind, pubkey, d, {} FROM current_versions WHERE (kind, pubkey, d) > (?1, ?2, ?3)
         ORDER BY kind, pubkey, d LIMIT ?4",
        rows::VERSION_COLUMNS
    );
    let kind = after.map_or(-1, |key| i64::from(key.kind.0));
    let pubkey = after.map_or(&[][..], |key| &key.pubkey.as_bytes()[..]);
    let d = after.map_or(&[][..], |key| key.d.as_bytes());
    collect(conn, &sql, params![kind, pubkey, d, max], |row| {
        let d: Vec<u8> = row.get(2).or_store()?;
        let key = VersionKey {
            kind: Kind(row.get(0).or_store()?),
            pubkey: rows::pubkey(row, 1)?,
            d: String::from_utf8(d).map_err(corrupt)?,
        };
        Ok(Entry::Version(key, rows::version(row, 3)?))
    })
}

fn tombstones(
    conn: &Connection,
    after: Option<&TombstoneKey>,
    max: i64,
) -> Result<Vec<Entry>, StoreError> {
    let sql = format!(
        "SELECT target_event_id, pubkey, {} FROM deletion_tombstones WHERE (target_event_id, pubkey) > (?1, ?2)
         ORDER BY target_event_id, pubkey LIMIT ?3",
        rows::TOMBSTONE_COLUMNS
    );
    let target = after.map_or(&[][..], |key| &key.target.as_bytes()[..]);
    let pubkey = after.map_or(&[][..], |key| &key.pubkey.as_bytes()[..]);
    collect(conn, &sql, params![target, pubkey, max], |row| {
        let key = TombstoneKey { target: rows::event_id(row, 0)?, pubkey: rows::pubkey(row, 1)? };
        Ok(Entry::Tombstone(key, rows::tombstone(row, 2)?))
    })
}

pub(crate) fn topics(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    after: &str,
    max: i64,
) -> Result<Vec<Entry>, StoreError> {
    let sql = format!(
        "SELECT {} FROM node_subscriptions WHERE topic_id > ?1 ORDER BY topic_id LIMIT ?2",
        rows::TOPIC_COLUMNS
    );
    let topics = collect(conn, &sql, params![after, max], rows::node_topic)?;
    let with_usage = topics.into_iter().map(|topic| {
        let no = numbers.find(conn, &topic.topic_id)?;
        let usage = no.map(|no| facts::load_usage(conn, no)).transpose()?.flatten();
        Ok(Entry::Topic(topic, usage.unwrap_or_default()))
    });
    with_usage.collect()
}

/// Events linked to a topic, hidden ones included.
pub(crate) fn linked(
    desk: &mut Desk,
    topic: &TopicId,
    events_max: usize,
) -> Result<Vec<EventId>, StoreError> {
    let Snapshot { conn, numbers, segment, bounds } = desk.snapshot()?;
    let Some(topic_no) = numbers.find(&conn, topic)? else { return Ok(Vec::new()) };
    let sql = "SELECT event_id FROM event_topics WHERE topic_no = ?1
               UNION ALL SELECT event_id FROM hidden_links WHERE topic_no = ?1 LIMIT ?2";
    let values = params![topic_no, limit(events_max)];
    let mut linked = collect(&conn, sql, values, |row| rows::event_id(row, 0))?;
    let tail = TailAt { segment: &segment, head: bounds.head };
    linked.extend(tail.collect(|_, event| {
        let ours = event.links.iter().any(|(no, _)| *no == topic_no);
        Vec::from_iter(ours.then_some(event.id))
    }));
    linked.truncate(events_max);
    Ok(linked)
}

/// Effective events whose time has come, longest overdue first.
pub(crate) fn expired(
    desk: &mut Desk,
    now: UnixSeconds,
    max: usize,
) -> Result<Vec<EventId>, StoreError> {
    let sql = "SELECT event_id FROM expirations JOIN events USING (seq)
               WHERE expirations.expires_at <= ?1 ORDER BY expirations.expires_at, seq LIMIT ?2";
    collect(&desk.conn, sql, params![now.0, limit(max)], |row| rows::event_id(row, 0))
}

pub(crate) fn bodies(conn: &Connection, events: &[Seq]) -> Result<Vec<Option<String>>, StoreError> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT events.seq, event_json
               FROM rarray(?1) AS wanted CROSS JOIN events ON events.seq = wanted.value AND state = 1";
    let wanted: Vec<Value> = events.iter().map(|seq| Value::Integer(seq.0)).collect();
    let mut select = conn.prepare_cached(sql).or_store()?;
    let mut found = select.query([Rc::new(wanted)]).or_store()?;
    let mut bodies = Vec::with_capacity(events.len());
    while let Some(row) = found.next().or_store()? {
        let seq = Seq(row.get(0).or_store()?);
        // Rows come in the order asked for; those that are passed over are not there.
        bodies.extend(
            events[bodies.len()..].iter().take_while(|wanted| **wanted != seq).map(|_| None),
        );
        bodies.push(Some(row.get(1).or_store()?));
    }
    bodies.resize(events.len(), None);
    Ok(bodies)
}
