//! Backups of the schema `cn_relay`: every table, as of one moment, in the server's own binary format.
//! Which tables there are is read from the server's catalogue, so that what later versions add is in
//! them, too.

mod counter;
mod load;
mod table;
mod values;

use std::path::Path;
use std::sync::Arc;

use futures_util::TryStreamExt;
use kukuri_core::{Epoch, FeedBounds, Seq, UnixMillis};
use kukuri_store::StoreError;
use kukuri_store::backup::{
    BackEnd, Backup, BackupError, Draft, FeedSpan, Manifest, Monitor, Table,
};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row, raw_sql};

use crate::error::Fault;
use crate::session::{Role, Server};
use crate::{Fsync, migrate};
use counter::RowCounter;
use table::Found;

/// What every migration writes by itself.
const VERSIONS: &str = "schema_version";

/// Nobody can make a partition until the tables are locked, so that must not take long, whatever becomes of
/// this program meanwhile.
const HURRIED: &str = "SET application_name = 'kukuri backup'; SET lock_timeout = '2s'; SET idle_session_timeout = '10s';
    SET idle_in_transaction_session_timeout = '10s'";

/// Tables of any size are copied. The server still notices a program that hangs between two of them.
const UNHURRIED: &str = "SET statement_timeout = 0; SET idle_session_timeout = 0;
    SET idle_in_transaction_session_timeout = '10min'";

/// How often to begin again because somebody dropped a partition at the wrong moment. None is made then.
const ATTEMPTS_MAX: u32 = 5;

impl From<Fault> for BackupError {
    fn from(fault: Fault) -> Self {
        StoreError::from(fault).into()
    }
}

/// Copies the store of a database into the directory `to`, which must be empty or not there.
pub async fn back_up(
    url: &str,
    to: &Path,
    made_at: UnixMillis,
    monitor: &Monitor,
) -> Result<Manifest, BackupError> {
    tokio::select! {
        manifest = copy_out(url, to, made_at, monitor) => manifest,
        () = monitor.ended() => Err(BackupError::Interrupted),
    }
}

async fn copy_out(
    url: &str,
    to: &Path,
    made_at: UnixMillis,
    monitor: &Monitor,
) -> Result<Manifest, BackupError> {
    let mut connection = Server::parse(url)?.connect(Role::Setup).await?;
    let mut draft = Draft::begin(to)?;
    migrate::hold_still(&mut connection).await?;
    run(&mut connection, HURRIED).await?;
    let found = begin(&mut connection).await?;
    migrate::release(&mut connection).await?;
    run(&mut connection, UNHURRIED).await?;
    let schema_version = version(&mut connection).await?;
    let feed = FeedSpan::from(bounds(&mut connection).await?);
    monitor.expect(found.iter().map(|found| found.bytes).sum());
    let mut tables = Vec::new();
    for found in found {
        tables.push(copy_table(&mut connection, &mut draft, found, monitor).await?);
    }
    run(&mut connection, "COMMIT").await?;
    draft.finish(Manifest {
        back_end: BackEnd::Postgres,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: made_at.0,
        schema_version,
        feed,
        tables,
        parts: Vec::new(),
    })
}

/// Begins a transaction that sees one moment, in which none of the tables can be dropped or rewritten.
async fn begin(connection: &mut PgConnection) -> Result<Vec<Found>, Fault> {
    for _ in 0..ATTEMPTS_MAX {
        let wanted = table::list(connection).await?;
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        // Locks come first: the moment is that of the first question after them.
        let names: Vec<String> = wanted.iter().map(|found| found.quoted()).collect();
        let lock = format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", "));
        let locked = raw_sql(AssertSqlSafe(lock)).execute(&mut *connection).await;
        // One was dropped, or somebody is about to drop one.
        let gone = |error: &sqlx::Error| {
            let code = error.as_database_error().and_then(|error| error.code());
            matches!(code.as_deref(), Some("42P01" | "55P03"))
        };
        match locked {
            Ok(_) => {
                let found = table::list(connection).await?;
                if table::same(&found, &wanted) {
                    return Ok(found);
                }
            }
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
        run(connection, "ROLLBACK").await?;
    }
    Err(Fault::unavailable("tables come and go: run the backup again"))
}

async fn copy_table(
    connection: &mut PgConnection,
    draft: &mut Draft,
    found: Found,
    monitor: &Monitor,
) -> Result<Table, BackupError> {
    let file = format!("{}.copy", found.name);
    let mut part = draft.part(&file)?;
    let sql = format!("COPY {} ({}) TO STDOUT (FORMAT binary)", found.quoted(), found.columns());
    let mut rows = RowCounter::default();
    // The server says how large a table is, and not how much of it there is to send.
    let mut left_bytes = found.bytes;
    {
        let mut chunks = connection.copy_out_raw(&sql).await.map_err(Fault::from)?;
        while let Some(chunk) = chunks.try_next().await.map_err(Fault::from)? {
            part.write(&chunk)?;
            rows.take(&chunk);
            let counted = left_bytes.min(chunk.len() as u64);
            left_bytes -= counted;
            monitor.advance(counted)?;
        }
    }
    monitor.advance(left_bytes)?;
    let Some(rows) = rows.end() else {
        let short =
            format!("the copy of {} ended before its end: run the backup again", found.name);
        return Err(StoreError::Unavailable(short).into());
    };
    draft.take(part)?;
    Ok(found.into_table(rows, file))
}

/// Makes a store in a database that holds none, all in one transaction, and gives its feed a new life.
/// Returns the names of tables that belong to no schema of ours and were left out.
pub async fn restore(
    backup: Arc<Backup>,
    url: &str,
    fsync: Fsync,
    monitor: Arc<Monitor>,
) -> Result<Vec<String>, BackupError> {
    backup.require(BackEnd::Postgres, migrate::newest())?;
    load::check_parts(&backup)?;
    // Every part is read twice: nothing is begun with a part that is damaged.
    monitor.expect(2 * backup.manifest().bytes());
    let work = async {
        let server = Server::parse(url)?;
        let mut connection = server.connect(Role::Setup).await?;
        crate::check::check(&mut connection, fsync).await?;
        refuse_store(&mut connection).await?;
        // Reading takes long, and servers and proxies end connections that say nothing.
        connection.close().await.map_err(Fault::from)?;
        verify(&backup, &monitor).await?;
        let mut connection = server.connect(Role::Setup).await?;
        run(&mut connection, UNHURRIED).await?;
        run(&mut connection, "BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        migrate::lock(&mut connection).await?;
        refuse_store(&mut connection).await?;
        let left_out = load::load(&mut connection, &backup, &monitor).await?;
        run(&mut connection, "COMMIT").await?;
        Ok(left_out)
    };
    tokio::select! {
        restored = work => restored,
        () = monitor.ended() => Err(BackupError::Interrupted),
    }
}

/// Compares every part with its checksum, where waiting for the disk delays nobody. Whoever ends the
/// monitor ends it, too.
async fn verify(backup: &Arc<Backup>, monitor: &Arc<Monitor>) -> Result<(), BackupError> {
    let (backup, monitor) = (Arc::clone(backup), Arc::clone(monitor));
    let verified = tokio::task::spawn_blocking(move || backup.verify(&monitor)).await;
    verified.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The program is being ended.
        Err(_) => Err(BackupError::Interrupted),
    })
}

async fn refuse_store(connection: &mut PgConnection) -> Result<(), BackupError> {
    let sql = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'cn_relay')";
    let row = sqlx::query(sql).fetch_one(connection).await.map_err(Fault::from)?;
    if row.try_get(0).map_err(Fault::from)? {
        return Err(BackupError::Refused(
            "the database holds a store already: name an empty one with --database".to_owned(),
        ));
    }
    Ok(())
}

async fn version(connection: &mut PgConnection) -> Result<u32, Fault> {
    let row = sqlx::query("SELECT max(version) FROM schema_version").fetch_one(connection).await?;
    let version: Option<i32> = row.try_get(0)?;
    let (found, known) = (u32::try_from(version.unwrap_or(0)).unwrap_or(0), migrate::newest());
    if found == 0 || found > known {
        return Err(Fault::corrupt(format!(
            "the schema cn_relay has version {found}, this program knows versions up to {known}: run \
             the newer program"
        )));
    }
    Ok(found)
}

/// The bounds of the feed, in words that every version of the schema understands.
async fn bounds(connection: &mut PgConnection) -> Result<FeedBounds, Fault> {
    let sql = "SELECT epoch, floor_seq, (SELECT max(seq) FROM events_outbox) FROM feed_meta";
    let row = sqlx::query(sql).fetch_one(connection).await?;
    let floor = Seq(row.try_get(1)?);
    let head = row.try_get::<Option<i64>, _>(2)?.map_or(floor, Seq).max(floor);
    Ok(FeedBounds { epoch: Epoch(row.try_get(0)?), floor, head })
}

async fn run(connection: &mut PgConnection, sql: &'static str) -> Result<(), Fault> {
    raw_sql(sql).execute(connection).await?;
    Ok(())
}
