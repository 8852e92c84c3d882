//! Dropping partitions that hold nothing any more. Each step is one statement that can be repeated, and
//! the catalog says which one comes next: whoever is cut off between two is finished by the next.
//!
//! A partition goes in three steps: it is given up (one of events loses its row in `event_partitions`; rows of
//! the feed lie below the floor), detached beside readers and writers, and dropped.
//!
//! Before that, a partition of events that lies behind the head is left alone by the server's autovacuum: nothing
//! is put there any more, so that the space of what leaves is of use to nobody until it is dropped, and who
//! detaches or drops it would wait a second (`deadlock_timeout`) until a vacuum that is at work there gives way.

mod stray;

use std::time::{Duration, Instant};

use kukuri_store::{Extent, Space, Tidied};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::error::Fault;

/// How long tags are swept while somebody is in the way of what comes first.
const BESIDE_BLOCKED_MAX: Duration = Duration::from_secs(1);

/// The next statement, for what others have begun or the floor has left behind: finish detaching, drop
/// what is detached, detach what was given up. The last partition of the feed stays, because the next
/// one begins where it ends.
const NEXT: &str = r"WITH attached AS (
        SELECT c.oid, c.relname::TEXT AS name, p.relname::TEXT AS parent, i.inhdetachpending,
            (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([0-9]+)''\)'))[1]::BIGINT
                AS ends
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            JOIN pg_class p ON p.oid = i.inhparent
        WHERE i.inhparent IN ('events_standard'::REGCLASS, 'events_outbox'::REGCLASS)
    ), feed AS (
        SELECT name, ends, max(ends) OVER () AS last FROM attached
        WHERE parent = 'events_outbox' AND NOT inhdetachpending
    )
    SELECT 'ALTER TABLE ' || parent || ' DETACH PARTITION ' || name || ' FINALIZE'
    FROM attached WHERE inhdetachpending
    UNION ALL
    SELECT 'DROP TABLE ' || relname FROM pg_class
    WHERE relnamespace = 'cn_relay'::REGNAMESPACE AND relkind = 'r' AND NOT relispartition
        AND (relname ~ '^events_standard_[0-9]+$'
            AND relname NOT IN (SELECT 'events_standard_' || first_seq FROM event_partitions)
            OR relname ~ '^events_outbox_[0-9]+$')
    UNION ALL
    SELECT 'ALTER TABLE events_standard DETACH PARTITION ' || name || ' CONCURRENTLY'
    FROM attached WHERE parent = 'events_standard' AND NOT inhdetachpending
        AND name NOT IN (SELECT 'events_standard_' || first_seq FROM event_partitions)
    UNION ALL
    SELECT 'ALTER TABLE events_outbox DETACH PARTITION ' || name || ' CONCURRENTLY'
    FROM feed WHERE ends < last AND ends <= (SELECT floor_seq + 1 FROM feed_meta)
    LIMIT 1";

/// The end of what lies behind the head: no event is put there any more, whoever writes.
macro_rules! behind {
    () => {
        "(SELECT GREATEST(floor_seq, (SELECT seq FROM events_outbox ORDER BY seq DESC LIMIT 1)) + 1
            FROM feed_meta)"
    };
}

/// Tags that its events have left behind are looked for afterwards: nobody has to wait for the space of either.
const GIVE_UP: &str = concat!(
    "WITH given_up AS (
        DELETE FROM event_partitions WHERE events = 0 AND first_seq = (
            SELECT first_seq FROM event_partitions WHERE events = 0 AND end_seq <= ",
    behind!(),
    " ORDER BY first_seq LIMIT 1)
        RETURNING first_seq, end_seq, stray_tags
    ), asked AS (",
    stray::ask!("given_up WHERE stray_tags > 0"),
    ") SELECT FROM given_up"
);

/// A partition that autovacuum should leave alone and does not.
const REST: &str = concat!(
    "SELECT 'ALTER TABLE ' || c.relname
        || ' SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)'
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN event_partitions p ON 'events_standard_' || p.first_seq = c.relname
    WHERE i.inhparent = 'events_standard'::REGCLASS AND p.end_seq <= ",
    behind!(),
    " AND 'autovacuum_enabled=off' <> ALL (COALESCE(c.reloptions, '{}'))
    ORDER BY p.first_seq LIMIT 1"
);

/// One step: what is soon done and spares others a wait comes first, and what takes long comes last.
pub(crate) async fn step(connection: &mut PgConnection) -> Result<Tidied, Fault> {
    if sqlx::query(GIVE_UP).fetch_optional(&mut *connection).await?.is_some() {
        return Ok(Tidied::More);
    }
    // If an operator vacuums there, no space waits for it, and the next time is soon enough.
    let rested = next(connection, REST).await?;
    if rested == Tidied::More {
        return Ok(rested);
    }
    let dropped = next(connection, NEXT).await?;
    if dropped == Tidied::More {
        return Ok(dropped);
    }
    // Whoever is in the way was waited for, and is not to be waited for again with every step.
    let is_free = rested == Tidied::Done && dropped == Tidied::Done;
    let time = if is_free { Duration::ZERO } else { BESIDE_BLOCKED_MAX };
    let swept = sweep_for(connection, time).await?;
    Ok(if dropped == Tidied::Done { swept } else { dropped })
}

/// Runs the statement that a question answers with, if there is one.
async fn next(connection: &mut PgConnection, question: &'static str) -> Result<Tidied, Fault> {
    match sqlx::query(question).fetch_optional(&mut *connection).await? {
        Some(statement) => run(connection, statement.try_get(0)?).await,
        None => Ok(Tidied::Done),
    }
}

/// At least one step.
async fn sweep_for(connection: &mut PgConnection, time: Duration) -> Result<Tidied, Fault> {
    let start = Instant::now();
    loop {
        let swept = sweep(connection).await?;
        if swept != Tidied::More || start.elapsed() >= time {
            return Ok(swept);
        }
    }
}

async fn sweep(connection: &mut PgConnection) -> Result<Tidied, Fault> {
    match stray::step(connection).await {
        Ok(true) => Ok(Tidied::More),
        Ok(false) => Ok(Tidied::Done),
        Err(error) => blocked("sweeping tags", error),
    }
}

async fn run(connection: &mut PgConnection, statement: String) -> Result<Tidied, Fault> {
    match raw_sql(AssertSqlSafe(statement.clone())).execute(connection).await {
        Ok(_) => Ok(Tidied::More),
        Err(error) => blocked(&statement, error),
    }
}

/// Somebody who reads is in the way, or somebody else tidies up; what was begun is finished later.
fn blocked(statement: &str, error: sqlx::Error) -> Result<Tidied, Fault> {
    match &error {
        sqlx::Error::Database(server)
            if matches!(server.code().as_deref(), Some("55P03" | "42P01" | "55000" | "57014")) =>
        {
            Ok(Tidied::Blocked(format!("{statement}: {server}")))
        }
        _ => Err(error.into()),
    }
}

/// Partitions of events that the head has passed, and those that are on their way out: all other tables keep their
/// space for what comes next.
const SPACE: &str = concat!(
    "WITH parts AS (
        SELECT events = 0 AS is_vacant,
            pg_total_relation_size(to_regclass('events_standard_' || first_seq)) AS bytes
        FROM event_partitions WHERE end_seq <= ",
    behind!(),
    " UNION ALL
        SELECT TRUE, pg_total_relation_size(oid) FROM pg_class
        WHERE relnamespace = 'cn_relay'::REGNAMESPACE AND relkind = 'r'
            AND relname ~ '^events_standard_[0-9]+$'
            AND relname NOT IN (SELECT 'events_standard_' || first_seq FROM event_partitions)
    ) SELECT COALESCE(sum(bytes) FILTER (WHERE is_vacant), 0)::BIGINT,
        COALESCE(sum(bytes) FILTER (WHERE NOT is_vacant), 0)::BIGINT FROM parts"
);

pub(crate) async fn space(connection: &mut PgConnection) -> Result<Space, Fault> {
    let space = sqlx::query(SPACE).fetch_one(connection).await?;
    let bytes = |column: usize| space.try_get(column).map(i64::cast_unsigned);
    Ok(Space { vacant_bytes: bytes(0)?, held_bytes: bytes(1)? })
}

/// Tables and partitions with their indexes. A partitioned table itself takes nothing.
const EXTENTS: &str = "SELECT relname::TEXT, pg_total_relation_size(oid) FROM pg_class
    WHERE relnamespace = 'cn_relay'::REGNAMESPACE AND relkind = 'r' ORDER BY relname";

pub(crate) async fn extents(connection: &mut PgConnection) -> Result<Vec<Extent>, Fault> {
    let tables = sqlx::query(EXTENTS).fetch_all(connection).await?;
    let extent = |row: &sqlx::postgres::PgRow| {
        let bytes: i64 = row.try_get(1)?;
        Ok(Extent { name: row.try_get(0)?, bytes: bytes.cast_unsigned() })
    };
    tables.iter().map(extent).collect()
}
