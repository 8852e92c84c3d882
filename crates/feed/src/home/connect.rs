//! Connections and their settings.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use kukuri_store::backup::new_file;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::time::timeout;

use super::{Place, Sync};
use crate::desk::Connection;
use crate::{ConsumerName, Desk, DeskError};

/// Connecting includes waiting for a server that starts.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a writer waits for another process to finish its batch.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Pages of the write-ahead log before they are moved into the file: 32 MiB.
const CHECKPOINT_PAGES: &str = "8192";
/// The log is cut to this size after a checkpoint.
const JOURNAL_BYTES_MAX: &str = "67108864";
const WRITER_CACHE_KIB: u32 = 64 * 1024;
const READER_CACHE_KIB: u32 = 16 * 1024;
/// How much of the file is mapped.
const MAP_BYTES: &str = "2147483648";
/// A handful of statements, each for a few numbers of rows and for two generations.
const STATEMENTS_MAX: usize = 256;

/// A writer that hangs holds up who takes over: the server ends it within the lease. Effects are what the
/// event store tells, and can be made again; but an offset that is lost after somebody has read the effects
/// would be a step back, so commits are synced as the server is set up to.
const POSTGRES_WRITER: &str = "SET lock_timeout = '5s'; SET statement_timeout = '100s';
    SET idle_in_transaction_session_timeout = '10s'; SET client_min_messages = warning; SET jit = off";

const POSTGRES_READER: &str = "SET statement_timeout = '10s'; SET jit = off;
    SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_read_only = on";

pub(super) async fn writer(place: &Place, name: ConsumerName) -> Result<Desk, DeskError> {
    connect(place, name, Role::Writer).await
}

pub(super) async fn reader(place: &Place, name: ConsumerName) -> Result<Desk, DeskError> {
    connect(place, name, Role::Reader).await
}

/// The file of a consumer that has one.
pub(super) fn file(place: &Place, name: ConsumerName) -> Option<PathBuf> {
    match place {
        Place::Directory { directory, .. } => Some(file_in(directory, name)),
        Place::Database { .. } => None,
    }
}

fn file_in(directory: &Path, name: ConsumerName) -> PathBuf {
    directory.join(format!("{name}.db"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    Reader,
}

async fn connect(place: &Place, name: ConsumerName, role: Role) -> Result<Desk, DeskError> {
    let connecting = async {
        match place {
            Place::Directory { directory, sync } => {
                let file = file_in(directory, name);
                if role == Role::Writer {
                    // It is for the node to read, and for nobody else on the machine. What is wrong with
                    // the place, the library says right after this.
                    let _ = new_file(&file);
                }
                Ok(Desk::new(Connection::Sqlite(Box::new(
                    sqlite(*sync, role).filename(file).connect().await?,
                ))))
            }
            Place::Database { url } => postgres(url, name, role).await,
        }
    };
    let late = |_| DeskError::Unavailable(format!("no connection within {CONNECT_WAIT_MAX:?}"));
    timeout(CONNECT_WAIT_MAX, connecting).await.map_err(late)?
}

fn sqlite(sync: Sync, role: Role) -> SqliteConnectOptions {
    let cache_kib = if role == Role::Writer { WRITER_CACHE_KIB } else { READER_CACHE_KIB };
    let options = SqliteConnectOptions::new()
        .create_if_missing(role == Role::Writer)
        .busy_timeout(BUSY_WAIT)
        .journal_mode(SqliteJournalMode::Wal)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .synchronous(match sync {
            Sync::Full => SqliteSynchronous::Full,
            Sync::OffForTests => SqliteSynchronous::Off,
        })
        .statement_cache_capacity(STATEMENTS_MAX)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", JOURNAL_BYTES_MAX)
        .pragma("cache_size", format!("-{cache_kib}"))
        .pragma("mmap_size", MAP_BYTES)
        .disable_statement_logging();
    match role {
        Role::Writer => options,
        Role::Reader => options.pragma("query_only", "ON"),
    }
}

async fn postgres(url: &str, name: ConsumerName, role: Role) -> Result<Desk, DeskError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| DeskError::Unavailable(format!("not a database address: {error}")))?;
    let options = options
        .application_name(&format!("kukuri {name}"))
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging();
    let connection = Connection::Postgres(Box::new(options.connect().await?));
    let mut desk = Desk::new(connection);
    desk.script(&format!("SET search_path = cn_{name}")).await?;
    match role {
        Role::Writer => {
            desk.script(POSTGRES_WRITER).await?;
            make_schema(&mut desk, name).await?;
        }
        Role::Reader => desk.script(POSTGRES_READER).await?,
    }
    Ok(desk)
}

/// Several programs may start at once. Two that make the same schema at the same moment would stumble over
/// each other, and who may not make one need not, if it is there.
async fn make_schema(desk: &mut Desk, name: ConsumerName) -> Result<(), DeskError> {
    let schema = format!("cn_{name}");
    let found =
        desk.row("SELECT to_regnamespace($1) IS NULL", vec![schema.as_str().into()]).await?;
    if found.is_some_and(|row| row.flag(0) == Ok(true)) {
        desk.script(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock(hashtext('{schema}'));
             CREATE SCHEMA IF NOT EXISTS {schema}; COMMIT"
        ))
        .await?;
    }
    Ok(())
}
