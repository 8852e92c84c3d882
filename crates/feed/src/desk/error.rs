use sqlx::error::DatabaseError;

/// What can go wrong at a desk, by what the runtime does about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// The database is away, busy, full or shut. It says nothing about what was to be written: the
    /// consumer waits and tries again, and parks nothing.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The database does not take this very row. It is tried again, and then parked.
    #[error("the database refuses it: {0}")]
    Refused(String),
    /// The tables are not those this program knows. The consumer halts.
    #[error("the tables are broken: {0}")]
    Broken(String),
}

impl From<sqlx::Error> for DeskError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => of_database(error.as_ref()),
            sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::RowNotFound => Self::Broken(error.to_string()),
            sqlx::Error::Encode(_) => Self::Refused(error.to_string()),
            // Broken sockets and messages, threads that ended: whatever was under way, its outcome is
            // unknown.
            error => Self::Unavailable(error.to_string()),
        }
    }
}

fn of_database(error: &dyn DatabaseError) -> DeskError {
    let text = error.message().to_owned();
    let code = error.code().unwrap_or_default();
    match code.parse::<u32>() {
        // SQLSTATE has five characters; SQLite's numbers never have as many.
        Ok(number) if code.len() < 5 => of_sqlite(number, text),
        _ => of_postgres(&code, text),
    }
}

fn of_sqlite(code: u32, text: String) -> DeskError {
    let text = format!("{text} ({code})");
    // The low byte is the sort of error.
    match code & 0xff {
        // CONSTRAINT, MISMATCH, TOOBIG, RANGE.
        18 | 19 | 20 | 25 => DeskError::Refused(text),
        // PERM, ABORT, BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL, SCHEMA.
        3..=10 | 13..=15 | 17 => DeskError::Unavailable(text),
        _ => DeskError::Broken(text),
    }
}

fn of_postgres(code: &str, text: String) -> DeskError {
    let text = format!("{text} ({code})");
    match code.get(..2).unwrap_or_default() {
        // Data that is out of range or breaks a constraint, and statements that grow too large with it.
        "22" | "23" | "54" => DeskError::Refused(text),
        // Lost connections, shutdowns, timeouts, deadlocks, a standby, a full disk, no access.
        "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58" => {
            DeskError::Unavailable(text)
        }
        _ if code == "42501" => DeskError::Unavailable(text),
        _ => DeskError::Broken(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_to_do() {
        let refused = |error| matches!(error, DeskError::Refused(_));
        let away = |error| matches!(error, DeskError::Unavailable(_));
        let broken = |error| matches!(error, DeskError::Broken(_));
        assert!(refused(of_sqlite(1555, String::new())), "a primary key that is there");
        assert!(away(of_sqlite(5, String::new())) && away(of_sqlite(13, String::new())));
        assert!(broken(of_sqlite(1, String::new())) && broken(of_sqlite(11, String::new())));
        assert!(refused(of_postgres("23505", String::new())));
        assert!(refused(of_postgres("22021", String::new())), "a NUL in a text");
        assert!(
            away(of_postgres("57P01", String::new())) && away(of_postgres("53100", String::new()))
        );
        assert!(broken(of_postgres("42P01", String::new())), "no such table");
        assert!(away(DeskError::from(sqlx::Error::WorkerCrashed)));
    }
}
