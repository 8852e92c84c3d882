//! The schema: an append-only list of numbered changes.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Row, raw_sql};
use tokio::time::{Instant, interval_at};

use crate::error::Fault;
use crate::session::within;

/// The n-th entry leads from version n to version n + 1. Entries are never changed once released.
const MIGRATIONS: [&str; 8] = [
    include_str!("../migrations/0001_event_store.sql"),
    include_str!("../migrations/0002_links_without_numbers.sql"),
    include_str!("../migrations/0003_lane_revision.sql"),
    include_str!("../migrations/0004_upkeep.sql"),
    include_str!("../migrations/0005_past.sql"),
    include_str!("../migrations/0006_consumer_offsets.sql"),
    include_str!("../migrations/0007_partitions_by_seq.sql"),
    include_str!("../migrations/0008_stray_tags.sql"),
];

/// "cn_relay" in ASCII, which is all there is to name: advisory locks belong to one database. It is held
/// by who changes the schema or makes a partition.
const LOCK_KEY: i64 = i64::from_be_bytes(*b"cn_relay");

/// Nobody commits a batch while the schema changes: who has looked before finds another revision.
const HOLD_LANE: &str =
    "LOCK TABLE lane IN EXCLUSIVE MODE; UPDATE lane SET revision = revision + 1";

/// One row per change that was applied.
const BOOTSTRAP: &str = "CREATE SCHEMA IF NOT EXISTS cn_relay;
    CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL PRIMARY KEY)";

/// The schema that this program brings a database to.
pub(crate) fn newest() -> u32 {
    MIGRATIONS.len() as u32
}

/// Changes read and write whole tables: of a large store they take as long as its disk needs.
const CHANGE_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// How often it is said that a change is still going on.
const TELL_INTERVAL: Duration = Duration::from_secs(15);

/// For as long as [`CHANGE_LIMIT`], in milliseconds. Whoever comes second waits for the first to be done.
const PATIENCE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL statement_timeout = 21600000; SET LOCAL lock_timeout = 21600000";

/// Nobody is kept from a table for long by who waits for it.
const LOCKS_BRIEFLY: &str = "SET LOCAL lock_timeout = '60s'";

/// Several programs may start at once: one changes the schema, the others find it changed.
pub(crate) async fn migrate(connection: &mut PgConnection) -> Result<(), Fault> {
    let start = Instant::now();
    let change = within(CHANGE_LIMIT, "changing the schema", change_all(connection));
    let mut change = std::pin::pin!(change);
    let mut tells = interval_at(start + TELL_INTERVAL, TELL_INTERVAL);
    loop {
        tokio::select! {
            changed = &mut change => return changed,
            _ = tells.tick() => tracing::warn!(
                seconds = start.elapsed().as_secs(),
                "the schema cn_relay is being changed, here or by another program; a large store takes a while"
            ),
        }
    }
}

async fn change_all(connection: &mut PgConnection) -> Result<(), Fault> {
    loop {
        raw_sql(PATIENCE).execute(&mut *connection).await?;
        lock(connection).await?;
        raw_sql(LOCKS_BRIEFLY).execute(&mut *connection).await?;
        let changed = change(connection).await?;
        raw_sql("COMMIT").execute(&mut *connection).await?;
        if !changed {
            return Ok(());
        }
    }
}

/// Applies the next change within the caller's transaction, under the lock. Says whether there was one.
pub(crate) async fn change(connection: &mut PgConnection) -> Result<bool, Fault> {
    let version = version(connection).await?;
    let Some(sql) = MIGRATIONS.get(version) else { return Ok(false) };
    if has_lane(connection).await? {
        raw_sql(HOLD_LANE).execute(&mut *connection).await?;
    }
    let next = version as i32 + 1;
    if version > 0 {
        tracing::info!(from = version, to = next, "changing the schema cn_relay");
    }
    raw_sql(*sql).execute(&mut *connection).await?;
    sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
        .bind(next)
        .execute(&mut *connection)
        .await?;
    begin_feed(connection).await?;
    Ok(true)
}

pub(crate) async fn lock(connection: &mut PgConnection) -> Result<(), Fault> {
    // Its own statement: the next one sees what the last holder of the lock committed.
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_KEY).execute(connection).await?;
    Ok(())
}

/// The same without waiting for who holds it.
pub(crate) async fn try_lock(connection: &mut PgConnection) -> Result<(), Fault> {
    let sql = "SELECT pg_try_advisory_xact_lock($1)";
    let row = sqlx::query(sql).bind(LOCK_KEY).fetch_one(connection).await?;
    match row.try_get(0)? {
        true => Ok(()),
        false => Err(Fault::unavailable("somebody changes the schema or copies it")),
    }
}

/// Nobody changes the schema or makes a partition until it is released, or the connection ends.
pub(crate) async fn hold_still(connection: &mut PgConnection) -> Result<(), Fault> {
    let lock = sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(LOCK_KEY);
    lock.execute(connection).await?;
    Ok(())
}

pub(crate) async fn release(connection: &mut PgConnection) -> Result<(), Fault> {
    let unlock = sqlx::query("SELECT pg_advisory_unlock_shared($1)").bind(LOCK_KEY);
    unlock.execute(connection).await?;
    Ok(())
}

async fn has_lane(connection: &mut PgConnection) -> Result<bool, Fault> {
    let sql = "SELECT to_regclass('cn_relay.lane') IS NOT NULL";
    Ok(sqlx::query(sql).fetch_one(connection).await?.try_get(0)?)
}

/// A program that runs while a newer one changes the schema writes nothing more: it does not know what
/// it would have to write.
pub(crate) fn check_newest(version: i64) -> Result<(), Fault> {
    if version == i64::from(newest()) {
        return Ok(());
    }
    Err(Fault::corrupt(format!(
        "another program has changed the schema cn_relay to version {version} while this one, which knows \
         version {}, was running: stop it and run the newer program",
        newest()
    )))
}

/// Whether the schema was ever made here.
pub(crate) async fn is_made(connection: &mut PgConnection) -> Result<bool, Fault> {
    let sql = "SELECT to_regclass('cn_relay.schema_version') IS NOT NULL";
    Ok(sqlx::query(sql).fetch_one(connection).await?.try_get(0)?)
}

/// How many changes have been applied, all of which this program must know.
async fn version(connection: &mut PgConnection) -> Result<usize, Fault> {
    raw_sql(BOOTSTRAP).execute(&mut *connection).await?;
    let row = sqlx::query("SELECT COALESCE(max(version), 0) FROM schema_version")
        .fetch_one(connection)
        .await?;
    let version: i32 = row.try_get(0)?;
    let known = MIGRATIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(Fault::corrupt(format!(
            "the schema cn_relay has version {version}, this program knows versions up to {known}: \
             run the newer program"
        ))),
    }
}

/// A new feed gets a life of its own.
async fn begin_feed(connection: &mut PgConnection) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO feed_meta (epoch, floor_seq, topics_version)
         SELECT $1, 0, 0 WHERE NOT EXISTS (SELECT FROM feed_meta)",
    )
    .bind(rand::random::<i64>())
    .execute(connection)
    .await?;
    Ok(())
}
