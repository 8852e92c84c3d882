//! Searching (NIP-50): the question this door asks of whoever can find events by their words.

use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::TopicId;
use kukuri_event::{EventId, UnixSeconds};

/// What a client searches for. It has been asked whether the topics may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuestion {
    pub text: String,
    pub topics: Vec<TopicId>,
    pub since: Option<UnixSeconds>,
    pub until: Option<UnixSeconds>,
    pub now: UnixSeconds,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchAnswer {
    /// Events that match, the best first, each once.
    pub ids: Vec<EventId>,
    /// By how much the search is behind the feed, if it is so much that who asks should know.
    pub lag: Option<Duration>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchRefusal {
    /// The question is at fault; the text says why.
    #[error("invalid: {0}")]
    Question(String),
    /// There is nothing to search in yet.
    #[error("error: search is being set up")]
    BeingBuilt,
    /// It may work later.
    #[error("error: search unavailable")]
    Unavailable,
}

/// Finds events by their words. What it finds is looked up before it is sent: what is not visible any
/// more is left out, and other conditions of the filter hold.
#[async_trait]
pub trait Search: Send + Sync + 'static {
    async fn search(&self, question: SearchQuestion) -> Result<SearchAnswer, SearchRefusal>;
}
