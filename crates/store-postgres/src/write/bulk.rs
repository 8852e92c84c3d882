//! One statement for many rows.

use kukuri_core::Change;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Encode, Postgres, Type, query};

use crate::error::Fault;

/// A statement with its arguments, and how many rows it must change.
pub(crate) struct Bulk<'q> {
    sql: &'static str,
    query: Query<'q, Postgres, PgArguments>,
    rows: usize,
}

impl<'q> Bulk<'q> {
    pub fn new(sql: &'static str, rows: usize) -> Self {
        Self { sql, query: query(sql), rows }
    }

    /// One argument: a column of all rows.
    pub fn bind<T>(mut self, column: impl Iterator<Item = T>) -> Self
    where
        Vec<T>: Encode<'q, Postgres> + Type<Postgres> + 'q,
    {
        self.query = self.query.bind(column.collect::<Vec<T>>());
        self
    }

    /// Does nothing when there are no rows.
    pub async fn run(self, connection: &mut PgConnection) -> Result<(), Fault> {
        if self.rows == 0 {
            return Ok(());
        }
        self.run_always(connection).await
    }

    pub async fn run_always(self, connection: &mut PgConnection) -> Result<(), Fault> {
        let changed = self.query.execute(connection).await?.rows_affected();
        if changed == self.rows as u64 {
            return Ok(());
        }
        Err(Fault::corrupt(format!(
            "{changed} of {} rows were there to change; run doctor (statement: {})",
            self.rows, self.sql
        )))
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
