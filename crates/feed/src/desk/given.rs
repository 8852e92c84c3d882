//! Many rows for one statement.

use std::fmt::Write;

use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, query_with};

use super::{DeskError, ToPostgres, ToSqlite, add, within};

/// How many rows SQLite is given at a time: more make a statement dearer to bind than they save. Fewer
/// come in powers of two, so that few texts are prepared.
const SQLITE_ROWS_MAX: usize = 64;

/// A column of values.
#[derive(Clone, Debug)]
pub enum Column {
    Int(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    Blob(Vec<Option<Vec<u8>>>),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Blob(values) => values.len(),
        }
    }

    fn list_type(&self) -> &'static str {
        match self {
            Self::Int(_) => "BIGINT[]",
            Self::Real(_) => "DOUBLE PRECISION[]",
            Self::Text(_) => "TEXT[]",
            Self::Blob(_) => "BYTEA[]",
        }
    }
}

impl FromIterator<i64> for Column {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        Self::Int(values.into_iter().map(Some).collect())
    }
}

impl FromIterator<f64> for Column {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self::Real(values.into_iter().map(Some).collect())
    }
}

impl FromIterator<String> for Column {
    fn from_iter<I: IntoIterator<Item = String>>(values: I) -> Self {
        Self::Text(values.into_iter().map(Some).collect())
    }
}

impl FromIterator<Vec<u8>> for Column {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(values: I) -> Self {
        Self::Blob(values.into_iter().map(Some).collect())
    }
}

/// The rows that a statement knows as the table `given`, column by column.
#[derive(Clone, Debug)]
pub struct Given {
    names: Vec<&'static str>,
    columns: Vec<Column>,
    rows: usize,
}

impl Given {
    /// All columns have the same number of values.
    pub fn new(columns: impl IntoIterator<Item = (&'static str, Column)>) -> Self {
        let (names, columns): (Vec<_>, Vec<Column>) = columns.into_iter().unzip();
        let rows = columns.first().map_or(0, Column::len);
        assert!(columns.iter().all(|column| column.len() == rows), "columns are of one length");
        Self { names, columns, rows }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

pub(super) async fn run_postgres(
    connection: &mut PgConnection,
    sql: &str,
    given: Given,
) -> Result<u64, DeskError> {
    let (mut lists, mut arguments) = (String::new(), ToPostgres::default());
    for (nth, column) in given.columns.into_iter().enumerate() {
        let comma = if nth == 0 { "" } else { ", " };
        let _ = write!(lists, "{comma}${}::{}", nth + 1, column.list_type());
        match column {
            Column::Int(values) => add(&mut arguments, values)?,
            Column::Real(values) => add(&mut arguments, values)?,
            Column::Text(values) => add(&mut arguments, values)?,
            Column::Blob(values) => add(&mut arguments, values)?,
        }
    }
    let names = given.names.join(", ");
    let sql = format!("WITH given ({names}) AS (SELECT * FROM UNNEST({lists})) {sql}");
    let done = within(query_with(AssertSqlSafe(sql), arguments).execute(connection)).await?;
    Ok(done.rows_affected())
}

pub(super) async fn run_sqlite(
    connection: &mut SqliteConnection,
    sql: &str,
    mut given: Given,
) -> Result<u64, DeskError> {
    let (mut done, mut changed) = (0, 0);
    while done < given.rows {
        let rows = chunk(given.rows - done);
        let mut arguments = ToSqlite::default();
        for row in done..done + rows {
            for column in &mut given.columns {
                bind(&mut arguments, column, row)?;
            }
        }
        let text = sqlite_text(sql, &given.names, rows);
        let ran =
            within(query_with(AssertSqlSafe(text), arguments).execute(&mut *connection)).await?;
        changed += ran.rows_affected();
        done += rows;
    }
    Ok(changed)
}

/// The greatest power of two of rows that are left.
fn chunk(left: usize) -> usize {
    if left >= SQLITE_ROWS_MAX { SQLITE_ROWS_MAX } else { 1 << left.ilog2() }
}

/// Parameters without names: those with names are looked for one by one among all others.
fn sqlite_text(sql: &str, names: &[&str], rows: usize) -> String {
    let row = format!("({})", vec!["?"; names.len()].join(","));
    let rows = vec![row; rows].join(",");
    format!("WITH given ({}) AS (VALUES {rows}) {sql}", names.join(", "))
}

fn bind(arguments: &mut ToSqlite, column: &mut Column, row: usize) -> Result<(), DeskError> {
    match column {
        Column::Int(values) => add(arguments, values[row]),
        Column::Real(values) => add(arguments, values[row]),
        Column::Text(values) => add(arguments, values[row].take()),
        Column::Blob(values) => add(arguments, values[row].take()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_texts_serve_any_number_of_rows() {
        let sizes = |mut left: usize| {
            let mut sizes = Vec::new();
            while left > 0 {
                sizes.push(chunk(left));
                left -= chunk(left);
            }
            sizes
        };
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(64), [64]);
        assert_eq!(sizes(65), [64, 1]);
        assert_eq!(sizes(191), [64, 64, 32, 16, 8, 4, 2, 1]);
        assert_eq!(sqlite_text("X", &["a", "b"], 2), "WITH given (a, b) AS (VALUES (?,?),(?,?)) X");
    }
}
