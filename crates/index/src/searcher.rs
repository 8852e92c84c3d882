//! Answers questions from the generation that is read.

use kukuri_core::Cursor;
use kukuri_feed::{DeskError, Home};

use crate::consumer::Index;
use crate::search::{Ask, Page};
use crate::tables::Tables;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// Its first generation is still being built, or the first one in the words and tables of this program.
    #[error("the search is being set up, try again later")]
    NotBuilt,
    #[error("the search is unavailable: {0}")]
    Desk(#[from] DeskError),
}

/// A page, and up to where the index had followed the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub page: Page,
    pub as_of: Cursor,
}

/// Reads what the consumer writes, in whatever process that is.
#[derive(Clone)]
pub struct Searcher {
    home: Home,
}

impl Searcher {
    /// `home` is that of [`Index::NAME`](crate::Index::NAME).
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// Which generation is read, and what is in it, is as of one moment: while another one takes over,
    /// questions are answered from the one or the other. One that another program made, of other words or in
    /// other tables, is not asked: it would seem to hold nothing.
    pub async fn search(&self, ask: &Ask) -> Result<Answer, SearchError> {
        let mut snapshot = self.home.read().await?;
        let active = self.home.active(snapshot.desk()).await?;
        let active = active.filter(|active| Index::reads(active.version));
        let Some(active) = active else {
            snapshot.end().await?;
            return Err(SearchError::NotBuilt);
        };
        let tables = Tables::of(active.generation);
        let page = tables.search(snapshot.desk(), ask, active.cursor.seq).await?;
        snapshot.end().await?;
        Ok(Answer { page, as_of: active.cursor })
    }
}
