//! The feed: written row by row with explicit numbers, read back without a hole.

use kukuri_core::{Cursor, FeedRow, Op, Reason, Seq, Source, TopicId, UnixMillis, VersionKey};
use kukuri_event::{Kind, UnixSeconds};
use kukuri_store::{FeedError, StoreError};
use rusqlite::{Connection, Row, params};

use crate::desk::{Desk, TopicNumbers, moment};
use crate::error::{OrStore, corrupt};
use crate::rows;
use crate::write::one;

const COLUMNS: &str = "seq, op, event_id, topic_no, prior, kind, pubkey, created_at, ingested_at, effective_d, reason, source, via_topic_no";

pub(crate) fn write(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    rows: &[FeedRow],
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO events_outbox ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    );
    let mut insert = conn.prepare_cached(&sql).or_store()?;
    for row in rows {
        let via = row.via.as_ref().map(|topic| numbers.assign(conn, topic)).transpose()?;
        one(
            &mut insert,
            params![
                row.seq.0,
                row.op.code(),
                &row.event_id.as_bytes()[..],
                numbers.assign(conn, &row.topic_id)?,
                join(&row.prior),
                row.kind.0,
                &row.pubkey.as_bytes()[..],
                row.created_at.0,
                row.ingested_at.0,
                row.effective_key.as_ref().map(|key| key.d.as_bytes()),
                row.reason.map(Reason::code),
                row.source.code(),
                via,
            ],
        )?;
    }
    Ok(())
}

/// Topic ids hold no blanks.
fn join(topics: &[TopicId]) -> String {
    topics.iter().map(TopicId::as_str).collect::<Vec<_>>().join(" ")
}

pub(crate) fn read(
    desk: &mut Desk,
    after: Cursor,
    rows_max: usize,
) -> Result<Vec<FeedRow>, FeedError> {
    let tx = desk.conn.transaction().or_store()?;
    moment(&tx)?.check(after)?;
    let rows = select(&tx, &mut desk.numbers, after.seq, rows_max)?;
    for (nth, row) in (0..).zip(&rows) {
        if row.seq.0 != after.seq.0 + 1 + nth {
            return Err(FeedError::Hole { after: Seq(after.seq.0 + nth) });
        }
    }
    Ok(rows)
}

/// Rows as they are, holes or not.
pub(crate) fn select(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    after: Seq,
    rows_max: usize,
) -> Result<Vec<FeedRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM events_outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2");
    let mut select = conn.prepare_cached(&sql).or_store()?;
    let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let mut found = select.query(params![after.0, limit]).or_store()?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().or_store()? {
        rows.push(feed_row(conn, numbers, row)?);
    }
    Ok(rows)
}

fn feed_row(
    conn: &Connection,
    numbers: &mut TopicNumbers,
    row: &Row<'_>,
) -> Result<FeedRow, StoreError> {
    let code = |column: usize| row.get::<_, i16>(column).or_store();
    let bad = |what: &str, code: i16| corrupt(format!("{what} {code} in the feed"));
    let (op, source) = (code(1)?, code(11)?);
    let reason: Option<i16> = row.get(10).or_store()?;
    let kind = Kind(row.get(5).or_store()?);
    let pubkey = rows::pubkey(row, 6)?;
    let d: Option<Vec<u8>> = row.get(9).or_store()?;
    let d = d.map(String::from_utf8).transpose().map_err(corrupt)?;
    let prior = row.get_ref(4).or_store()?.as_str().map_err(corrupt)?;
    let prior: Result<Vec<TopicId>, _> = prior.split_terminator(' ').map(TopicId::parse).collect();
    let via: Option<i64> = row.get(12).or_store()?;
    Ok(FeedRow {
        seq: Seq(row.get(0).or_store()?),
        op: Op::from_code(op).ok_or_else(|| bad("op", op))?,
        event_id: rows::event_id(row, 2)?,
        topic_id: numbers.topic(conn, row.get(3).or_store()?)?,
        prior: prior.map_err(corrupt)?,
        kind,
        pubkey,
        created_at: UnixSeconds(row.get(7).or_store()?),
        ingested_at: UnixMillis(row.get(8).or_store()?),
        effective_key: d.map(|d| VersionKey { kind, pubkey, d }),
        reason: reason
            .map(|code| Reason::from_code(code).ok_or_else(|| bad("reason", code)))
            .transpose()?,
        source: Source::from_code(source).ok_or_else(|| bad("source", source))?,
        via: via.map(|no| numbers.topic(conn, no)).transpose()?,
    })
}
