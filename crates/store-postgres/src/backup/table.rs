//! The tables of the schema, as the server's catalogue names them.

use kukuri_store::backup::{Partition, Table};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::VERSIONS;
use super::values::Values;
use crate::error::Fault;

/// Tables that hold rows themselves. One that is on its way out of its table counts as a table of its
/// own: what it held has been announced as gone.
const LIST: &str = "SELECT c.relname::TEXT, COALESCE(pg_table_size(c.oid), 0),
        ARRAY(SELECT a.attname::TEXT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
            ORDER BY a.attnum),
        CASE WHEN i.inhrelid IS NULL THEN NULL ELSE pg_get_expr(c.relpartbound, c.oid) END,
        ARRAY(WITH RECURSIVE above (oid, depth) AS (
                SELECT i.inhparent, 1 WHERE i.inhrelid IS NOT NULL
                UNION ALL
                SELECT up.inhparent, above.depth + 1
                FROM above JOIN pg_inherits up ON up.inhrelid = above.oid)
            SELECT p.relname::TEXT FROM above JOIN pg_class p ON p.oid = above.oid ORDER BY depth)
    FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid AND NOT i.inhdetachpending
    WHERE c.relnamespace = 'cn_relay'::REGNAMESPACE AND c.relkind = 'r'
    ORDER BY c.relname";

/// A table that is to be copied.
#[derive(Debug)]
pub(super) struct Found {
    pub name: String,
    pub bytes: u64,
    columns: Vec<String>,
    partition: Option<Partition>,
}

pub(super) async fn list(connection: &mut PgConnection) -> Result<Vec<Found>, Fault> {
    let rows = sqlx::query(LIST).fetch_all(connection).await?;
    let found: Vec<Found> = rows.iter().map(Found::read).collect::<Result<_, Fault>>()?;
    Ok(found.into_iter().filter(|found| found.name != VERSIONS).collect())
}

/// Whether two lists name the same tables, whatever their sizes.
pub(super) fn same(one: &[Found], other: &[Found]) -> bool {
    let of = |found: &Found| (found.name.clone(), found.columns.clone(), found.partition.clone());
    one.iter().map(of).eq(other.iter().map(of))
}

impl Found {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        let (name, bytes): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (columns, values, of): (Vec<String>, Option<String>, Vec<String>) =
            (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        for name in columns.iter().chain(&of).chain([&name]) {
            check_name(name)?;
        }
        // What could not be read again must not be written.
        values.as_deref().map(Values::parse).transpose().map_err(Fault::corrupt)?;
        let partition = values.map(|values| Partition { of, values });
        Ok(Self { name, bytes: u64::try_from(bytes).unwrap_or_default(), columns, partition })
    }

    pub fn quoted(&self) -> String {
        quoted(&self.name)
    }

    pub fn columns(&self) -> String {
        column_list(&self.columns)
    }

    pub fn into_table(self, rows: u64, file: String) -> Table {
        let Self { name, columns, partition, .. } = self;
        Table { name, rows, columns, file: Some(file), partition }
    }
}

pub(super) fn column_list(columns: &[String]) -> String {
    columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", ")
}

pub(super) fn quoted(name: &str) -> String {
    format!("cn_relay.\"{name}\"")
}

/// Names go into statements, and a manifest may come from anywhere.
pub(super) fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !name.is_empty() && name.len() < 64 && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Fault::corrupt(format!(
        "{name:?} is no name that this program gives: move what it belongs to out of cn_relay"
    )))
}
