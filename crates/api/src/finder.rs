//! The one way to search: whoever asks, and through whichever door, is answered from here.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, CursorError, UnixMillis};
use kukuri_feed::{FeedError, Home, Place, lag};
use kukuri_index::{Answer, Ask, CANDIDATES_MAX, Hit, Index, SearchError, Searcher};
use kukuri_store::{Clock, Store};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// No question waits longer for the index, whatever its database does.
const FIND_WAIT_MAX: Duration = Duration::from_secs(15);

/// The index of a node, opened when somebody first asks: a node whose index is away does everything else
/// all the same.
pub struct Finder {
    store: Arc<dyn Store>,
    clock: Clock,
    place: Place,
    /// From how much on it is said by how much the index is behind.
    stale_from: Duration,
    searcher: OnceCell<Searcher>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// All of them, the best first; an event that is in several of the topics is there for each.
    pub hits: Vec<Hit>,
    /// Up to where the index had followed the feed.
    pub as_of: Cursor,
    /// By how much it is behind, if that is much.
    pub lag: Option<Duration>,
}

/// There is no answer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// There is no index yet that this program can read.
    #[error("the search is being set up, try again later")]
    BeingBuilt,
    /// Why is in the log: it says something about the node, and nothing to who asked.
    #[error("the search is unavailable, try again later")]
    Away,
}

impl Finder {
    pub fn new(store: Arc<dyn Store>, clock: Clock, place: Place, stale_from: Duration) -> Self {
        Self { store, clock, place, stale_from, searcher: OnceCell::new() }
    }

    pub fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// All that matches from where the question starts, however few are wanted: some may turn out to be
    /// hidden by now.
    pub async fn find(&self, ask: &Ask) -> Result<Found, Unavailable> {
        let ask = Ask { hits_max: CANDIDATES_MAX, ..ask.clone() };
        let found = async {
            let Answer { page, as_of } = self.searcher().await?.search(&ask).await?;
            Ok(Found { hits: page.hits, as_of, lag: self.lag(as_of).await })
        };
        match timeout(FIND_WAIT_MAX, found).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(SearchError::NotBuilt)) => Err(Unavailable::BeingBuilt),
            Ok(Err(SearchError::Desk(error))) => {
                tracing::warn!(%error, "a search could not be answered");
                Err(Unavailable::Away)
            }
            Err(_) => {
                tracing::warn!(?FIND_WAIT_MAX, "a search was not answered in time");
                Err(Unavailable::Away)
            }
        }
    }

    async fn searcher(&self) -> Result<&Searcher, SearchError> {
        let open = || async {
            let home = Home::existing(&self.place, Index::NAME).await?;
            home.map(Searcher::new).ok_or(SearchError::NotBuilt)
        };
        self.searcher.get_or_try_init(open).await
    }

    /// What cannot be told now is not told: the answer is worth more than its age.
    async fn lag(&self, as_of: Cursor) -> Option<Duration> {
        if *self.store.heads().borrow() == as_of.seq {
            return None;
        }
        let behind = match lag(&*self.store, as_of, self.now()).await {
            // An index of another feed knows nothing of this one.
            Err(FeedError::Cursor(CursorError::Diverged { .. })) => {
                let bounds = self.store.bounds().await.ok()?;
                lag(&*self.store, bounds.start(), self.now()).await
            }
            behind => behind,
        };
        behind.ok().filter(|behind| *behind >= self.stale_from && !behind.is_zero())
    }
}
