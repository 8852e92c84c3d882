//! Lets clients of the relay search, from where everybody is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use kukuri_api::{Finder, Unavailable};
use kukuri_index::{Ask, Start};
use kukuri_relay::{Search, SearchAnswer, SearchQuestion, SearchRefusal};

/// What the relay asks, as a question to the index.
pub struct RelaySearch(pub Arc<Finder>);

#[async_trait]
impl Search for RelaySearch {
    async fn search(&self, question: SearchQuestion) -> Result<SearchAnswer, SearchRefusal> {
        let SearchQuestion { text, topics, since, until, now } = question;
        let ask = Ask::new(&text, topics, Start::First { now })
            .map_err(|error| SearchRefusal::Question(error.to_string()))?;
        let found = self.0.find(&Ask { since, until, ..ask }).await;
        let found = found.map_err(|why| match why {
            Unavailable::BeingBuilt => SearchRefusal::BeingBuilt,
            Unavailable::Away => SearchRefusal::Unavailable,
        })?;
        // An event that is in several of the topics is found in each.
        let mut seen = BTreeSet::new();
        let ids = found.hits.into_iter().map(|hit| hit.event_id);
        Ok(SearchAnswer { ids: ids.filter(|id| seen.insert(*id)).collect(), lag: found.lag })
    }
}
