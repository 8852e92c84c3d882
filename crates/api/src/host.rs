//! What this interface asks of the node that it is part of.

use std::sync::Arc;

use axum::http::request::Parts;
use kukuri_core::TopicId;
use kukuri_core::admission::{Rate, Verdict};
use kukuri_index::Names;

/// The rules of the house, which are the same at every door.
pub trait Host: Send + Sync + 'static {
    /// Charges who has sent a request for one question.
    fn charge(&self, request: &Parts) -> Rate;

    /// Whether who has sent a request may read topics. Who cannot tell must say no.
    fn may_read(&self, request: &Parts, topics: &[TopicId]) -> Verdict;

    /// Whether the node takes in and serves a topic.
    fn carries(&self, topic: &TopicId) -> bool;

    /// The topics that everyone may know of who may read.
    fn names(&self) -> Arc<Names>;
}
