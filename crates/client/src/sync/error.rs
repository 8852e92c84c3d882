use std::time::Duration;

use super::IDS_MAX;
use crate::Reason;

/// Why a reconciliation cannot go on, whoever carries its messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError {
    #[error("the relay's part of the reconciliation cannot be read: {0}")]
    Unreadable(String),
    #[error("more than {IDS_MAX} ids are to be compared; ask for a shorter time")]
    TooMany,
    #[error("the reconciliation does not come to an end; the relay says ever the same")]
    Endless,
}

/// Why what a relay has is not known, or was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(transparent)]
    Reconcile(#[from] ReconcileError),
    /// It holds more than it compares at once.
    #[error("the relay compares no more at once: {0}")]
    TooBig(Reason),
    #[error("the relay refused: {0}")]
    Refused(Reason),
    #[error("the relay does not reconcile (NIP-77); it says: {0}")]
    Unsupported(String),
    #[error("the relay did not answer within {0:?}")]
    Unanswered(Duration),
    #[error("the connection to the relay ended")]
    Lost,
    /// Who was to get the events takes no more.
    #[error("nobody takes what was fetched")]
    Unwanted,
}
