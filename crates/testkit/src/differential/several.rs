//! Several handles of one store, taken in turn: what several processes on one data directory or one
//! database are to each other, without the processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq, TopicId, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::{Entry, FeedError, Hits, Place, Query, QueryError, Store, StoreError};
use tokio::sync::watch;

/// A store whose every call goes through another of its handles.
pub struct Several {
    handles: Vec<Arc<dyn Store>>,
    calls: AtomicUsize,
}

impl Several {
    /// # Panics
    /// When there is no handle.
    pub fn new(handles: Vec<Arc<dyn Store>>) -> Several {
        assert!(!handles.is_empty(), "a store has a handle");
        Several { handles, calls: AtomicUsize::new(0) }
    }

    fn next(&self) -> &dyn Store {
        // A stride of one would give the same handle to the same sort of call again and again.
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.handles[(calls + calls / 7) % self.handles.len()]
    }
}

#[async_trait]
impl Store for Several {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.next().apply(batch).await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.next().facts(needs).await
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.next().query(query).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        self.next().bodies(events).await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        self.next().feed(after, rows_max).await
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        self.next().bounds().await
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.next().heads()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        self.next().topics().await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.next().linked(topic, events_max).await
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.next().expired(now, events_max).await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        self.next().reopen().await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        self.next().page(after, entries_max).await
    }
}
