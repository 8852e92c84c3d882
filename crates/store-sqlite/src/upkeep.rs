//! What can leave: events that have aged or are the oldest, and memories. Rows are read in the order of
//! an index until enough is found; what is wanted of them is said by the rules' own types.

use std::cmp::Reverse;

use kukuri_core::{Cutoffs, FUTURE_SECONDS_BOUND, Shelf, State, TombstoneKey, TopicId, UnixMillis};
use kukuri_event::{EventId, Kind, UnixSeconds};
use kukuri_store::{Dated, Forgettable, Scope, StoreError};
use rusqlite::{CachedStatement, Connection, Row, params};

use crate::desk::{Desk, Snapshot};
use crate::error::{OrStore, corrupt};
use crate::page::{collect, limit};
use crate::rows;
use crate::tail::TailAt;

/// What the order of leaving depends on.
struct Candidate {
    id: EventId,
    created_at: i64,
    ingested_at: UnixMillis,
    shelf: Shelf,
}

const COLUMNS: &str =
    "events.event_id, events.created_at, events.ingested_at, events.kind, events.state";

/// Reads [`COLUMNS`].
fn candidate(row: &Row<'_>) -> Result<Candidate, StoreError> {
    let code: i16 = row.get(4).or_store()?;
    let state = State::from_code(code).ok_or_else(|| corrupt(format!("state {code}")))?;
    Ok(Candidate {
        id: rows::event_id(row, 0)?,
        created_at: row.get(1).or_store()?,
        ingested_at: UnixMillis(row.get(2).or_store()?),
        shelf: Shelf::of_kind(Kind(row.get(3).or_store()?), state),
    })
}

/// Looks for events by their numbers.
struct ByNumber<'c>(CachedStatement<'c>);

impl<'c> ByNumber<'c> {
    fn new(conn: &'c Connection) -> Result<Self, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM events WHERE seq = ?1");
        conn.prepare_cached(&sql).map(Self).or_store()
    }

    fn find(&mut self, seq: i64) -> Result<Option<Candidate>, StoreError> {
        let mut found = self.0.query([seq]).or_store()?;
        found.next().or_store()?.map(candidate).transpose()
    }
}

/// An event is taken in a day before its `created_at` at the earliest, so that what is younger than
/// that has not aged.
pub(crate) fn aged(
    desk: &mut Desk,
    topic: &TopicId,
    cutoffs: &Cutoffs,
    max: usize,
) -> Result<Vec<Dated>, StoreError> {
    let Snapshot { conn, numbers, segment, bounds } = desk.snapshot()?;
    let (Some(topic_no), Some(latest)) = (numbers.find(&conn, topic)?, cutoffs.latest()) else {
        return Ok(Vec::new());
    };
    let has_aged = |candidate: &Candidate| {
        cutoffs.of(candidate.shelf).is_some_and(|cutoff| candidate.ingested_at <= cutoff)
    };
    let mut events = ByNumber::new(&conn)?;
    let mut found = Vec::new();
    for (links, latest) in
        [(VISIBLE_LINKS, cutoffs.latest_visible()), (HIDDEN_LINKS, cutoffs.latest_hidden())]
    {
        let Some(latest) = latest else { continue };
        let until = latest.seconds().saturating_add(FUTURE_SECONDS_BOUND).0;
        let mut select = conn.prepare_cached(links).or_store()?;
        let mut rows = select.query(params![topic_no, until]).or_store()?;
        while found.len() < max {
            let Some(row) = rows.next().or_store()? else { break };
            let (seq, kind): (i64, Option<u16>) = (row.get(0).or_store()?, row.get(1).or_store()?);
            // Of current versions, which mostly stay, no more than this row is read.
            let shelf = kind.map(|kind| Shelf::of_kind(Kind(kind), State::Effective));
            if shelf.is_none_or(|shelf| cutoffs.of(shelf).is_some()) {
                found.extend(events.find(seq)?.filter(has_aged));
            }
        }
    }
    let tail = TailAt { segment: &segment, head: bounds.head };
    let new = tail.collect(|seq, event| {
        let linked = event.links.iter().any(|(no, _)| *no == topic_no);
        Vec::from_iter((linked && event.ingested_at <= latest).then_some(seq.0))
    });
    for seq in new {
        if found.len() >= max {
            break;
        }
        found.extend(events.find(seq)?.filter(has_aged));
    }
    let dated = |candidate: Candidate| (UnixSeconds(candidate.created_at), candidate.id);
    Ok(found.into_iter().map(dated).collect())
}

/// Number and kind, where the table tells it, of a topic's events, the oldest first.
const VISIBLE_LINKS: &str = "SELECT seq, kind FROM event_topics
    WHERE topic_no = ?1 AND created_at <= ?2 ORDER BY created_at";
const HIDDEN_LINKS: &str = "SELECT seq, NULL FROM hidden_links
    WHERE topic_no = ?1 AND created_at <= ?2 ORDER BY created_at";

/// Current versions come last, so that they are passed over until there is nothing else.
pub(crate) fn oldest(desk: &mut Desk, of: &Scope, max: usize) -> Result<Vec<EventId>, StoreError> {
    let Snapshot { conn, numbers, segment, bounds } = desk.snapshot()?;
    let Scope::Topic(topic) = of else {
        let sql = format!("SELECT {COLUMNS} FROM events ORDER BY seq");
        let found = current_last(&conn, &sql, [], max)?;
        return Ok(found.into_iter().take(max).map(|candidate| candidate.id).collect());
    };
    let Some(topic_no) = numbers.find(&conn, topic)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for table in ["event_topics", "hidden_links"] {
        let sql = format!(
            "SELECT {COLUMNS} FROM {table} AS links CROSS JOIN events ON events.seq = links.seq
             WHERE links.topic_no = ?1 ORDER BY links.created_at, links.event_id DESC"
        );
        found.extend(current_last(&conn, &sql, [topic_no], max)?);
    }
    let tail = TailAt { segment: &segment, head: bounds.head };
    let mut events = ByNumber::new(&conn)?;
    let mut others = 0;
    for seq in tail.oldest_in(topic_no) {
        if others >= max {
            break;
        }
        let one = events.find(seq)?;
        others += one.iter().filter(|candidate| candidate.shelf != Shelf::Current).count();
        found.extend(one);
    }
    found.sort_unstable_by_key(|candidate| {
        let current = candidate.shelf == Shelf::Current;
        (current, candidate.created_at, Reverse(candidate.id))
    });
    Ok(found.into_iter().take(max).map(|candidate| candidate.id).collect())
}

/// At least the first `max` rows that are no current versions, and behind them the first that are.
fn current_last(
    conn: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    max: usize,
) -> Result<Vec<Candidate>, StoreError> {
    let (mut others, mut current) = (Vec::new(), Vec::new());
    let mut select = conn.prepare_cached(sql).or_store()?;
    let mut found = select.query(values).or_store()?;
    while others.len() < max {
        let Some(row) = found.next().or_store()? else { break };
        let candidate = candidate(row)?;
        if candidate.shelf != Shelf::Current {
            others.push(candidate);
        } else if current.len() < max {
            current.push(candidate);
        }
    }
    others.append(&mut current);
    Ok(others)
}

pub(crate) fn forgettable(
    conn: &Connection,
    before: UnixMillis,
    max: usize,
) -> Result<Forgettable, StoreError> {
    let events = "SELECT event_id, first_seen_at FROM event_dedupe WHERE first_seen_at < ?1
        AND NOT EXISTS (SELECT 1 FROM events WHERE events.seq = event_dedupe.seq)
        UNION ALL
        SELECT event_id, first_seen_at FROM remembered WHERE first_seen_at < ?1
        AND NOT EXISTS (SELECT 1 FROM event_dedupe WHERE event_dedupe.event_id = remembered.event_id)
        ORDER BY first_seen_at LIMIT ?2";
    let tombstones = "SELECT target_event_id, pubkey FROM deletion_tombstones
        WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2";
    let values = params![before.0, limit(max)];
    let key = |row: &Row<'_>| {
        Ok(TombstoneKey { target: rows::event_id(row, 0)?, pubkey: rows::pubkey(row, 1)? })
    };
    Ok(Forgettable {
        events: collect(conn, events, values, |row| rows::event_id(row, 0))?,
        tombstones: collect(conn, tombstones, values, key)?,
    })
}
