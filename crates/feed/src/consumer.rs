//! What is fed: a pure projection, and the tables it is written to.

use std::fmt;

use async_trait::async_trait;
use kukuri_event::Kind;

use crate::{Desk, DeskError, Digest, Generation, Sample, Update};

/// A read model that follows the feed. The runtime calls [`project`](Self::project) on a batch, then
/// [`apply`](Self::apply) in the transaction that moves the offset: either both are there or neither.
///
/// The same update can come more than once for a generation: a rebuild reads the state while the feed
/// goes on, and then reads from the feed what it has already seen. So effects are written by the key of
/// event and topic, and writing them twice is writing them once.
#[async_trait]
pub trait Consumer: Send + Sync + 'static {
    /// What a batch does to the tables, worked out without them, so that it can be written in bulk.
    type Effects: Send + 'static;

    fn name(&self) -> ConsumerName;

    /// Counts what changes the rows that are made from the same events, such as another normaliser or
    /// other columns. A generation of another version has to be rebuilt.
    fn version(&self) -> u32;

    /// Whether events of a kind concern this consumer at all. Those that do not are never shown to it.
    fn wants(&self, kind: Kind) -> bool;

    /// Pure: no I/O, no clock, no memory of earlier batches. A batch of which one update cannot be handled
    /// fails as a whole; it is tried again update by update, and the one that fails is parked.
    fn project(&self, updates: &[Update]) -> Result<Self::Effects, Poison>;

    /// Makes the empty tables of a generation, named by [`Generation::table`].
    async fn create(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError>;

    /// Writes effects. They belong to updates in the order of the feed.
    async fn apply(
        &self,
        desk: &mut Desk,
        generation: Generation,
        effects: Self::Effects,
    ) -> Result<(), DeskError>;

    /// What a generation holds.
    async fn digest(
        &self,
        desk: &mut Desk,
        generation: Generation,
        sample: Sample,
    ) -> Result<Digest, DeskError>;

    /// Drops the tables of a generation, those that are there.
    async fn discard(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError>;
}

/// By what a consumer is known in commands and metrics, and what its file (`search.db`) and its schema
/// (`cn_search`) are named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(&'static str);

impl ConsumerName {
    /// The longest name that PostgreSQL takes for a schema is 63 bytes.
    const BYTES_MAX: usize = 32;

    /// Lowercase letters and underscores. Anything else stops the build where the name is a constant.
    pub const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= Self::BYTES_MAX, "a name has 1 to 32 letters");
        let mut at = 0;
        while at < bytes.len() {
            assert!(bytes[at].is_ascii_lowercase() || bytes[at] == b'_', "a name is of a-z and _");
            at += 1;
        }
        Self(name)
    }

    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// That an update cannot be handled, however often it is tried, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Poison(pub String);
