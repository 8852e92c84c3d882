//! What is here already, and what was: nothing of that is fetched.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kukuri_client::sync::Dated;
use kukuri_core::admission::{Topicless, topics_of};
use kukuri_core::{Facts, ReadSet, Record, Rejection, TopicId};
use kukuri_event::{EventId, Filter, UnixSeconds};
use kukuri_store::{QueryError, Store, StoreError, Walk};
use lru::LruCache;

use super::memory::Memory;

/// Ids that are looked up at once. Their events come with the answer, and each is as large as an event may be.
const LOOKUP_IDS: usize = 256;
/// How many refused ids are remembered; those that were refused longest ago are forgotten first.
const REFUSED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is more than none");

/// How much is read to find out what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Index rows that one page may cost.
    pub rows_max: usize,
    /// Ids that are compared at once.
    pub ids_max: usize,
}

/// What of our own matches a filter; `None` if it is more than can be compared, or than may be read.
pub async fn own(
    store: &dyn Store,
    filter: Filter,
    now: UnixSeconds,
    bounds: Bounds,
) -> Result<Option<Vec<Dated>>, StoreError> {
    let (mut walk, mut own) = (Walk::new(filter, now, bounds.rows_max), Vec::new());
    loop {
        match walk.next(store).await {
            Ok(None) => return Ok(Some(own)),
            Ok(Some(page)) if own.len() + page.len() > bounds.ids_max => return Ok(None),
            Ok(Some(page)) => own.extend(page.iter().map(|hit| {
                let (created_at, id) = (hit.created_at, hit.id);
                Dated { created_at, id }
            })),
            Err(QueryError::TooBroad { .. }) => return Ok(None),
            Err(QueryError::Store(error)) => return Err(error),
        }
        tokio::task::yield_now().await;
    }
}

/// What is to be done about ids that another node has.
#[derive(Debug, Default)]
pub struct Found {
    pub unknown: Vec<EventId>,
    /// Events that are here, and could be in this topic as well: they need not be fetched to be linked. There
    /// may be as many as a relay names, so their bodies are read when it is their turn.
    pub at_hand: Vec<EventId>,
    pub known: u64,
}

/// For whom ids are looked up.
pub struct Lookup<'a> {
    pub store: &'a dyn Store,
    pub memory: &'a Memory,
    /// The relay that has named them.
    pub from: &'a Arc<str>,
    pub topic: &'a TopicId,
    pub topicless: Topicless,
}

impl Lookup<'_> {
    /// Looks ids up. An id that was answered OK once is remembered, whatever became of the event: deleted,
    /// replaced or purged, it does not come back. A deletion of what never came is by id and author, and the
    /// author is not known before the event is: such an event is fetched and refused, once.
    pub async fn find(&self, ids: &[EventId]) -> Result<Found, StoreError> {
        let mut found = Found::default();
        for ids in ids.chunks(LOOKUP_IDS) {
            let facts = facts(self.store, ids).await?;
            let mut refused = self.memory.refused();
            for id in ids {
                let seen = facts.dedupe.get(id).is_some_and(Option::is_some);
                match facts.records.get(id).and_then(Option::as_ref) {
                    Some(record) if self.can_link(record) => found.at_hand.push(*id),
                    Some(_) => found.known += 1,
                    None if seen || refused.holds(self.from, id) => found.known += 1,
                    None => found.unknown.push(*id),
                }
            }
        }
        Ok(found)
    }

    fn can_link(&self, record: &Record) -> bool {
        let topics = topics_of(record.event(), self.topicless);
        record.is_effective()
            && record.may_join(self.topic)
            && topics.is_ok_and(|topics| topics.contains(self.topic))
    }
}

/// The bodies of events that are here; of those that have gone meanwhile there are none.
pub async fn bodies(store: &dyn Store, ids: &[EventId]) -> Result<Vec<String>, StoreError> {
    let facts = facts(store, ids).await?;
    let records = ids.iter().filter_map(|id| facts.records.get(id)?.as_ref());
    Ok(records.map(|record| record.body.json().to_owned()).collect())
}

async fn facts(store: &dyn Store, ids: &[EventId]) -> Result<Facts, StoreError> {
    store.facts(ReadSet { events: ids.iter().copied().collect(), ..ReadSet::default() }).await
}

/// Ids of events that one relay has sent and that will never be taken in, so that they are not fetched from it
/// again and again. What one relay sends says nothing about what another one has: anybody can put an id on
/// something that is refused. It is in memory alone: after a restart each of them is fetched once more.
pub struct Refused(LruCache<(Arc<str>, EventId), ()>);

impl Default for Refused {
    fn default() -> Self {
        Self(LruCache::new(REFUSED_MAX))
    }
}

impl Refused {
    fn holds(&mut self, from: &Arc<str>, id: &EventId) -> bool {
        self.0.get(&(Arc::clone(from), *id)).is_some()
    }

    pub fn remember(&mut self, from: &Arc<str>, id: EventId, why: &Rejection) {
        if is_final(why) {
            self.0.put((Arc::clone(from), id), ());
        }
    }
}

/// Whether an event that was refused for this would be refused again.
fn is_final(why: &Rejection) -> bool {
    !matches!(
        why,
        Rejection::TooNew
            | Rejection::TopicNotHandled
            | Rejection::RateLimited
            | Rejection::StorageFull
            | Rejection::NodeFull
            | Rejection::TopicFull
            | Rejection::TopicPaused
            | Rejection::NoBackfill
    )
}
