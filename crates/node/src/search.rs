//! Gives the relay what the index finds.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use kukuri_event::EventId;
use kukuri_feed::{DeskError, Home, Place};
use kukuri_index::{Ask, CANDIDATES_MAX, Index, Searcher, Start};
use kukuri_relay::{Search, SearchQuestion, SearchRefusal};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// No question waits longer for the index, whatever its database does.
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(15);

/// The index of this node, opened when somebody first asks: a node whose index is away relays all the
/// same.
pub struct NodeSearch {
    place: Place,
    searcher: OnceCell<Searcher>,
}

impl NodeSearch {
    pub fn new(place: Place) -> Self {
        Self { place, searcher: OnceCell::new() }
    }

    async fn searcher(&self) -> Result<&Searcher, DeskError> {
        let open = || async { Home::open(&self.place, Index::NAME).await.map(Searcher::new) };
        self.searcher.get_or_try_init(open).await
    }
}

#[async_trait]
impl Search for NodeSearch {
    async fn search(&self, question: SearchQuestion) -> Result<Vec<EventId>, SearchRefusal> {
        let SearchQuestion { text, topics, since, until, now } = question;
        let ask = Ask::new(&text, topics, Start::First { now })
            .map_err(|error| SearchRefusal::Question(error.to_string()))?;
        let ask = Ask { since, until, hits_max: CANDIDATES_MAX, ..ask };
        let answer = async {
            match self.searcher().await {
                Ok(searcher) => searcher.search(&ask).await,
                Err(error) => Err(error.into()),
            }
        };
        let Ok(answer) = timeout(SEARCH_WAIT_MAX, answer).await else {
            tracing::warn!(?SEARCH_WAIT_MAX, "a search was not answered in time");
            return Err(SearchRefusal::Unavailable);
        };
        let page = answer.map_err(|error| {
            tracing::warn!(%error, "a search could not be answered");
            SearchRefusal::Unavailable
        });
        // An event that is in several of the topics is found in each.
        let mut seen = BTreeSet::new();
        let ids = page?.page.hits.into_iter().map(|hit| hit.event_id);
        Ok(ids.filter(|id| seen.insert(*id)).collect())
    }
}
