//! Reading indexes: by id, or several newest-first streams merged into one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use kukuri_event::EventId;
use kukuri_store::{Order, StoreError};
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

/// Merges the streams, newest first, until `limit` events match and no tie with the last of them can belong
/// to the answer: which of the ties do is told by their ids.
pub(super) fn ordered(
    check: &Check<'_>,
    streams: &[Stream],
    limit: usize,
    budget: &mut Budget,
) -> Scanned {
    let ranges: Vec<Range<'_>> = streams.iter().flat_map(|stream| ranges(check, stream)).collect();
    let statements = ranges.iter().map(|range| range.prepare(check.conn));
    let mut statements = statements.collect::<Result<Vec<_>, _>>()?;
    let mut sources = Vec::with_capacity(ranges.len() + streams.len());
    for (statement, range) in statements.iter_mut().zip(&ranges) {
        sources.push(Source::Table { rows: range.open(statement, check)?, range, check });
    }
    for stream in streams {
        sources.push(Source::Tail(TailCursor::new(check, stream, limit.saturating_add(1))));
    }
    let mut heap = BinaryHeap::with_capacity(sources.len());
    let mut pending: Vec<Option<Candidate>> = Vec::with_capacity(sources.len());
    for (nth, source) in sources.iter_mut().enumerate() {
        let first = source.next()?;
        heap.extend(first.as_ref().map(|row| (Next::of(row), Reverse(nth))));
        pending.push(first);
    }
    let (mut hits, mut seen) = (Hits::new(limit), HashSet::new());
    while let Some((next, Reverse(nth))) = heap.pop() {
        if hits.are_complete(next) {
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
        heap.extend(pending[nth].as_ref().map(|row| (Next::of(row), Reverse(nth))));
    }
    Ok(Some(hits.found))
}

/// The order in which rows are looked at: newest first, and of one second those first whose ids are not known
/// yet, since any of them may be the least; then by id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    created_at: i64,
    id: Reverse<Option<EventId>>,
}

impl Next {
    fn of(row: &Candidate) -> Self {
        Self { created_at: row.created_at, id: Reverse(row.id) }
    }
}

/// What was found, of which the first `limit` are wanted, and no time is newer than the one before.
struct Hits {
    found: Vec<Found>,
    limit: usize,
    /// The places of the first so many, once there are as many; the last of them on top. It is made when ties
    /// have to be told apart.
    first: Option<BinaryHeap<Order>>,
}

impl Hits {
    fn new(limit: usize) -> Self {
        Self { found: Vec::new(), limit, first: None }
    }

    fn extend(&mut self, found: Option<Found>) {
        if let (Some(first), Some(Found { hit, .. })) = (&mut self.first, &found) {
            first.push(hit.order());
            first.pop();
        }
        self.found.extend(found);
    }

    /// Whether neither the next row nor any after it belongs to the answer.
    fn are_complete(&mut self, next: Next) -> bool {
        let Some(last) = self.found.last().filter(|_| self.found.len() >= self.limit) else {
            return false;
        };
        match next.id {
            _ if last.hit.created_at.0 > next.created_at => true,
            Reverse(None) => false,
            Reverse(Some(id)) => {
                let order = |found: &Found| found.hit.order();
                let first = self.first.get_or_insert_with(|| {
                    let mut orders: Vec<Order> = self.found.iter().map(order).collect();
                    orders.sort_unstable();
                    orders.truncate(self.limit);
                    orders.into()
                });
                let next = Order(Reverse(last.hit.created_at), id);
                first.peek().is_some_and(|last| next > *last)
            }
        }
    }
}

/// A part of a stream's index that is read in one go.
struct Range<'a> {
    stream: &'a Stream,
    part: Part,
}

enum Part {
    /// All up to this time.
    Until(i64),
    /// What a second has after an id.
    SecondAfter(i64, EventId),
}

/// What is to be read of a stream. The index of a topic is sorted by ids as well, so that a second with any
/// number of events can be left and come back to.
fn ranges<'a>(check: &Check<'_>, stream: &'a Stream) -> Vec<Range<'a>> {
    let until = check.query.until(check.filter).map_or(i64::MAX, |until| until.0);
    let is_wanted = check.filter.since.is_none_or(|since| since.0 <= until);
    let parts = match (stream, check.query.after) {
        (Stream::Topic(_), Some(Order(Reverse(second), id))) if second.0 == until && is_wanted => {
            let older = until.checked_sub(1).map(Part::Until);
            older.into_iter().chain([Part::SecondAfter(until, id)]).collect()
        }
        _ => vec![Part::Until(until)],
    };
    parts.into_iter().map(|part| Range { stream, part }).collect()
}

impl Range<'_> {
    fn prepare<'c>(&self, conn: &'c Connection) -> Result<CachedStatement<'c>, StoreError> {
        let sql = match (self.stream, &self.part) {
            (Stream::Topic(_), Part::SecondAfter(..)) => {
                "SELECT created_at, seq, kind, event_id, expires_at, author FROM event_topics
                 WHERE topic_no = ?1 AND created_at = ?2 AND event_id > ?3 ORDER BY event_id"
            }
            (Stream::Topic(_), _) => {
                "SELECT created_at, seq, kind, event_id, expires_at, author FROM event_topics
                 WHERE created_at BETWEEN ?1 AND ?2 AND topic_no = ?3
                 ORDER BY created_at DESC, event_id"
            }
            (Stream::TopicBodies(_), _) => {
                "SELECT t.created_at, seq, t.event_id, t.expires_at, event_json
                 FROM event_topics AS t CROSS JOIN events USING (seq)
                 WHERE t.created_at BETWEEN ?1 AND ?2 AND topic_no = ?3
                 ORDER BY t.created_at DESC, t.event_id"
            }
            (Stream::Tag(_), _) => {
                "SELECT created_at, seq FROM event_tags
                 WHERE created_at BETWEEN ?1 AND ?2 AND key = ?3 ORDER BY created_at DESC"
            }
            (Stream::Author(_), _) => {
                "SELECT created_at, seq, kind FROM event_authors
                 WHERE created_at BETWEEN ?1 AND ?2 AND author = ?3 ORDER BY created_at DESC"
            }
        };
        conn.prepare_cached(sql).or_store()
    }

    fn open<'s>(
        &self,
        statement: &'s mut CachedStatement<'_>,
        check: &Check<'_>,
    ) -> Result<Rows<'s>, StoreError> {
        let since = check.filter.since.map_or(i64::MIN, |since| since.0);
        let (Stream::Topic(number)
        | Stream::TopicBodies(number)
        | Stream::Tag(number)
        | Stream::Author(number)) = self.stream;
        let rows = match &self.part {
            Part::Until(until) => statement.query(params![since, until, number]),
            Part::SecondAfter(second, id) => {
                statement.query(params![number, second, &id.as_bytes()[..]])
            }
        };
        rows.or_store()
    }

    /// Reads what the filter asks about.
    fn candidate(&self, row: &Row<'_>, check: &Check<'_>) -> Result<Candidate, StoreError> {
        let (stream, filter) = (self.stream, check.filter);
        let mut candidate = Candidate {
            created_at: row.get(0).or_store()?,
            id: None,
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
        candidate.id = candidate.topic.as_ref().map(|cover| cover.event_id);
        Ok(candidate)
    }
}

fn cover(row: &Row<'_>, column: usize) -> Result<TopicCover, StoreError> {
    let event_id = rows::event_id(row, column)?;
    Ok(TopicCover { event_id, expires_at: row.get(column + 1).or_store()? })
}

/// Where a stream's rows come from: the table, and the tail that is not in it yet.
enum Source<'a> {
    Table { rows: Rows<'a>, range: &'a Range<'a>, check: &'a Check<'a> },
    Tail(TailCursor<'a>),
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<Candidate>, StoreError> {
        match self {
            Self::Table { rows, range, check } => {
                rows.next().or_store()?.map(|row| range.candidate(row, check)).transpose()
            }
            Self::Tail(cursor) => cursor.next(),
        }
    }
}
