//! Writing a run: the index rows of the whole tail, each table in its own key order.

use std::collections::HashSet;

use kukuri_core::Seq;
use kukuri_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::OrStore;
use crate::page::collect;
use crate::tail::{Segment, TailEvent, TailEvents};
use crate::write::one;

/// Writes the segment's index rows within the caller's transaction, whose head is `head`. After the
/// commit, the tail starts after `head`.
pub(crate) fn write(conn: &Connection, segment: &Segment, head: Seq) -> Result<(), StoreError> {
    let events = segment.events();
    let hidden: HashSet<i64> = collect(
        conn,
        "SELECT seq FROM events WHERE seq > ?1 AND state <> 1",
        [segment.base.0],
        |row| row.get(0).or_store(),
    )?
    .into_iter()
    .collect();
    let visible = |seq: &i64| !hidden.contains(seq);
    write_ids(conn, &events)?;
    write_topics(conn, &events, visible)?;
    write_hidden(conn, &events, visible)?;
    write_tags(conn, &events, visible)?;
    write_authors(conn, &events, visible)?;
    let mut update = conn.prepare_cached("UPDATE indexed SET up_to_seq = ?1").or_store()?;
    one(&mut update, [head.0])
}

fn write_ids(conn: &Connection, events: &TailEvents) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(crate::indexes::INSERT_ID).or_store()?;
    let mut ids: Vec<_> = events.ids.iter().map(|(id, seq)| (id.prefix(), seq)).collect();
    ids.sort_unstable();
    for (id, seq) in ids {
        one(&mut insert, params![id, seq])?;
    }
    Ok(())
}

fn write_topics(
    conn: &Connection,
    events: &TailEvents,
    visible: impl Fn(&i64) -> bool,
) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(crate::indexes::INSERT_TOPIC).or_store()?;
    for (topic_no, (created_at, id, seq)) in &events.topics {
        if visible(seq) {
            let TailEvent { kind, author, expires_at, .. } = &events.by_seq[seq];
            let id = &id.as_bytes()[..];
            one(&mut insert, params![topic_no, created_at.0, id, seq, kind, author, expires_at])?;
        }
    }
    Ok(())
}

fn write_hidden(
    conn: &Connection,
    events: &TailEvents,
    visible: impl Fn(&i64) -> bool,
) -> Result<(), StoreError> {
    let hidden = events.topics.iter().filter(|(_, (.., seq))| !visible(seq));
    let mut rows: Vec<_> = hidden
        .map(|(topic_no, (created_at, id, seq))| (*topic_no, created_at.0, *id, *seq))
        .collect();
    rows.sort_unstable();
    crate::indexes::insert_hidden(conn, &rows)
}

fn write_tags(
    conn: &Connection,
    events: &TailEvents,
    visible: impl Fn(&i64) -> bool,
) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(crate::indexes::INSERT_TAG).or_store()?;
    for (key, (created_at, seq)) in &events.tags {
        if visible(seq) {
            one(&mut insert, params![key, created_at.0, seq])?;
        }
    }
    Ok(())
}

fn write_authors(
    conn: &Connection,
    events: &TailEvents,
    visible: impl Fn(&i64) -> bool,
) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(crate::indexes::INSERT_AUTHOR).or_store()?;
    for (author, (created_at, seq)) in &events.authors {
        if visible(seq) {
            one(&mut insert, params![author, created_at.0, seq, events.by_seq[seq].kind])?;
        }
    }
    Ok(())
}
