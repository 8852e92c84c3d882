//! What is remembered of ids. Mostly the record tells: its event came once, when it was taken in.
//! Ids of events that have left are remembered by the number that the event had. Rows of their own are for
//! ids that came again, and for those whose event was never stored.

use std::collections::{BTreeMap, HashMap, HashSet};

use kukuri_core::{Change, Dedupe, Seq, UnixMillis, WriteSet};
use kukuri_event::EventId;
use kukuri_store::StoreError;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::OrStore;
use crate::page::collect;
use crate::tail::TailAt;
use crate::{rows, write};

/// Ids of records that leave, and when they came, by their numbers.
pub(crate) type Leaving = BTreeMap<i64, (EventId, UnixMillis)>;

/// Writes what changes, and remembers the ids of records that leave.
pub(crate) fn write(
    conn: &Connection,
    writes: &WriteSet,
    leaving: &Leaving,
) -> Result<(), StoreError> {
    let mut delete =
        conn.prepare_cached("DELETE FROM event_dedupe WHERE event_id = ?1").or_store()?;
    let stored = writes.records.iter().filter_map(|change| change.after.as_ref());
    let told: HashMap<EventId, Dedupe> =
        stored.map(|record| (record.event().id(), Dedupe::of(record))).collect();
    for Change { key, before, after } in &writes.dedupe {
        if before.is_some() {
            // There is a row only if the record did not tell.
            delete.execute([&key.as_bytes()[..]]).or_store()?;
        }
        // Also of an id that was forgotten and came again in one batch: it has another number now.
        let numbered = |row: &Option<Dedupe>| row.and_then(|row| row.seq);
        if before.is_some() && numbered(before) != numbered(after) {
            forget(conn, key)?;
        }
        match after {
            None => {}
            Some(row) if told.get(key) != Some(row) => insert(conn, key, row)?,
            Some(_) => {}
        }
    }
    remember(conn, leaving)
}

/// The records that leave and of which no row tells: what is remembered of them is what they told.
pub(crate) fn leaving(conn: &Connection, writes: &WriteSet) -> Result<Leaving, StoreError> {
    let changed: HashSet<&EventId> = writes.dedupe.iter().map(|change| &change.key).collect();
    let mut leaving = BTreeMap::new();
    for Change { key, before, after } in &writes.records {
        if let (Some(record), None) = (before, after)
            && !changed.contains(key)
            && load(conn, key)?.is_none()
        {
            leaving.insert(record.seq.0, (*key, record.ingested_at));
        }
    }
    Ok(leaving)
}

fn remember(conn: &Connection, leaving: &Leaving) -> Result<(), StoreError> {
    let sql = "INSERT INTO remembered (seq, event_id, first_seen_at) VALUES (?1, ?2, ?3)";
    let mut insert = conn.prepare_cached(sql).or_store()?;
    for (seq, (id, first_seen_at)) in leaving {
        write::one(&mut insert, params![seq, &id.as_bytes()[..], first_seen_at.0])?;
    }
    Ok(())
}

/// Deletes what is remembered of an event that has left.
fn forget(conn: &Connection, id: &EventId) -> Result<(), StoreError> {
    let mut delete = conn
        .prepare_cached("DELETE FROM remembered WHERE seq = ?1 AND event_id = ?2")
        .or_store()?;
    let mut delete_id =
        conn.prepare_cached("DELETE FROM event_ids WHERE id = ?1 AND seq = ?2").or_store()?;
    for seq in indexed(conn, id)? {
        if delete.execute(params![seq, &id.as_bytes()[..]]).or_store()? > 0 {
            write::one(&mut delete_id, params![id.prefix(), seq])?;
        }
    }
    Ok(())
}

/// The numbers that the index leads to from an id: mostly none or one.
pub(crate) fn indexed(conn: &Connection, id: &EventId) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT seq FROM event_ids WHERE id = ?1";
    collect(conn, sql, [id.prefix()], |row| row.get(0).or_store())
}

/// What is remembered of an event that has left, if it had one of these numbers.
pub(crate) fn remembered(
    conn: &Connection,
    seqs: &[i64],
    id: &EventId,
) -> Result<Option<Dedupe>, StoreError> {
    let sql = "SELECT first_seen_at FROM remembered WHERE seq = ?1 AND event_id = ?2";
    let mut select = conn.prepare_cached(sql).or_store()?;
    for seq in seqs {
        let row = select.query_row(params![seq, &id.as_bytes()[..]], |row| row.get(0));
        if let Some(first_seen_at) = row.optional().or_store()? {
            return Ok(Some(Dedupe::once(UnixMillis(first_seen_at), Some(Seq(*seq)))));
        }
    }
    Ok(None)
}

fn insert(conn: &Connection, id: &EventId, row: &Dedupe) -> Result<(), StoreError> {
    let sql = "INSERT INTO event_dedupe (event_id, first_seen_at, last_seen_at, seen_count, seq)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let id = &id.as_bytes()[..];
    let (seen_count, seq) = (write::count(row.seen_count), row.seq.map(|seq| seq.0));
    let values = params![id, row.first_seen_at.0, row.last_seen_at.0, seen_count, seq];
    write::one(&mut conn.prepare_cached(sql).or_store()?, values)
}

/// The row of an id, if it has one.
pub(crate) fn load(conn: &Connection, id: &EventId) -> Result<Option<Dedupe>, StoreError> {
    let sql = format!("SELECT {} FROM event_dedupe WHERE event_id = ?1", rows::DEDUPE_COLUMNS);
    let mut select = conn.prepare_cached(&sql).or_store()?;
    select.query_row([&id.as_bytes()[..]], |row| rows::dedupe(row, 0)).optional().or_store()
}

/// At least the first `max` ids after one, and what is remembered of them.
pub(crate) fn walk(
    conn: &Connection,
    tail: TailAt<'_>,
    after: Option<&EventId>,
    max: i64,
) -> Result<BTreeMap<EventId, Dedupe>, StoreError> {
    let new = tail.collect(|seq, event| {
        let row = (event.id, Dedupe::once(event.ingested_at, Some(seq)));
        if after.is_some_and(|after| event.id <= *after) { vec![] } else { vec![row] }
    });
    let mut found: BTreeMap<_, _> = new.into_iter().collect();
    let read = |row: &Row<'_>| Ok((rows::event_id(row, 0)?, rows::dedupe(row, 1).or_store()?));
    let first = after.map_or(i64::MIN, EventId::prefix);
    let after = after.map_or(&[][..], |id| &id.as_bytes()[..]);
    // Both at once: in either table alone there may be few among many that are passed by.
    let sql = "SELECT coalesce(e.event_id, r.event_id) AS whole,
                   coalesce(e.ingested_at, r.first_seen_at) AS time,
                   coalesce(e.ingested_at, r.first_seen_at), 1, i.seq
               FROM event_ids i LEFT JOIN events e ON e.seq = i.seq LEFT JOIN remembered r ON r.seq = i.seq
               WHERE i.id >= ?1 AND whole > ?2 ORDER BY i.id, whole LIMIT ?3";
    found.extend(collect(conn, sql, params![first, after, max], read)?);
    let sql = format!(
        "SELECT event_id, {} FROM event_dedupe WHERE event_id > ?1 ORDER BY event_id LIMIT ?2",
        rows::DEDUPE_COLUMNS
    );
    // Last, because a row says more than the record.
    found.extend(collect(conn, &sql, params![after, max], read)?);
    Ok(found)
}
