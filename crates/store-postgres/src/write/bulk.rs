//! One statement for many changes of many tables.

use std::fmt::Write;

use kukuri_core::Change;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Postgres, Row, Type, query_with};

use super::Premise;
use crate::error::Fault;

/// Changes that are made at once, with the commit: a round trip costs as much as several events. They
/// see the state before all of them, and none touches the rows of another.
#[derive(Default)]
pub(crate) struct Bulk {
    parts: Vec<Part>,
    conditions: Vec<Condition>,
    arguments: PgArguments,
}

/// What keeps all of it from being done.
struct Condition {
    sql: &'static str,
    arguments_before: usize,
}

struct Part {
    /// Ends with the list of values if it adds rows, and with conditions if it changes some.
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

    /// Nothing is done if there is a row of this; no rows to look for are no condition.
    pub fn unless(&mut self, sql: &'static str, rows: usize) -> Columns<'_> {
        if rows == 0 {
            return Columns { arguments: None };
        }
        self.conditions.push(Condition { sql, arguments_before: self.arguments.len() });
        Columns { arguments: Some(&mut self.arguments) }
    }

    fn part(&mut self, sql: &'static str, rows: usize, changed: Option<usize>) -> Columns<'_> {
        if rows == 0 {
            return Columns { arguments: None };
        }
        self.parts.push(Part { sql, arguments_before: self.arguments.len(), changed });
        Columns { arguments: Some(&mut self.arguments) }
    }

    /// Makes all the changes if the premise and the conditions hold, and none otherwise. Batches of one sort
    /// share the text of the statement, and so its plan.
    pub async fn run(
        mut self,
        connection: &mut PgConnection,
        premise: Premise<'_>,
    ) -> Result<(), Fault> {
        let sql = self.sql();
        let expected = self.parts.iter().filter_map(|part| part.changed);
        let expected: Vec<i64> = expected.map(|rows| rows.try_into().unwrap_or(i64::MAX)).collect();
        let mut added = self.arguments.add(premise.revision);
        added = added.and_then(|()| self.arguments.add(premise.epoch.0));
        added = added.and_then(|()| self.arguments.add(expected));
        added.expect("numbers can be encoded");
        let written = query_with(AssertSqlSafe(sql), self.arguments).fetch_one(connection).await;
        match written.map_err(|error| missing_rows(error, &self.parts))?.try_get(0)? {
            true => Ok(()),
            false => Err(Fault::Fenced),
        }
    }

    /// Every part waits for the fence and does nothing without it, so that two who write never hold what
    /// the other waits for. The server itself compares how many rows were changed, because with the end
    /// of the statement they are committed: a text that is no number is how plain SQL says stop.
    fn sql(&self) -> String {
        let [revision, epoch, expected] = [1, 2, 3].map(|nth| self.arguments.len() + nth);
        let mut sql = format!(
            "WITH fence AS (UPDATE lane SET revision = revision + 1
                WHERE one AND revision = ${revision}
                AND EXISTS (SELECT FROM feed_meta WHERE epoch = ${epoch})"
        );
        for condition in &self.conditions {
            sql.push_str(" AND NOT EXISTS (");
            push_renumbered(&mut sql, condition.sql, condition.arguments_before);
            sql.push(')');
        }
        sql.push_str(" RETURNING 1)");
        let mut counts = Vec::new();
        for (nth, part) in self.parts.iter().enumerate() {
            let _ = write!(sql, ", part_{nth} AS (");
            push_renumbered(&mut sql, part.sql, part.arguments_before);
            match part.changed {
                None => sql.push_str(" WHERE EXISTS (SELECT FROM fence)"),
                Some(_) => {
                    sql.push_str(" AND EXISTS (SELECT FROM fence) RETURNING 1");
                    counts.push(format!("(SELECT count(*) FROM part_{nth})"));
                }
            }
            sql.push(')');
        }
        let counts = counts.join(", ");
        let _ = write!(
            sql,
            ", counted AS (SELECT EXISTS (SELECT FROM fence) AS fence, ARRAY[{counts}]::BIGINT[] AS changed)
            SELECT fence, CASE WHEN NOT fence OR changed = ${expected} THEN 0
                ELSE ('{MISSING_ROWS} ' || changed::TEXT)::INTEGER END
            FROM counted"
        );
        sql
    }
}

/// What the server's error names when rows that must be there to be changed are not.
const MISSING_ROWS: &str = "rows changed:";

fn missing_rows(error: sqlx::Error, parts: &[Part]) -> Fault {
    let text = error.as_database_error().map(|error| error.message());
    let Some((_, changed)) = text.and_then(|text| text.split_once(MISSING_ROWS)) else {
        return error.into();
    };
    // What stands around it depends on the server's language.
    let changed = changed.split(['{', '}']).nth(1).unwrap_or_default();
    let numbers = changed.split(',').map(|rows| rows.parse::<usize>().ok());
    let short = parts.iter().filter(|part| part.changed.is_some()).zip(numbers);
    let mut short = short.filter(|(part, changed)| part.changed != *changed);
    if short.any(|(part, _)| super::held::counts(part.sql)) {
        // The partition was dropped, and made again, since they were counted.
        return Fault::NoPartition;
    }
    let meant = parts.iter().filter_map(|part| Some((part.changed?, part.sql)));
    let meant: Vec<String> = meant
        .map(|(rows, sql)| {
            let what: Vec<&str> = sql.split_whitespace().take(3).collect();
            format!("{rows} of {}", what.join(" "))
        })
        .collect();
    Fault::corrupt(format!(
        "rows that must be there to be changed are not: {changed} instead of {}; run doctor",
        meant.join(", ")
    ))
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
