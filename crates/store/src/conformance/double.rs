//! Stores that stand in for others in tests: they do most of what they are asked as the store
//! behind them does it.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Cutoffs, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq,
    TopicId, UnixMillis, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use tokio::sync::watch;

use crate::{
    Dated, Entry, Extent, FeedError, Forgettable, Hits, Place, Query, QueryError, Scope, Space,
    Store, StoreError, Tidied,
};

/// A store that differs from the one behind it in the methods it names.
#[async_trait]
pub trait Double: Send + Sync + 'static {
    /// The store that does what is not told otherwise. Asked once for each call.
    fn behind(&self) -> &dyn Store;

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.behind().apply(batch).await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.behind().facts(needs).await
    }

    async fn foresee(&self, events: BTreeSet<EventId>) {
        self.behind().foresee(events).await;
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.behind().query(query).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        self.behind().bodies(events).await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        self.behind().feed(after, rows_max).await
    }

    fn recent(&self, after: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        self.behind().recent(after, rows_max)
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        self.behind().bounds().await
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.behind().heads()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        self.behind().topics().await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.behind().linked(topic, events_max).await
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        self.behind().aged(topic, cutoffs, events_max).await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.behind().oldest(of, events_max).await
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        self.behind().forgettable(before, max).await
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        self.behind().tidy().await
    }

    async fn extents(&self) -> Result<Vec<Extent>, StoreError> {
        self.behind().extents().await
    }

    async fn space(&self) -> Result<Space, StoreError> {
        self.behind().space().await
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.behind().expired(now, events_max).await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        self.behind().reopen().await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        self.behind().page(after, entries_max).await
    }
}

#[async_trait]
impl<D: Double> Store for D {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        Double::apply(self, batch).await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        Double::facts(self, needs).await
    }

    async fn foresee(&self, events: BTreeSet<EventId>) {
        Double::foresee(self, events).await;
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        Double::query(self, query).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        Double::bodies(self, events).await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        Double::feed(self, after, rows_max).await
    }

    fn recent(&self, after: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        Double::recent(self, after, rows_max)
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        Double::bounds(self).await
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        Double::heads(self)
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        Double::topics(self).await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        Double::linked(self, topic, events_max).await
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        Double::aged(self, topic, cutoffs, events_max).await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        Double::oldest(self, of, events_max).await
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        Double::forgettable(self, before, max).await
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        Double::tidy(self).await
    }

    async fn extents(&self) -> Result<Vec<Extent>, StoreError> {
        Double::extents(self).await
    }

    async fn space(&self) -> Result<Space, StoreError> {
        Double::space(self).await
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        Double::expired(self, now, events_max).await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        Double::reopen(self).await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        Double::page(self, after, entries_max).await
    }
}
