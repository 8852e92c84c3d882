//! Tags that events have left behind (see the table `tag_sweeps`), deleted many at once: the whole table is read,
//! some pages in each step, and what leads to no event goes. How far that is stands in the store, so that whoever
//! takes the next step goes on there.

use std::ops::Range;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row, raw_sql};

/// Pages that one step reads: 8 MiB, or some hundred thousand tags. Upkeep waits for a step to end.
const PAGES_PER_STEP: i64 = 1024;

/// Whose pages are counted, and how many there are. Who writes a table anew, or restores a store, gives its rows other
/// pages; a restored store has another epoch.
macro_rules! file {
    () => {
        "pg_relation_filenode('event_tags')::BIGINT # (SELECT epoch FROM feed_meta)"
    };
}
macro_rules! pages {
    () => {
        "pg_relation_size('event_tags') / current_setting('block_size')::BIGINT"
    };
}
pub(super) use {file, pages};

/// Asks for a look at what is in `asked`, which has `first_seq` and `end_seq`.
macro_rules! ask {
    ($asked:literal) => {
        concat!(
            "INSERT INTO tag_sweeps (first_seq, end_seq, revision, page, pages, file)
            SELECT first_seq, end_seq, (SELECT revision FROM lane), 0, ",
            $crate::tidy::stray::pages!(),
            ", ",
            $crate::tidy::stray::file!(),
            " FROM ",
            $asked
        )
    };
}
pub(super) use ask;

/// A partition of events that is in sight.
macro_rules! attached {
    () => {
        "EXISTS (
            SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'events_standard'::REGCLASS AND NOT i.inhdetachpending
                AND c.relname = 'events_standard_' || first_seq)"
    };
}

/// When all together have left behind so many tags, and a sixteenth of the events that they can hold, partitions are
/// looked through while they still hold others. A partition in which somebody writes at this moment is
/// looked through later: who waited here for one and held another would hold up those who publish. One that somebody
/// has detached by hand has its events out of sight, and keeps their tags.
const DUE: &str = concat!(
    "WITH enough AS (
        SELECT GREATEST(32768, sum(end_seq - first_seq) / 16) AS tags, sum(stray_tags) AS left_behind
        FROM event_partitions
    ), free AS (
        SELECT first_seq, stray_tags FROM event_partitions
        WHERE stray_tags > 0 AND (SELECT left_behind >= tags FROM enough) AND ",
    attached!(),
    " FOR UPDATE SKIP LOCKED
    ), due AS (
        UPDATE event_partitions p SET stray_tags = 0 FROM free
        WHERE p.first_seq = free.first_seq
            AND (SELECT sum(stray_tags) FROM free) >= (SELECT tags FROM enough)
        RETURNING p.first_seq, p.end_seq
    ) ",
    ask!("due")
);

/// Whether what is asked for can be looked for now: the partition was given up, or its events are in sight.
macro_rules! may {
    () => {
        concat!(
            "(first_seq NOT IN (SELECT p.first_seq FROM event_partitions p) OR ",
            attached!(),
            ")"
        )
    };
}

/// Those that are furthest, so that what is asked for later is looked for together. What somebody else looks for at
/// this moment is left to them.
const NEXT: &str = concat!(
    "SELECT first_seq, end_seq, revision, page FROM tag_sweeps WHERE ",
    may!(),
    " AND page = (SELECT max(page) FROM tag_sweeps WHERE ",
    may!(),
    ") FOR UPDATE SKIP LOCKED"
);

/// What was of other pages begins again.
const ADVANCE: &str = concat!(
    "UPDATE tag_sweeps t
    SET page = CASE WHEN t.file = k.file THEN t.page + $3 ELSE 0 END,
        pages = CASE WHEN t.file = k.file THEN t.pages ELSE k.pages END, file = k.file
    FROM (SELECT UNNEST($1::BIGINT[]) AS first_seq, UNNEST($2::BIGINT[]) AS revision, ",
    file!(),
    " AS file, ",
    pages!(),
    " AS pages) AS k WHERE t.first_seq = k.first_seq AND t.revision = k.revision"
);

const DONE: &str = "DELETE FROM tag_sweeps WHERE page >= pages";

/// One step. Says whether there was anything to do.
pub(super) async fn step(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query(DUE).execute(&mut *connection).await?;
    let mut transaction = connection.begin().await?;
    let next = sqlx::query(NEXT).fetch_all(&mut *transaction).await?;
    let (mut keys, mut ranges, mut page) = ((Vec::new(), Vec::new()), Vec::new(), 0);
    for row in next {
        let first_seq: i64 = row.try_get(0)?;
        keys.0.push(first_seq);
        keys.1.push(row.try_get::<i64, _>(2)?);
        ranges.push(first_seq..row.try_get(1)?);
        page = row.try_get(3)?;
    }
    if ranges.is_empty() {
        return Ok(false);
    }
    delete(&mut transaction, &ranges, page..page + PAGES_PER_STEP).await?;
    let advance = sqlx::query(ADVANCE).bind(keys.0).bind(keys.1).bind(PAGES_PER_STEP);
    advance.execute(&mut *transaction).await?;
    sqlx::query(DONE).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Events that came meanwhile have come with their tags. The numbers are those of few events as a rule, since what
/// came together lies together.
async fn delete(
    connection: &mut PgConnection,
    ranges: &[Range<i64>],
    pages: Range<i64>,
) -> Result<(), sqlx::Error> {
    let of_ranges: Vec<String> = ranges
        .iter()
        .map(|Range { start, end }| format!("t.seq >= {start} AND t.seq < {end}"))
        .collect();
    let among = format!(
        "FROM event_tags t WHERE t.ctid >= '({},0)' AND t.ctid < '({},0)' AND ({})",
        pages.start,
        pages.end,
        of_ranges.join(" OR ")
    );
    let bounds = AssertSqlSafe(format!("SELECT min(t.seq), max(t.seq) {among}"));
    let bounds: (Option<i64>, Option<i64>) =
        sqlx::query_as(bounds).persistent(false).fetch_one(&mut *connection).await?;
    let (Some(first), Some(last)) = bounds else { return Ok(()) };
    let delete = format!(
        "DELETE {among} AND t.seq BETWEEN {first} AND {last} AND NOT EXISTS (
            SELECT FROM events e WHERE e.seq = t.seq AND e.seq BETWEEN {first} AND {last})"
    );
    raw_sql(AssertSqlSafe(delete)).execute(connection).await?;
    Ok(())
}
