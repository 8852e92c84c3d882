use kukuri_core::{CursorError, Seq};

/// What can go wrong in a back end, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another writer moved the head. Run the batch again.
    #[error("another writer moved the head to {head}; the batch is run again")]
    Conflict { head: Seq },
    /// No space is left. Reads go on; writes may when space returns.
    #[error("storage is full: {0}; free some space")]
    Full(String),
    /// The back end cannot be reached, or the outcome of a commit is unknown. Run the batch again.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// What is stored cannot be what was written, or belongs to another version of the program.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// The disk failed. Nothing may be acknowledged until a clean reopen.
    #[error("storage failed: {0}")]
    Io(String),
}

/// Why the feed cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error("the feed has a hole after {after}: run doctor")]
    Hole { after: Seq },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error(
        "the filter matches too little of too much: more than {rows_max} rows would be read; narrow it"
    )]
    TooBroad { rows_max: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
}
