use kukuri_core::CursorError;
use kukuri_store::{FeedError, StoreError};

use crate::{DeskError, Poison};

/// Why a batch was not handled, by what is done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Something is away: the line stops, and goes on by itself.
    #[error("{0}")]
    Away(String),
    /// One of these rows cannot be handled.
    #[error("{0}")]
    Poison(String),
    /// Nothing can be handled until somebody has had a look.
    #[error("{0}")]
    Broken(String),
    /// The feed does not lead on from here.
    #[error("{0}")]
    Lost(CursorError),
    /// Somebody else has the generation.
    #[error("another instance has taken over")]
    Fenced,
}

impl From<DeskError> for Fault {
    fn from(error: DeskError) -> Self {
        match error {
            DeskError::Unavailable(_) => Self::Away(error.to_string()),
            DeskError::Refused(_) => Self::Poison(error.to_string()),
            DeskError::Broken(_) => Self::Broken(error.to_string()),
        }
    }
}

impl From<Poison> for Fault {
    fn from(poison: Poison) -> Self {
        Self::Poison(poison.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt(_) => Self::Broken(error.to_string()),
            _ => Self::Away(error.to_string()),
        }
    }
}

impl From<FeedError> for Fault {
    fn from(error: FeedError) -> Self {
        match error {
            FeedError::Cursor(error) => Self::Lost(error),
            FeedError::Hole { .. } => Self::Broken(error.to_string()),
            FeedError::Store(error) => error.into(),
        }
    }
}
