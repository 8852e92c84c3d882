use kukuri_store::StoreError;
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// Sorts what SQLite says by what the caller can do about it.
pub(crate) fn store_error(error: &rusqlite::Error) -> StoreError {
    let text = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        // A column of the wrong type or a missing row: the file does not hold what we wrote.
        return StoreError::Corrupt(format!("{text}; run doctor, or restore a backup"));
    };
    match (failure.code, failure.extended_code) {
        // The shared-memory file cannot grow: the disk is full, though SQLite calls it an I/O error.
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => StoreError::Full(text),
        (
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied,
            _,
        ) => StoreError::Unavailable(text),
        // A row that must not be there is there: the file contradicts what was decided on it.
        (
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation,
            _,
        ) => StoreError::Corrupt(format!("{text}; run doctor, or restore a backup")),
        _ => StoreError::Io(text),
    }
}

/// A value that no version of this program writes.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("events.db holds {what}; run doctor, or restore a backup"))
}

/// `?` for the two kinds of error that a job meets.
pub(crate) trait OrStore<T> {
    fn or_store(self) -> Result<T, StoreError>;
}

impl<T> OrStore<T> for rusqlite::Result<T> {
    fn or_store(self) -> Result<T, StoreError> {
        self.map_err(|error| store_error(&error))
    }
}
