//! A store whose feed lacks a row, and whose watch of the head may be of no use.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{Cursor, FeedRow, Seq};
use kukuri_store::conformance::double::Double;
use kukuri_store::{FeedError, Model, Store};
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
impl Double for Holed {
    fn behind(&self) -> &dyn Store {
        &*self.model
    }

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
}
