//! Reading indexes: by id, or several newest-first streams merged into one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use kukuri_event::{EventId, Filter};
use kukuri_store::StoreError;
use rusqlite::{CachedStatement, Connection, Row, Rows, params};

use super::check::{Candidate, Check, Found, TopicCover};
use super::plan::Stream;
use super::tail_cursor::TailCursor;
use super::{Budget, Spent};
use crate::error::OrStore;
use crate::{facts, rows};

/// `None` when the budget is spent.
type Scanned = Result<Option<Vec<Found>>, StoreError>;

pub(super) fn ids(check: &Check<'_>, ids: &[EventId], budget: &mut Budget) -> Scanned {
    let mut hits = Vec::new();
    for id in ids {
        let seqs = facts::seqs(check.conn, check.tail, id)?;
        if let Err(Spent) = budget.spend(seqs.len().max(1)) {
            return Ok(None);
        }
        for seq in seqs {
            hits.extend(check.event(seq)?.filter(|found| found.hit.id == *id));
        }
    }
    Ok(Some(hits))
}

/// Merges the streams, newest first, until `limit` events match and every tie with the last of them
/// was looked at: which of the ties belong to the answer is told by their ids.
pub(super) fn ordered(
    check: &Check<'_>,
    streams: &[Stream],
    limit: usize,
    budget: &mut Budget,
) -> Scanned {
    let conn = check.conn;
    let mut statements =
        streams.iter().map(|stream| prepare(conn, stream)).collect::<Result<Vec<_>, _>>()?;
    let mut sources = Vec::with_capacity(2 * streams.len());
    for (statement, stream) in statements.iter_mut().zip(streams) {
        let rows = open(statement, stream, check.filter)?;
        sources.push(Source::Table { rows, stream, filter: check.filter });
        sources.push(Source::Tail(TailCursor::new(
            conn,
            check.tail,
            stream,
            check.filter,
            limit.saturating_add(1),
        )));
    }
    let mut heap = BinaryHeap::with_capacity(sources.len());
    let mut pending: Vec<Option<Candidate>> = Vec::with_capacity(sources.len());
    for (nth, source) in sources.iter_mut().enumerate() {
        let first = source.next()?;
        heap.extend(first.as_ref().map(|row| (row.created_at, Reverse(nth))));
        pending.push(first);
    }
    let (mut hits, mut seen) = (Vec::<Found>::new(), HashSet::new());
    while let Some((created_at, Reverse(nth))) = heap.pop() {
        if hits.len() >= limit && hits.last().is_some_and(|last| last.hit.created_at.0 > created_at)
        {
            break;
        }
        if let Err(Spent) = budget.spend(1) {
            return Ok(None);
        }
        let row = pending[nth].take().expect("a source on the heap has a row");
        // An event on two topics, or with two of the tags, is in two streams.
        if streams.len() == 1 || seen.insert(row.seq) {
            hits.extend(check.candidate(row)?);
        }
        pending[nth] = sources[nth].next()?;
        heap.extend(pending[nth].as_ref().map(|row| (row.created_at, Reverse(nth))));
    }
    Ok(Some(hits))
}

/// Where a stream's rows come from: the table, and the tail that is not in it yet.
enum Source<'a> {
    Table { rows: Rows<'a>, stream: &'a Stream, filter: &'a Filter },
    Tail(TailCursor<'a>),
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<Candidate>, StoreError> {
        match self {
            Self::Table { rows, stream, filter } => {
                rows.next().or_store()?.map(|row| candidate(row, stream, filter)).transpose()
            }
            Self::Tail(cursor) => cursor.next(),
        }
    }
}

fn prepare<'c>(conn: &'c Connection, stream: &Stream) -> Result<CachedStatement<'c>, StoreError> {
    let sql = match stream {
        Stream::Topic(_) => {
            "SELECT created_at, seq, kind, event_id, expires_at, author FROM event_topics
             WHERE created_at BETWEEN ?1 AND ?2 AND topic_no = ?3 ORDER BY created_at DESC"
        }
        Stream::TopicBodies(_) => {
            "SELECT t.created_at, seq, t.event_id, t.expires_at, event_json
             FROM event_topics AS t CROSS JOIN events USING (seq)
             WHERE t.created_at BETWEEN ?1 AND ?2 AND topic_no = ?3 ORDER BY t.created_at DESC"
        }
        Stream::Tag(_) => {
            "SELECT created_at, seq FROM event_tags
             WHERE created_at BETWEEN ?1 AND ?2 AND key = ?3 ORDER BY created_at DESC"
        }
        Stream::Author(_) => {
            "SELECT created_at, seq, kind FROM event_authors
             WHERE created_at BETWEEN ?1 AND ?2 AND author = ?3 ORDER BY created_at DESC"
        }
    };
    conn.prepare_cached(sql).or_store()
}

fn open<'s>(
    statement: &'s mut CachedStatement<'_>,
    stream: &Stream,
    filter: &Filter,
) -> Result<Rows<'s>, StoreError> {
    let since = filter.since.map_or(i64::MIN, |since| since.0);
    let until = filter.until.map_or(i64::MAX, |until| until.0);
    let (Stream::Topic(number)
    | Stream::TopicBodies(number)
    | Stream::Tag(number)
    | Stream::Author(number)) = stream;
    statement.query(params![since, until, number]).or_store()
}

/// Reads what the filter asks about.
fn candidate(row: &Row<'_>, stream: &Stream, filter: &Filter) -> Result<Candidate, StoreError> {
    let mut candidate = Candidate {
        created_at: row.get(0).or_store()?,
        seq: row.get(1).or_store()?,
        kind: None,
        author: None,
        topic: None,
        body: None,
    };
    if filter.kinds.is_some() && matches!(stream, Stream::Topic(_) | Stream::Author(_)) {
        candidate.kind = Some(row.get(2).or_store()?);
    }
    match stream {
        Stream::Topic(_) => {
            candidate.topic = Some(cover(row, 3)?);
            if filter.authors.is_some() {
                candidate.author = Some(row.get(5).or_store()?);
            }
        }
        Stream::TopicBodies(_) => {
            candidate.topic = Some(cover(row, 2)?);
            candidate.body = Some(row.get(4).or_store()?);
        }
        Stream::Tag(_) | Stream::Author(_) => {}
    }
    Ok(candidate)
}

fn cover(row: &Row<'_>, column: usize) -> Result<TopicCover, StoreError> {
    let event_id = rows::event_id(row, column)?;
    Ok(TopicCover { event_id, expires_at: row.get(column + 1).or_store()? })
}
