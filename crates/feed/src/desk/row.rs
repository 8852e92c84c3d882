//! Single values, to a database and back.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};

use super::{DeskError, ToPostgres, ToSqlite, add};

/// A value that is bound to a statement. NULL has a type, too.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(Option<i64>),
    Real(Option<f64>),
    /// PostgreSQL has no NUL in texts; what may hold one is bytes.
    Text(Option<String>),
    Blob(Option<Vec<u8>>),
}

macro_rules! values {
    ($($from:ty => $variant:ident($make:expr),)+) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                let make: fn($from) -> _ = $make;
                Self::$variant(make(value))
            }
        }
    )+};
}

values! {
    i64 => Int(Some),
    Option<i64> => Int(|value| value),
    f64 => Real(Some),
    String => Text(Some),
    Option<String> => Text(|value| value),
    &str => Text(|value| Some(value.to_owned())),
    Vec<u8> => Blob(Some),
    Option<Vec<u8>> => Blob(|value| value),
    &[u8] => Blob(|value| Some(value.to_vec())),
}

macro_rules! arguments {
    ($name:ident, $arguments:ty) => {
        pub(super) fn $name(values: Vec<Value>) -> Result<$arguments, DeskError> {
            let mut arguments = <$arguments>::default();
            for value in values {
                match value {
                    Value::Int(value) => add(&mut arguments, value)?,
                    Value::Real(value) => add(&mut arguments, value)?,
                    Value::Text(value) => add(&mut arguments, value)?,
                    Value::Blob(value) => add(&mut arguments, value)?,
                }
            }
            Ok(arguments)
        }
    };
}

arguments!(sqlite_arguments, ToSqlite);
arguments!(postgres_arguments, ToPostgres);

/// A row that was found. Columns are counted from 0; a value of another type is an error.
pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub fn int(&self, column: usize) -> Result<i64, DeskError> {
        self.get(column)
    }

    pub fn int_or_null(&self, column: usize) -> Result<Option<i64>, DeskError> {
        self.get(column)
    }

    pub fn real(&self, column: usize) -> Result<f64, DeskError> {
        self.get(column)
    }

    pub fn text(&self, column: usize) -> Result<String, DeskError> {
        self.get(column)
    }

    pub fn text_or_null(&self, column: usize) -> Result<Option<String>, DeskError> {
        self.get(column)
    }

    pub fn blob(&self, column: usize) -> Result<Vec<u8>, DeskError> {
        self.get(column)
    }

    pub fn blob_or_null(&self, column: usize) -> Result<Option<Vec<u8>>, DeskError> {
        self.get(column)
    }

    pub fn flag(&self, column: usize) -> Result<bool, DeskError> {
        self.get(column)
    }

    fn get<T>(&self, column: usize) -> Result<T, DeskError>
    where
        T: for<'r> Decode<'r, Sqlite>
            + Type<Sqlite>
            + for<'r> Decode<'r, Postgres>
            + Type<Postgres>,
    {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        Ok(value?)
    }
}
