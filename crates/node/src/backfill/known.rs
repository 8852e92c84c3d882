//! What is here already, and what was: nothing of that is fetched.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use kukuri_client::sync::{Dated, IDS_MAX};
use kukuri_core::{ReadSet, Rejection, TopicId};
use kukuri_event::{EventId, Filter, UnixSeconds};
use kukuri_store::{QueryError, Store, StoreError, Walk};
use lru::LruCache;

/// Ids that are looked up at once.
const LOOKUP_IDS: usize = 512;
/// How many refused ids are remembered; those that were refused longest ago are forgotten first.
const REFUSED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is more than none");

/// What of our own matches a filter; `None` if it is more than can be compared, or than may be read.
pub async fn own(
    store: &dyn Store,
    filter: Filter,
    now: UnixSeconds,
    rows_max: usize,
) -> Result<Option<Vec<Dated>>, StoreError> {
    let (mut walk, mut own) = (Walk::new(filter, now, rows_max), Vec::new());
    loop {
        match walk.next(store).await {
            Ok(None) => return Ok(Some(own)),
            Ok(Some(page)) if own.len() + page.len() > IDS_MAX => return Ok(None),
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
    /// Events that are here, and could be in this topic as well: they need not be fetched to be linked.
    pub at_hand: Vec<String>,
    pub known: u64,
}

/// Looks ids up. An id that was answered OK once is remembered, whatever became of the event: deleted,
/// replaced or purged, it does not come back. A deletion of what never came is by id and author, and the
/// author is not known before the event is: such an event is fetched and refused, once.
pub async fn unknown(
    store: &dyn Store,
    refused: &Mutex<Refused>,
    topic: &TopicId,
    ids: Vec<EventId>,
) -> Result<Found, StoreError> {
    let mut found = Found::default();
    for ids in ids.chunks(LOOKUP_IDS) {
        let needs = ReadSet { events: ids.iter().copied().collect(), ..ReadSet::default() };
        let facts = store.facts(needs).await?;
        let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            let record = facts.records.get(id).and_then(Option::as_ref);
            let seen = facts.dedupe.get(id).is_some_and(Option::is_some);
            match record.filter(|record| record.is_effective() && record.may_join(topic)) {
                Some(record) => found.at_hand.push(record.body.json().to_owned()),
                None if seen || refused.holds(id) => found.known += 1,
                None => found.unknown.push(*id),
            }
        }
    }
    Ok(found)
}

/// Ids of events that will never be taken in, so that they are not fetched again and again. It is in memory
/// alone: after a restart each of them is fetched once more.
pub struct Refused(LruCache<EventId, ()>);

impl Default for Refused {
    fn default() -> Self {
        Self(LruCache::new(REFUSED_MAX))
    }
}

impl Refused {
    fn holds(&mut self, id: &EventId) -> bool {
        self.0.get(id).is_some()
    }

    pub fn remember(&mut self, id: EventId, why: &Rejection) {
        if is_final(why) {
            self.0.put(id, ());
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
