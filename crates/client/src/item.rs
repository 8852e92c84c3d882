use kukuri_event::{Event, EventId};

use crate::Reason;

/// What a subscription shows, in this order: stored events, `Eose` once, live events, and `Closed`
/// if it cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Stored(Box<Event>),
    /// Everything that was stored when the question was asked has been shown.
    Eose,
    Live(Box<Event>),
    /// Nothing more comes.
    Closed(Closing),
}

/// Why a subscription ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closing {
    #[error("the relay closed the subscription: {0}")]
    Relay(Reason),
    #[error(
        "more stored events than a slow reader can be given exactly once; \
         read faster, or ask with a limit or a narrower filter"
    )]
    TooManyStored,
}

/// An event that the relay has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub id: EventId,
    /// What the relay said with its OK: mostly nothing, or `duplicate:` and more.
    pub message: Reason,
}
