//! Why a reconciliation failed, and whose failure it was.

use std::time::Duration;

use kukuri_client::ConnectError;
use kukuri_client::sync::SyncError;

use super::errand::HALVINGS_MAX;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Unreachable(#[from] ConnectError),
    #[error(transparent)]
    Relay(#[from] SyncError),
    #[error("the relay compares too little at once: {HALVINGS_MAX} comparisons were not enough")]
    TooLittle,
    #[error("nothing was taken in within {0:?}")]
    Late(Duration),
    #[error("more events in a second than can be compared: {0} such seconds were left out")]
    Crowded(u64),
    /// The relay has nothing to do with it.
    #[error(
        "more events in a second than this node compares or reads at once: {0} such seconds were left out"
    )]
    CrowdedHere(u64),
    /// Something that the relay has sent has led to it: the same may happen again, but only to this relay.
    #[error("a fault in this program, in what the relay has sent: please report it")]
    Panicked,
    #[error(transparent)]
    Here(#[from] anyhow::Error),
}

/// Whose failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Relay,
    /// Ours: another relay, or the same one, would have been asked in vain as well.
    Here,
}

impl Fault {
    pub fn blame(&self) -> Blame {
        match self {
            Self::CrowdedHere(_) | Self::Here(_) | Self::Relay(SyncError::Unwanted) => Blame::Here,
            Self::Unreachable(_)
            | Self::Relay(_)
            | Self::TooLittle
            | Self::Late(_)
            | Self::Panicked
            | Self::Crowded(_) => Blame::Relay,
        }
    }
}
