//! Where a consumer's SQL runs: one connection, SQLite or PostgreSQL, with the few things that both can
//! be asked in the same words.
//!
//! Statements are written once for both: parameters are `$1`, `$2` …, names are not qualified, whole numbers
//! are BIGINT and bytes are [`Dialect::blob`]. (sqlx's own `Any` can do as much, but has no lists, so that
//! PostgreSQL would be told every value by itself; and it does not let go of the connection inside.)

mod error;
mod given;
mod row;

use std::future::Future;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, query_with, raw_sql};
use tokio::time::timeout;

pub use error::DeskError;
pub use given::{Column, Given};
pub use row::{Row, Value};

/// No statement takes longer; the server ends one before that.
const STATEMENT_WAIT_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The type of columns of bytes.
    pub fn blob(self) -> &'static str {
        match self {
            Self::Sqlite => "BLOB",
            Self::Postgres => "BYTEA",
        }
    }

    /// The database's own clock, in milliseconds.
    pub(crate) fn now_ms(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }
}

/// A connection with a transaction open on it. Texts of statements are the program's own: what comes
/// from outside is bound.
pub struct Desk {
    connection: Connection,
}

pub(crate) enum Connection {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

/// The connection itself, for what only one of them can do.
pub enum Native<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

impl Desk {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    pub fn dialect(&self) -> Dialect {
        match self.connection {
            Connection::Sqlite(_) => Dialect::Sqlite,
            Connection::Postgres(_) => Dialect::Postgres,
        }
    }

    /// For statements in one dialect. BEGIN, COMMIT and ROLLBACK belong to the runtime.
    pub fn native(&mut self) -> Native<'_> {
        match &mut self.connection {
            Connection::Sqlite(connection) => Native::Sqlite(connection),
            Connection::Postgres(connection) => Native::Postgres(connection),
        }
    }

    /// Runs one statement and says how many rows it has changed.
    pub async fn execute(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, DeskError> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self.native() {
            Native::Sqlite(connection) => {
                let work = query_with(sql, row::sqlite_arguments(values)?).execute(connection);
                Ok(within(work).await?.rows_affected())
            }
            Native::Postgres(connection) => {
                let work = query_with(sql, row::postgres_arguments(values)?).execute(connection);
                Ok(within(work).await?.rows_affected())
            }
        }
    }

    /// The rows that one statement finds or returns.
    pub async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, DeskError> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self.native() {
            Native::Sqlite(connection) => {
                let work = query_with(sql, row::sqlite_arguments(values)?).fetch_all(connection);
                Ok(within(work).await?.into_iter().map(Row::Sqlite).collect())
            }
            Native::Postgres(connection) => {
                let work = query_with(sql, row::postgres_arguments(values)?).fetch_all(connection);
                Ok(within(work).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The first of those rows.
    pub async fn row(&mut self, sql: &str, values: Vec<Value>) -> Result<Option<Row>, DeskError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Runs several statements without values, parted by semicolons.
    pub async fn script(&mut self, sql: &str) -> Result<(), DeskError> {
        let sql = raw_sql(AssertSqlSafe(sql.to_owned()));
        match self.native() {
            Native::Sqlite(connection) => within(sql.execute(connection)).await.map(|_| ()),
            Native::Postgres(connection) => within(sql.execute(connection)).await.map(|_| ()),
        }
    }

    /// Runs one statement over many rows at once, which it knows as the table `given`, and says how many
    /// rows it has changed:
    ///
    /// ```sql
    /// INSERT INTO posts (id, text) SELECT id, text FROM given WHERE TRUE
    ///     ON CONFLICT (id) DO UPDATE SET text = excluded.text
    /// ```
    ///
    /// SQLite runs it for a few rows at a time, so a statement must not depend on seeing all of them. No
    /// key may be there twice: PostgreSQL would refuse it.
    pub async fn bulk(&mut self, sql: &str, given: Given) -> Result<u64, DeskError> {
        if given.is_empty() {
            return Ok(0);
        }
        match self.native() {
            Native::Sqlite(connection) => given::run_sqlite(connection, sql, given).await,
            Native::Postgres(connection) => given::run_postgres(connection, sql, given).await,
        }
    }
}

/// Waits for a database, but not for ever.
async fn within<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, DeskError> {
    match timeout(STATEMENT_WAIT_MAX, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(DeskError::Unavailable(format!("no answer within {STATEMENT_WAIT_MAX:?}"))),
    }
}

/// What cannot be encoded is too large for the database.
fn add<'q, A, T>(arguments: &mut A, value: T) -> Result<(), DeskError>
where
    A: Arguments,
    T: sqlx::Encode<'q, A::Database> + sqlx::Type<A::Database>,
{
    arguments.add(value).map_err(|error| DeskError::Refused(format!("a value: {error}")))
}

type ToSqlite = SqliteArguments;
type ToPostgres = PgArguments;
