//! Partitions are made before they are needed, each in a short transaction of its own: an empty
//! table is made, bounded and attached, which holds up neither readers nor writers.
//!
//! The feed and the events that leave by the partition are both parted by ranges of seq. So a partition is never
//! larger than it was meant to be, the number of an event leads to it, and no clock has a say: what lies
//! behind the head gets no more rows.

use std::collections::BTreeMap;

use kukuri_core::Seq;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::error::Fault;
use crate::migrate::{lock, try_lock};

/// How many are ready beyond the one in use.
const AHEAD: i64 = 2;

/// How many batches pass before partitions ahead are tried again after somebody's lock forbade them.
const AHEAD_PAUSE_BATCHES: u32 = 256;

/// A new partition takes this share of all that the table spans, if that is more than the least: every statement that
/// looks for events has to be prepared to look into each partition, so that there must not be many. Where as much
/// leaves as comes there are about so many; while a table grows from nothing, as many again for each time
/// it has become 2.7 times as long.
const SHARE: i64 = 8;

/// Who wants a partition, and for when.
#[derive(Clone, Copy)]
enum Wanted {
    /// A batch cannot be written without it.
    Now,
    /// It is for a batch to come. This one must not wait for whoever is in the way: a backup that hangs, an
    /// operator, somebody who drops a partition.
    Later,
}

impl Wanted {
    /// How long others' locks on the parent are waited for, in the server's words.
    fn lock_wait(self) -> &'static str {
        match self {
            Self::Now => "1s",
            Self::Later => "10ms",
        }
    }
}

/// What is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Outbox,
    Events,
}

impl Parent {
    fn table(self) -> &'static str {
        match self {
            Self::Outbox => "events_outbox",
            Self::Events => "events_standard",
        }
    }

    fn ranges(self) -> &'static str {
        match self {
            Self::Outbox => OUTBOX,
            Self::Events => EVENTS,
        }
    }
}

const HEAD: &str =
    "SELECT GREATEST(floor_seq, (SELECT seq FROM events_outbox ORDER BY seq DESC LIMIT 1))
    FROM feed_meta";

const OUTBOX: &str = r"SELECT
        (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([0-9]+)''\)'))[1]::BIGINT,
        (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([0-9]+)''\)'))[1]::BIGINT
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'events_outbox'::REGCLASS AND NOT i.inhdetachpending";

/// By their counters: to be told the bounds of a table, one waits for who has locked it.
const EVENTS: &str = "SELECT p.first_seq, p.end_seq
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN event_partitions p ON 'events_standard_' || p.first_seq = c.relname
    WHERE i.inhparent = 'events_standard'::REGCLASS AND NOT i.inhdetachpending";

/// The partitions a connection knows of.
#[derive(Debug)]
pub(crate) struct Partitions {
    outbox: Ranges,
    events: Ranges,
    /// As far as the feed is known to have come.
    head: i64,
    rows_min: i64,
    ahead_pause: u32,
}

impl Partitions {
    pub async fn load(connection: &mut PgConnection, rows_min: u32) -> Result<Self, Fault> {
        let rows_min = i64::from(rows_min.max(1));
        let mut partitions = Self {
            outbox: Ranges::default(),
            events: Ranges::default(),
            head: 0,
            rows_min,
            ahead_pause: 0,
        };
        partitions.reload(connection).await?;
        Ok(partitions)
    }

    async fn reload(&mut self, connection: &mut PgConnection) -> Result<(), Fault> {
        let head = sqlx::query(HEAD).fetch_one(&mut *connection).await?;
        self.head = self.head.max(head.try_get(0)?);
        self.outbox = Ranges::load(connection, Parent::Outbox).await?;
        self.events = Ranges::load(connection, Parent::Events).await?;
        Ok(())
    }

    /// Whether what is numbered after the known head, and up to this one, has a place.
    pub fn hold(&self, head: Seq) -> bool {
        self.missing(head.0).is_none()
    }

    /// The first number of the partition that holds an event, if it is known.
    pub fn of_event(&self, seq: Seq) -> Option<i64> {
        self.events.of(seq.0)
    }

    /// Makes what a batch needs when the feed stands at `head`, and what will be needed next.
    pub async fn prepare(&mut self, connection: &mut PgConnection, head: Seq) -> Result<(), Fault> {
        self.head = self.head.max(head.0);
        self.extend(connection, Seq(self.head.saturating_add(1))).await?;
        if self.ahead_pause > 0 {
            self.ahead_pause -= 1;
            return Ok(());
        }
        if self.missing_ahead().is_some()
            && self.make(connection, Wanted::Later, Self::missing_ahead).await.is_err()
        {
            raw_sql("ROLLBACK").execute(connection).await?;
            self.ahead_pause = AHEAD_PAUSE_BATCHES;
        }
        Ok(())
    }

    /// Makes room for all that is numbered after the known head, and up to this one.
    pub async fn extend(&mut self, connection: &mut PgConnection, head: Seq) -> Result<(), Fault> {
        self.make(connection, Wanted::Now, |known| known.missing(head.0)).await
    }

    /// The first partition that is not there and has to be, for what is numbered up to `until` to have a place.
    fn missing(&self, until: i64) -> Option<Partition> {
        self.gaps().find(|gap| gap.range.first <= until)
    }

    /// The first partition that is not there and will be needed next.
    fn missing_ahead(&self) -> Option<Partition> {
        let next = |parent| self.head.saturating_add(1 + AHEAD * self.rows(parent));
        self.gaps().find(|gap| gap.range.first <= next(gap.parent))
    }

    /// What has no partition first after the known head, in each table.
    fn gaps(&self) -> impl Iterator<Item = Partition> {
        [Parent::Outbox, Parent::Events].into_iter().map(|parent| {
            let range = self.ranges(parent).gap(self.head, self.rows(parent));
            Partition { parent, range }
        })
    }

    fn ranges(&self, parent: Parent) -> &Ranges {
        match parent {
            Parent::Outbox => &self.outbox,
            Parent::Events => &self.events,
        }
    }

    /// How many numbers the next partition of a table takes.
    fn rows(&self, parent: Parent) -> i64 {
        let first = self.ranges(parent).0.keys().next().copied().unwrap_or(self.head);
        self.rows_min.max((self.head - first) / SHARE)
    }

    /// Another process may be making the same: under the lock it is looked for again.
    async fn make(
        &mut self,
        connection: &mut PgConnection,
        wanted: Wanted,
        missing: impl Fn(&Self) -> Option<Partition>,
    ) -> Result<(), Fault> {
        while missing(self).is_some() {
            raw_sql("BEGIN ISOLATION LEVEL READ COMMITTED").execute(&mut *connection).await?;
            match wanted {
                Wanted::Now => lock(connection).await?,
                Wanted::Later => try_lock(connection).await?,
            }
            self.reload(connection).await?;
            if let Some(partition) = missing(self) {
                raw_sql(AssertSqlSafe(partition.sql(wanted))).execute(&mut *connection).await?;
                self.reload(connection).await?;
            }
            raw_sql("COMMIT").execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// Numbers from `first` on to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: i64,
    end: i64,
}

/// The ranges that have a partition: where each ends, by its first number.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    async fn load(connection: &mut PgConnection, parent: Parent) -> Result<Self, Fault> {
        let rows = sqlx::query(parent.ranges()).fetch_all(connection).await?;
        let range = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        Ok(Self(rows.iter().map(range).collect::<Result<_, Fault>>()?))
    }

    fn of(&self, seq: i64) -> Option<i64> {
        let (first, end) = self.0.range(..=seq).next_back()?;
        (seq < *end).then_some(*first)
    }

    /// The first numbers after this one that have no partition, `rows` at most. (There can be some before
    /// others that have one: somebody may have dropped a table.)
    fn gap(&self, after: i64, rows: i64) -> Range {
        let mut first = after.saturating_add(1);
        for (next, end) in &self.0 {
            if *next > first {
                return Range { first, end: first.saturating_add(rows).min(*next) };
            }
            first = first.max(*end);
        }
        Range { first, end: first.saturating_add(rows) }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Partition {
    parent: Parent,
    range: Range,
}

impl Partition {
    /// The check proves to ATTACH that the rows fit; the bounds say the same afterwards.
    fn sql(&self, wanted: Wanted) -> String {
        let lock_wait = wanted.lock_wait();
        let (parent, Range { first, end }) = (self.parent.table(), self.range);
        let counter = match self.parent {
            Parent::Outbox => String::new(),
            // A partition that somebody dropped by hand has left its counter.
            Parent::Events => format!(
                "; DELETE FROM event_partitions WHERE first_seq < {end} AND end_seq > {first}
                    AND to_regclass('events_standard_' || first_seq) IS NULL;
                 INSERT INTO event_partitions (first_seq, end_seq, events, stray_tags)
                 VALUES ({first}, {end}, 0, 0)"
            ),
        };
        format!(
            "SET LOCAL lock_timeout = '{lock_wait}';
             CREATE TABLE {parent}_{first} (LIKE {parent} INCLUDING ALL);
             ALTER TABLE {parent}_{first}
                ADD CONSTRAINT fits CHECK (seq IS NOT NULL AND seq >= {first} AND seq < {end});
             ALTER TABLE {parent} ATTACH PARTITION {parent}_{first}
                FOR VALUES FROM ('{first}') TO ('{end}');
             ALTER TABLE {parent}_{first} DROP CONSTRAINT fits{counter}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(i64, i64)]) -> Ranges {
        Ranges(ranges.iter().copied().collect())
    }

    #[test]
    fn the_first_gap_after_a_number_is_found() {
        let known = ranges(&[(1, 9), (9, 17), (25, 33)]);
        for (after, first, end) in
            [(0, 17, 25), (8, 17, 25), (16, 17, 25), (19, 20, 25), (24, 33, 43), (99, 100, 110)]
        {
            assert_eq!(known.gap(after, 10), Range { first, end }, "after {after}");
        }
        assert_eq!(ranges(&[]).gap(0, 10), Range { first: 1, end: 11 });
        assert_eq!(known.gap(16, 3), Range { first: 17, end: 20 });
    }

    #[test]
    fn a_number_is_in_the_range_that_holds_it() {
        let known = ranges(&[(1, 9), (9, 17), (25, 33)]);
        for (seq, first) in [
            (0, None),
            (1, Some(1)),
            (8, Some(1)),
            (9, Some(9)),
            (17, None),
            (25, Some(25)),
            (33, None),
        ] {
            assert_eq!(known.of(seq), first, "{seq}");
        }
    }
}
