use std::time::Duration;

use kukuri_event::{EventId, ParseError};

use crate::{Reason, SUBSCRIPTIONS_MAX};

/// Why there is no connection in the beginning. Later ones are made again by the client itself.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{url:?} is no address of a relay; it must be ws:// and a host")]
    Url { url: String },
    #[error("{url} needs TLS, which this client does not have; use ws:// or a local TLS proxy")]
    Tls { url: String },
    #[error("the relay at {url} cannot be reached; check the address, and that it is running")]
    Unreachable { url: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the relay at {url} did not answer within {waited:?}; try again later")]
    TimedOut { url: String, waited: Duration },
}

/// Why an event is not known to be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("the text is no Nostr event; sign it anew")]
    Event(#[from] ParseError),
    #[error("the relay refused event {id}: {reason}")]
    Refused { id: EventId, reason: Reason },
    #[error(
        "no answer about event {id} within {waited:?}; \
         it may be stored, and publishing it again will tell"
    )]
    Unanswered { id: EventId, waited: Duration },
    #[error("the client was closed before an answer about event {id}; publish it with a new one")]
    ClientClosed { id: EventId },
}

/// Why there is no subscription.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    #[error("a subscription without filters asks for nothing; give it at least one")]
    NoFilters,
    #[error("{SUBSCRIPTIONS_MAX} subscriptions are open; close one first")]
    TooMany,
    #[error("the client was closed; subscribe with a new one")]
    ClientClosed,
}
