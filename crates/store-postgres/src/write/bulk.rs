//! One statement for many changes of many tables.

use std::fmt::Write;

use kukuri_core::Change;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Postgres, Row, Type, query_with};

use crate::error::Fault;

/// Changes that are made at once: a round trip costs as much as several events. They see the state
/// before all of them, and none touches the rows of another.
#[derive(Default)]
pub(crate) struct Bulk {
    parts: Vec<Part>,
    arguments: PgArguments,
}

struct Part {
    sql: &'static str,
    arguments_before: usize,
    /// How many rows must be there to be changed. New rows all go in, or it is an error anyway.
    changed: Option<usize>,
}

impl Bulk {
    /// Adds new rows. Its columns are to be bound in order.
    pub fn insert(&mut self, sql: &'static str, rows: usize) -> Columns<'_> {
        self.part(sql, rows, None)
    }

    /// Updates or deletes rows that are there: other than that many is an error.
    pub fn change(&mut self, sql: &'static str, rows: usize) -> Columns<'_> {
        self.part(sql, rows, Some(rows))
    }

    fn part(&mut self, sql: &'static str, rows: usize, changed: Option<usize>) -> Columns<'_> {
        if rows == 0 {
            return Columns { arguments: None };
        }
        self.parts.push(Part { sql, arguments_before: self.arguments.len(), changed });
        Columns { arguments: Some(&mut self.arguments) }
    }

    /// Makes all the changes. Batches of one sort share the text of the statement, and so its plan.
    pub async fn run(self, connection: &mut PgConnection) -> Result<(), Fault> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let query = query_with(AssertSqlSafe(self.sql()), self.arguments);
        let counts: Vec<i64> = query.fetch_one(connection).await?.try_get(0)?;
        let expected = self.parts.iter().filter_map(|part| Some((part.sql, part.changed?)));
        for ((sql, expected), changed) in expected.zip(counts) {
            if usize::try_from(changed) != Ok(expected) {
                if sql == super::node::UPDATE_MONTHS {
                    // The month was given up since partitions were counted.
                    return Err(Fault::NoPartition);
                }
                return Err(Fault::corrupt(format!(
                    "{changed} of {expected} rows were there to change; run doctor (statement: {sql})"
                )));
            }
        }
        Ok(())
    }

    fn sql(&self) -> String {
        let mut sql = String::from("WITH ");
        let mut counts = Vec::new();
        for (nth, part) in self.parts.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            let _ = write!(sql, "{comma}part_{nth} AS (");
            push_renumbered(&mut sql, part.sql, part.arguments_before);
            if part.changed.is_some() {
                sql.push_str(" RETURNING 1");
                counts.push(format!("(SELECT count(*) FROM part_{nth})"));
            }
            sql.push(')');
        }
        sql + " SELECT ARRAY[" + &counts.join(", ") + "]::BIGINT[]"
    }
}

/// Every part counts its parameters from one.
fn push_renumbered(out: &mut String, sql: &str, arguments_before: usize) {
    let mut pieces = sql.split('$');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let number: usize = piece[..end].parse().expect("a dollar begins a parameter");
        let _ = write!(out, "${}{}", arguments_before + number, &piece[end..]);
    }
}

/// The columns of a part, one argument each. There are none where there are no rows.
pub(crate) struct Columns<'a> {
    arguments: Option<&'a mut PgArguments>,
}

impl Columns<'_> {
    pub fn bind<'q, T>(mut self, column: impl Iterator<Item = T>) -> Self
    where
        Vec<T>: Encode<'q, Postgres> + Type<Postgres>,
    {
        if let Some(arguments) = &mut self.arguments {
            let added = arguments.add(column.collect::<Vec<T>>());
            added.expect("a batch is far smaller than an argument may be");
        }
        self
    }
}

/// The changes of one table by what is to be done.
pub(super) struct Sorted<'a, K, V> {
    pub inserted: Vec<(&'a K, &'a V)>,
    pub updated: Vec<(&'a K, &'a V)>,
    pub deleted: Vec<&'a K>,
}

impl<'a, K, V> Sorted<'a, K, V> {
    pub fn new(changes: &'a [Change<K, V>]) -> Self {
        let mut sorted = Self { inserted: Vec::new(), updated: Vec::new(), deleted: Vec::new() };
        for change in changes {
            match (&change.before, &change.after) {
                (None, Some(after)) => sorted.inserted.push((&change.key, after)),
                (Some(_), Some(after)) => sorted.updated.push((&change.key, after)),
                (_, None) => sorted.deleted.push(&change.key),
            }
        }
        sorted
    }
}
