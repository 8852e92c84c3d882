use std::time::Duration;

use kukuri_store::StoreError;

/// Why a command has no outcome. The text is what a sender is told; the source says what happened.
/// None of these says that nothing was written: sending again is always right, and never doubles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    #[error("error: overloaded")]
    Overloaded,
    #[error("error: storage unavailable")]
    Unavailable(#[source] StoreError),
    #[error("error: storage full")]
    Full(#[source] StoreError),
    #[error("error: storage failed")]
    Failed(#[source] StoreError),
    #[error("error: storage corrupt")]
    Corrupt(#[source] StoreError),
    #[error("error: shutting down")]
    Closed,
}

/// Whether the lane can commit. Full and unavailable stores are not here: each batch finds out anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Running,
    /// The disk failed. Nothing is committed until the store has been opened again, which the lane
    /// keeps trying.
    Failed(StoreError),
    /// What is stored makes no sense. Nothing is committed until somebody has looked at it and
    /// started the node again.
    Corrupt(StoreError),
}

impl Health {
    /// What to answer without asking the store; `None` when it can be asked.
    pub(crate) fn refusal(&self) -> Option<LaneError> {
        match self {
            Self::Running => None,
            Self::Failed(error) => Some(LaneError::Failed(error.clone())),
            Self::Corrupt(error) => Some(LaneError::Corrupt(error.clone())),
        }
    }
}

/// Why a lane did not end cleanly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    #[error("the write lane was not empty after {0:?}; what was left was answered with an error")]
    Late(Duration),
    #[error("the write lane ended by a panic")]
    Panicked,
}
