//! What the server's errors mean to the caller of a store.

use kukuri_store::StoreError;
use sqlx::error::DatabaseError;

/// Why a statement failed, as the lane needs to know it.
#[derive(Debug)]
pub(crate) enum Fault {
    Store(StoreError),
    /// A row has no partition to go to: one was dropped since they were counted.
    NoPartition,
    /// What the batch was decided by is not so: another one was committed since, an event that was taken for
    /// new is there, or somebody wrote a feed row with its number.
    Fenced,
}

impl Fault {
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Store(StoreError::Corrupt(what.into()))
    }

    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::Store(StoreError::Unavailable(what.into()))
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Store(error) => error,
            Fault::NoPartition => {
                Self::Unavailable("a partition went away; the batch is run again".into())
            }
            Fault::Fenced => Self::Unavailable("another writer came first; run again".into()),
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => of_server(error.as_ref()),
            sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::RowNotFound => {
                Self::corrupt(format!("a row cannot be read ({error}); run doctor"))
            }
            // Broken sockets, broken messages, refused settings: whatever was under way, its outcome
            // is unknown.
            error => Self::unavailable(error.to_string()),
        }
    }
}

/// The classes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_server(error: &dyn DatabaseError) -> Fault {
    let code = error.code().unwrap_or_default();
    let text = format!("{} ({code})", error.message());
    match code.as_ref() {
        "23505" if error.table().is_some_and(|name| name.starts_with("events_outbox")) => {
            Fault::Fenced
        }
        // The schema has no checks, so the one that can fail is that of partitions.
        "23514" => Fault::NoPartition,
        // Somebody has put a table where a partition is to be made.
        "42P07" => Fault::unavailable(text),
        "53100" => StoreError::Full(text).into(),
        "58030" | "58P01" | "58P02" | "XX000" => StoreError::Io(text).into(),
        code if transient(code) => Fault::unavailable(text),
        _ => Fault::corrupt(format!("{text}; run doctor")),
    }
}

/// Lost connections, shutdowns, timeouts, deadlocks, a standby, no room for a connection, and what
/// an operator can put right: no access, no such database.
fn transient(code: &str) -> bool {
    let class = &code[..code.len().min(2)];
    matches!(class, "08" | "28" | "40" | "57")
        || matches!(
            code,
            "3D000" | "25006" | "25P03" | "42501" | "53200" | "53300" | "53400" | "55006" | "55P03"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_client_side_are_sorted_by_what_to_do() {
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        for error in [sqlx::Error::Io(lost), sqlx::Error::PoolTimedOut] {
            assert!(matches!(StoreError::from(Fault::from(error)), StoreError::Unavailable(_)));
        }
        let short = sqlx::Error::Decode("a key of 31 bytes".into());
        assert!(matches!(StoreError::from(Fault::from(short)), StoreError::Corrupt(_)));
    }
}
