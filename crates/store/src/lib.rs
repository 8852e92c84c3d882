//! The port to storage: what a back end must do, the in-memory model that says what is right, and
//! the conformance suite. Knows no SQL and no rules: what to write is decided in `core`. Knows no files
//! but those of a [`backup`], which all back ends lay out alike.

mod among;
pub mod backup;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod model;
mod page;
mod query;
mod recent;
mod upkeep;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Cutoffs, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq,
    TopicId, UnixMillis, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use tokio::sync::watch;

pub use among::among;
pub use error::{FeedError, QueryError, StoreError};
pub use model::Model;
pub use page::{Entry, Place};
pub use query::{Hit, Hits, Order, Query, merge_hits};
pub use recent::Recent;
pub use upkeep::{
    Dated, Extent, Forgettable, Scope, Space, Tidied, feed_rows_until, name, node_state,
};
pub use walk::Walk;

/// A durable home for events and their feed. Back ends contain no rules: they load the facts that
/// `core` names, write the net changes that `core` decides, and answer queries as the matcher would.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Runs a batch: lock, read head, load what the batch needs, decide, write, commit. Durable when
    /// it returns. Running the same batch again after an error changes nothing twice.
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError>;

    /// Loads facts as of one moment, without a lock.
    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError>;

    /// A batch that is about to come will change these events: a store may look them up before its turn, in
    /// which others wait. Nothing else depends on it.
    async fn foresee(&self, _events: BTreeSet<EventId>) {}

    /// The events that match, newest first, ties by id, all filters as of one seq.
    async fn query(&self, query: Query) -> Result<Hits, QueryError>;

    /// The canonical JSON of events that a query found; `None` where one is effective no longer.
    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError>;

    /// The rows after a cursor, at most `rows_max`, in order and without a hole.
    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError>;

    /// Some of what [`Store::feed`] would answer, if this handle has written it a moment ago and so knows
    /// it. There may be more: where the feed ends is for `feed` to say.
    fn recent(&self, _after: Cursor, _rows_max: usize) -> Option<Vec<FeedRow>> {
        None
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError>;

    /// The head as it grows, by whatever process. Each value is durable.
    fn heads(&self) -> watch::Receiver<Seq>;

    /// All node-level subscriptions, by id.
    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError>;

    /// Events linked to a topic, hidden ones included, each once and at most `events_max`, in the order
    /// that is cheapest for the store.
    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError>;

    /// Events linked to a topic, hidden ones included, that have aged by these times, with their dates,
    /// each once and at most `events_max`, in the order that is cheapest for the store.
    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError>;

    /// Stored events in the order in which they are given up for room: current versions last, otherwise
    /// the oldest first. In a topic the oldest is that of the least `created_at`, of equal ones the
    /// greatest id; in the node that of the least number.
    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError>;

    /// What is remembered from before a time and of no use to anything stored, at most `max` of each
    /// sort, in the order that is cheapest for the store.
    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError>;

    /// Gives back to the disk, in one bounded step, what holds nothing any more.
    async fn tidy(&self) -> Result<Tidied, StoreError>;

    /// The files or tables that hold the store, and what they take on the disk, by name.
    async fn extents(&self) -> Result<Vec<Extent>, StoreError>;

    /// How much space there is to be given back, now and if events leave.
    async fn space(&self) -> Result<Space, StoreError>;

    /// Effective events whose time has come, at most `events_max`, longest overdue first.
    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError>;

    /// Closes and opens again what a failed write may have left in doubt. After an `Io` error nothing
    /// is applied until this has succeeded.
    async fn reopen(&self) -> Result<(), StoreError>;

    /// The raw state, table by table in key order, for audits, exports and comparisons.
    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError>;
}

/// A clock, owned by the shell that reads it.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;
