//! Walking an index from the newest event on, along several keys at once, no further than the
//! answer needs.
//!
//! Each round reads a stretch of every key that may still matter. A key matters while it can hold
//! events that are not older than the last one wanted; stretches grow, so that rounds stay few.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::Seq;
use kukuri_event::{Kind, UnixSeconds};
use kukuri_store::Hit;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Postgres, Row};

use super::{Budget, Source, TooBroad, Wanted, check};
use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::rows;

/// The stretches of `$1 …`, in the table and by the key that `$table` and `$key` name.
macro_rules! stretches {
    ($columns:literal, $table:literal, $key:literal, $join:literal) => {
        concat!(
            "SELECT k.nth, s.created_at, s.tie, s.event, ",
            $columns,
            " FROM UNNEST($1::BIGINT[], $2::BIGINT[], $3::BIGINT[], $4::BIGINT[])
                WITH ORDINALITY AS k (key, created_at, tie, take, nth)
              CROSS JOIN LATERAL (
                SELECT * FROM ",
            $table,
            " AS e WHERE e.",
            $key,
            " = k.key AND (e.created_at, e.tie) <= (k.created_at, k.tie) AND e.created_at >= $5
                ORDER BY e.created_at DESC, e.tie DESC LIMIT k.take
              ) AS s ",
            $join
        )
    };
}

const TOPICS: &str =
    stretches!("s.topic, s.kind, s.expires_at, s.event_id, s.pubkey", "event_topics", "topic", "");

const AUTHORS: &str =
    stretches!("s.topic, s.kind, s.expires_at, s.event_id, s.pubkey", "event_topics", "author", "");

/// A row whose tag only shares the key, or whose event is in none of the topics, comes alone.
const TAGS_IN_TOPICS: &str = stretches!(
    "l.topic, l.kind, l.expires_at, l.event_id, l.pubkey",
    "event_tags",
    "key",
    "LEFT JOIN LATERAL (
        SELECT l.* FROM event_topics l
        WHERE l.topic = ANY($8) AND l.created_at = s.created_at AND l.tie = s.tie
            AND l.event = s.event
        LIMIT 1
    ) AS l ON s.tag = $6 AND s.value = ANY($7)"
);

const TAGS: &str = stretches!(
    "0, l.kind, l.expires_at, l.event_id, l.pubkey",
    "event_tags",
    "key",
    "LEFT JOIN events l ON l.seq = s.event AND l.state = 1 AND s.tag = $6 AND s.value = ANY($7)"
);

/// A place in the order of an index: the greater, the newer.
type Place = (i64, i64);

const NEWEST: Place = (i64::MAX, i64::MAX);

/// Without other conditions every row is a hit; with them, this many rows are read for one at first.
const ROWS_PER_HIT: usize = 4;
const STRETCH_MIN: usize = 16;
const STRETCH_GROWTH: usize = 4;

/// A row that may be a hit.
pub(super) struct Candidate {
    place: Place,
    hit: Hit,
}

/// How far one key has been read.
struct Key {
    key: i64,
    /// The last row that was read.
    place: Place,
    /// How many rows were read at that place. They are read again, because an index abbreviates ids
    /// and there may be more.
    rows_at_place: usize,
    take: usize,
    done: bool,
}

pub(super) async fn run(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    source: Source,
    budget: &mut Budget,
) -> Result<Result<Vec<Hit>, TooBroad>, Fault> {
    let mut scan = Scan::new(wanted, source);
    loop {
        let open = scan.open_keys();
        if open.is_empty() {
            return Ok(Ok(scan.candidates.into_values().map(|c| c.hit).collect()));
        }
        // A query that needs exactly what it may cost is told apart from one that needs more by
        // reading one row too many.
        if scan.overdrawn {
            return Ok(Err(TooBroad));
        }
        let new = scan.read(connection, open, budget).await?;
        if scan.in_full {
            check::retain(connection, numbers, wanted, &mut scan.candidates, &new).await?;
        }
    }
}

struct Scan<'a> {
    wanted: &'a Wanted<'a>,
    source: Source,
    keys: Vec<Key>,
    candidates: BTreeMap<Seq, Candidate>,
    /// Whether candidates have conditions that only their bodies can tell.
    in_full: bool,
    overdrawn: bool,
}

impl<'a> Scan<'a> {
    fn new(wanted: &'a Wanted<'a>, source: Source) -> Self {
        let filter = wanted.filter;
        let tags = filter.other_tags().count();
        let in_full = tags > usize::from(matches!(source, Source::Tag { .. }));
        let exact = matches!(source, Source::Topics(_))
            && filter.kinds.is_none()
            && filter.authors.is_none()
            && !in_full;
        let keys = source.keys();
        let rows = if exact {
            wanted.limit.saturating_add(1)
        } else {
            wanted.limit.saturating_mul(ROWS_PER_HIT).max(STRETCH_MIN)
        };
        let take = match keys.len() {
            0 | 1 => rows,
            // Twice its share: keys are not equally busy.
            many => rows.saturating_mul(2).div_ceil(many).clamp(STRETCH_MIN.min(rows), rows),
        };
        let newest = filter.until.map_or(NEWEST, |until| (until.0, i64::MAX));
        let key = |key| Key { key, place: newest, rows_at_place: 0, take, done: false };
        Self {
            wanted,
            source,
            keys: keys.into_iter().map(key).collect(),
            candidates: BTreeMap::new(),
            in_full,
            overdrawn: false,
        }
    }

    /// The keys that may hold more of the answer.
    fn open_keys(&self) -> Vec<usize> {
        let mut places: Vec<Place> = self.candidates.values().map(|c| c.place).collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let last = places.get(self.wanted.limit - 1);
        let matters = |key: &Key| !key.done && last.is_none_or(|last| key.place >= *last);
        let open = self.keys.iter().enumerate().filter(|(_, key)| matters(key));
        open.map(|(nth, _)| nth).collect()
    }

    /// Reads the next stretch of the open keys; returns what candidates it gave.
    async fn read(
        &mut self,
        connection: &mut PgConnection,
        open: Vec<usize>,
        budget: &mut Budget,
    ) -> Result<BTreeSet<Seq>, Fault> {
        let share = budget.rows / open.len() + 1;
        let mut takes = Vec::with_capacity(open.len());
        for nth in &open {
            let key = &mut self.keys[*nth];
            takes.push(key.take.min(share) + key.rows_at_place);
            key.take = key.take.saturating_mul(STRETCH_GROWTH);
        }
        let found = self.query(&open, &takes).fetch_all(connection).await?;
        let mut stretches = vec![Vec::new(); open.len()];
        let mut new = BTreeSet::new();
        for row in &found {
            let nth = usize::try_from(row.try_get::<i64, _>(0)? - 1).unwrap_or(0);
            let (place, event) = ((row.try_get(1)?, row.try_get(2)?), Seq(row.try_get(3)?));
            stretches[nth].push(place);
            if let Some(candidate) = self.candidate(row, place, event)?
                && self.candidates.insert(event, candidate).is_none()
            {
                new.insert(event);
            }
        }
        let mut rows = 0;
        for (nth, (stretch, take)) in open.iter().zip(stretches.iter().zip(takes)) {
            rows += self.keys[*nth].advance(stretch, take);
        }
        self.overdrawn = rows > budget.rows;
        budget.spend(rows);
        Ok(new)
    }

    fn query(
        &self,
        open: &[usize],
        takes: &[usize],
    ) -> sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments> {
        let column = |read: fn(&Key) -> i64| -> Vec<i64> {
            open.iter().map(|nth| read(&self.keys[*nth])).collect()
        };
        let takes: Vec<i64> = takes.iter().map(|take| crate::list::limit(*take)).collect();
        let since = self.wanted.filter.since.map_or(i64::MIN, |since| since.0);
        let sql = match &self.source {
            Source::Topics(_) => TOPICS,
            Source::Authors { .. } => AUTHORS,
            Source::Tag { topics: Some(_), .. } => TAGS_IN_TOPICS,
            Source::Tag { topics: None, .. } => TAGS,
        };
        let query = sqlx::query(sql)
            .bind(column(|key| key.key))
            .bind(column(|key| key.place.0))
            .bind(column(|key| key.place.1))
            .bind(takes)
            .bind(since);
        match &self.source {
            Source::Tag { letter, values, topics, .. } => {
                let query = query.bind(i16::from(letter.as_byte())).bind(values);
                match topics {
                    Some(topics) => query.bind(topics),
                    None => query,
                }
            }
            _ => query,
        }
    }

    /// The row, unless a condition that its columns can tell fails.
    fn candidate(&self, row: &PgRow, place: Place, event: Seq) -> Result<Option<Candidate>, Fault> {
        let Some(kind) = row.try_get::<Option<i32>, _>(5)? else {
            return Ok(None);
        };
        let filter = self.wanted.filter;
        let ends: Option<i64> = row.try_get(6)?;
        let kinds = filter.kinds.as_ref();
        if kinds.is_some_and(|kinds| !u16::try_from(kind).is_ok_and(|n| kinds.contains(&Kind(n))))
            || ends.is_some_and(|end| end <= self.wanted.now.0)
        {
            return Ok(None);
        }
        if let Source::Authors { topics: Some(topics), .. } = &self.source
            && !topics.contains(&row.try_get(4)?)
        {
            return Ok(None);
        }
        if let Some(authors) = &filter.authors
            && !authors.contains(&rows::pubkey(row.try_get(8)?)?)
        {
            return Ok(None);
        }
        let hit =
            Hit { event, created_at: UnixSeconds(place.0), id: rows::event_id(row.try_get(7)?)? };
        Ok(Some(Candidate { place, hit }))
    }
}

impl Key {
    /// Notes what was read, of `take` rows that were asked for; returns how many were new.
    fn advance(&mut self, stretch: &[Place], take: usize) -> usize {
        let new = stretch.len().saturating_sub(self.rows_at_place);
        self.done = stretch.len() < take;
        if let Some(last) = stretch.iter().min() {
            self.place = *last;
            self.rows_at_place = stretch.iter().filter(|place| *place == last).count();
        }
        new
    }
}
