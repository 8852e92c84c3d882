//! Dropping partitions that hold nothing any more. Each step is one statement that can be repeated, and
//! the catalog says which one comes next: whoever is cut off between two is finished by the next.
//!
//! A partition goes in three steps: it is given up (a month loses its row in `event_months`; rows of the
//! feed lie below the floor), detached beside readers and writers, and dropped.
//!
//! Before that, a month that is past is left alone by the server's autovacuum: nothing is put there any
//! more, so that the space of what leaves is of use to nobody until the month is dropped, and who detaches
//! or drops it would wait a second (`deadlock_timeout`) until a vacuum that is at work there gives way.

use kukuri_core::UnixMillis;
use kukuri_store::{Extent, Tidied};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::calendar::Month;
use crate::error::Fault;

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
        AND (relname ~ '^events_(bc)?[0-9]{4,}_[0-9]{2}$'
            AND substr(relname, length('events_') + 1) NOT IN (SELECT month FROM event_months) OR relname ~ '^events_outbox_[0-9]+$')
    UNION ALL
    SELECT 'ALTER TABLE events_standard DETACH PARTITION ' || name || ' CONCURRENTLY'
    FROM attached WHERE parent = 'events_standard' AND NOT inhdetachpending
        AND substr(name, length('events_') + 1) NOT IN (SELECT month FROM event_months)
    UNION ALL
    SELECT 'ALTER TABLE events_outbox DETACH PARTITION ' || name || ' CONCURRENTLY'
    FROM feed WHERE ends < last AND ends <= (SELECT floor_seq + 1 FROM feed_meta)
    LIMIT 1";

/// Months are given up only when they are past, so that hardly anything is on its way into them. Whoever
/// puts an event there all the same changes the counter, and finds it gone or makes it count.
const GIVE_UP: &str = "DELETE FROM event_months WHERE events = 0 AND month = (
    SELECT month FROM event_months WHERE events = 0 AND month < $1 ORDER BY month LIMIT 1)";

/// A month that autovacuum should leave alone and does not, or the other way round: a clock that was ahead
/// makes a month past for a while.
const REST: &str = "SELECT 'ALTER TABLE ' || c.relname || CASE WHEN m.month < $1
        THEN ' SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)'
        ELSE ' RESET (autovacuum_enabled, toast.autovacuum_enabled)' END
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN event_months m ON 'events_' || m.month = c.relname
    WHERE i.inhparent = 'events_standard'::REGCLASS
        AND (m.month < $1) <> ('autovacuum_enabled=off' = ANY (COALESCE(c.reloptions, '{}')))
    ORDER BY m.month LIMIT 1";

/// One step. `latest` is when the last event was taken in.
pub(crate) async fn step(
    connection: &mut PgConnection,
    latest: UnixMillis,
) -> Result<Tidied, Fault> {
    let next = sqlx::query(NEXT).fetch_optional(&mut *connection).await?;
    let Some(next) = next else {
        return look_ahead(connection, latest).await;
    };
    run(connection, next.try_get(0)?).await
}

async fn run(connection: &mut PgConnection, statement: String) -> Result<Tidied, Fault> {
    match raw_sql(AssertSqlSafe(statement.clone())).execute(connection).await {
        Ok(_) => Ok(Tidied::More),
        Err(error) => blocked(&statement, error),
    }
}

/// Gives up a month that holds nothing, or else leaves one alone that is past.
async fn look_ahead(connection: &mut PgConnection, latest: UnixMillis) -> Result<Tidied, Fault> {
    if latest < UnixMillis(0) {
        // Nothing was taken in, or by a clock that says nothing about months.
        return Ok(Tidied::Done);
    }
    let now = Month::of(latest).to_string();
    let given_up = sqlx::query(GIVE_UP).bind(&now).execute(&mut *connection).await?;
    if given_up.rows_affected() > 0 {
        return Ok(Tidied::More);
    }
    let Some(next) = sqlx::query(REST).bind(&now).fetch_optional(&mut *connection).await? else {
        return Ok(Tidied::Done);
    };
    Ok(match run(connection, next.try_get(0)?).await? {
        // An operator vacuums there: no space waits for it, and the next time is soon enough.
        Tidied::Blocked(_) => Tidied::Done,
        tidied => tidied,
    })
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
