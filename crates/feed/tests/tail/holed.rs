//! A store whose feed lacks a row, and whose watch of the head may be of no use.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq, TopicId, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::{Entry, FeedError, Hits, Model, Place, Query, QueryError, Store, StoreError};
use tokio::sync::watch;

#[derive(Clone, Copy)]
pub enum Deaf {
    Silent,
    Closed,
}

pub struct Holed {
    model: Arc<Model>,
    missing: Option<Seq>,
    deaf: Option<Deaf>,
    silent: watch::Sender<Seq>,
}

impl Holed {
    pub fn new(model: Arc<Model>) -> Self {
        Self { model, missing: None, deaf: None, silent: watch::Sender::new(Seq::ZERO) }
    }

    pub fn missing(self, seq: Seq) -> Self {
        let missing = Some(seq);
        Self { missing, ..self }
    }

    pub fn deaf(self, deaf: Deaf) -> Self {
        let deaf = Some(deaf);
        Self { deaf, ..self }
    }
}

#[async_trait]
impl Store for Holed {
    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        let mut rows = self.model.feed(after, rows_max).await?;
        rows.retain(|row| Some(row.seq) != self.missing);
        Ok(rows)
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        match self.deaf {
            None => self.model.heads(),
            Some(Deaf::Silent) => self.silent.subscribe(),
            Some(Deaf::Closed) => watch::Sender::new(Seq::ZERO).subscribe(),
        }
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.model.apply(batch).await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        self.model.reopen().await
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.model.facts(needs).await
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.model.query(query).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        self.model.bodies(events).await
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        self.model.bounds().await
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        self.model.topics().await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.model.linked(topic, events_max).await
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.model.expired(now, events_max).await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        self.model.page(after, entries_max).await
    }
}
