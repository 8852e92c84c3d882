//! Partitions are made before they are needed, each in a short transaction of its own: an empty
//! table is made, bounded and attached, which holds up neither readers nor writers.

use std::collections::BTreeSet;

use kukuri_core::{Command, Seq};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::calendar::Month;
use crate::error::Fault;
use crate::migrate::{lock, try_lock};

/// How many are ready beyond the one in use.
const AHEAD: i64 = 2;

/// How many batches pass before partitions ahead are tried again after somebody's lock forbade them.
const AHEAD_PAUSE_BATCHES: u32 = 256;

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

const MONTHS: &str =
    "SELECT c.relname::TEXT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN event_months m ON 'events_' || m.month = c.relname
    WHERE i.inhparent = 'events_standard'::REGCLASS";

const OUTBOX_END: &str = "SELECT COALESCE(max(
        (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''([0-9]+)''\\)'))[1]::BIGINT), 1)
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'events_outbox'::REGCLASS";

/// The partitions a connection knows of.
#[derive(Debug)]
pub(crate) struct Partitions {
    months: BTreeSet<String>,
    /// The first seq that has no partition.
    outbox_end: i64,
    outbox_rows: i64,
    ahead_pause: u32,
}

impl Partitions {
    pub async fn load(connection: &mut PgConnection, outbox_rows: u32) -> Result<Self, Fault> {
        let mut partitions = Self {
            months: BTreeSet::new(),
            outbox_end: 1,
            outbox_rows: i64::from(outbox_rows.max(1)),
            ahead_pause: 0,
        };
        partitions.reload(connection).await?;
        Ok(partitions)
    }

    async fn reload(&mut self, connection: &mut PgConnection) -> Result<(), Fault> {
        let names = sqlx::query(MONTHS).fetch_all(&mut *connection).await?;
        self.months = names.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let end = sqlx::query(OUTBOX_END).fetch_one(connection).await?;
        self.outbox_end = end.try_get(0)?;
        Ok(())
    }

    /// Whether feed rows up to `head` have a place.
    pub fn hold(&self, head: Seq) -> bool {
        head.0 < self.outbox_end
    }

    /// Makes what a batch needs when the feed stands at `head`, and what will be needed next.
    pub async fn prepare(
        &mut self,
        connection: &mut PgConnection,
        batch: &[Command],
        head: Seq,
    ) -> Result<(), Fault> {
        let months: BTreeSet<Month> = batch.iter().map(|command| Month::of(command.at)).collect();
        self.provide(connection, &months, head).await
    }

    /// Makes room for feed rows up to `head`.
    pub async fn extend(&mut self, connection: &mut PgConnection, head: Seq) -> Result<(), Fault> {
        self.provide(connection, &BTreeSet::new(), head).await
    }

    async fn provide(
        &mut self,
        connection: &mut PgConnection,
        months: &BTreeSet<Month>,
        head: Seq,
    ) -> Result<(), Fault> {
        self.make(connection, Wanted::Now, |known| known.missing(months, 0, head)).await?;
        if self.ahead_pause > 0 {
            self.ahead_pause -= 1;
            return Ok(());
        }
        let ahead = |known: &Self| known.missing(months, AHEAD, head);
        if ahead(self).is_some() && self.make(connection, Wanted::Later, ahead).await.is_err() {
            raw_sql("ROLLBACK").execute(connection).await?;
            self.ahead_pause = AHEAD_PAUSE_BATCHES;
        }
        Ok(())
    }

    /// The first partition that is wanted and not there.
    fn missing(&self, months: &BTreeSet<Month>, ahead: i64, head: Seq) -> Option<Partition> {
        let wanted = months.iter().flat_map(|month| (0..=ahead).map(|n| month.plus(n)));
        let mut partitions = wanted.filter_map(Partition::of_month);
        let month = partitions.find(|partition| !self.months.contains(&partition.name));
        let end = head.0.saturating_add(1 + ahead * self.outbox_rows);
        let rows =
            (self.outbox_end <= end).then(|| Partition::of_rows(self.outbox_end, self.outbox_rows));
        month.or(rows)
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

struct Partition {
    parent: &'static str,
    name: String,
    column: &'static str,
    /// `None` where the range has no bound.
    start: Option<i64>,
    end: Option<i64>,
    /// What is counted in `event_months`.
    month: Option<Month>,
}

impl Partition {
    /// `None` for a month in which no time lies that a column can hold.
    fn of_month(month: Month) -> Option<Self> {
        let (start, end) = (month.start(), month.plus(1).start());
        start.or(end)?;
        Some(Self {
            parent: "events_standard",
            name: format!("events_{month}"),
            column: "ingested_at",
            start,
            end,
            month: Some(month),
        })
    }

    fn of_rows(start: i64, rows: i64) -> Self {
        Self {
            parent: "events_outbox",
            name: format!("events_outbox_{start}"),
            column: "seq",
            start: Some(start),
            end: Some(start.saturating_add(rows)),
            month: None,
        }
    }

    /// The check proves to ATTACH that the rows fit; the bounds say the same afterwards.
    fn sql(&self, wanted: Wanted) -> String {
        let lock_wait = wanted.lock_wait();
        let Self { parent, name, column, .. } = self;
        let from = self.start.map_or("MINVALUE".into(), |start| format!("'{start}'"));
        let to = self.end.map_or("MAXVALUE".into(), |end| format!("'{end}'"));
        let lower = self.start.map_or(String::new(), |start| format!(" AND {column} >= {start}"));
        let upper = self.end.map_or(String::new(), |end| format!(" AND {column} < {end}"));
        let counter = self.month.map_or(String::new(), |month| {
            // A partition that somebody dropped by hand has left its counter.
            format!(
                "; DELETE FROM event_months WHERE month = '{month}';
                 INSERT INTO event_months (month, events) VALUES ('{month}', 0)"
            )
        });
        format!(
            "SET LOCAL lock_timeout = '{lock_wait}';
             CREATE TABLE {name} (LIKE {parent} INCLUDING ALL);
             ALTER TABLE {name} ADD CONSTRAINT fits CHECK ({column} IS NOT NULL{lower}{upper});
             ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to});
             ALTER TABLE {name} DROP CONSTRAINT fits{counter}"
        )
    }
}
