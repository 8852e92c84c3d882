//! Whether a subscription was given everything exactly once, judged by the state in the end.

use std::collections::BTreeSet;

use kukuri_core::{ReadSet, Record, TopicId};
use kukuri_event::{EventId, Filter, UnixSeconds, matches_any};
use kukuri_store::{Store, StoreError};

/// The records of these events.
pub async fn records(
    store: &dyn Store,
    events: impl IntoIterator<Item = EventId>,
) -> Result<Vec<Record>, StoreError> {
    let needs = ReadSet { events: events.into_iter().collect(), ..ReadSet::default() };
    Ok(store.facts(needs).await?.records.into_values().flatten().collect())
}

/// What is wrong with what a group of filters was given, stored and live together: something twice,
/// something missing, something that does not match. Holds for histories in which no link is undone.
pub fn judge(
    records: &[Record],
    filters: &[Filter],
    given: &[EventId],
    now: UnixSeconds,
) -> Result<(), String> {
    let seen: BTreeSet<EventId> = given.iter().copied().collect();
    if seen.len() < given.len() {
        return Err(format!("{filters:?} saw an event twice"));
    }
    for record in records {
        let (id, links): (EventId, Vec<&TopicId>) =
            (record.event().id(), record.topics().collect());
        let alive = record.expires_at().is_none_or(|end| end > now);
        let wanted = alive && matches_any(filters, record.event(), &links);
        if record.is_effective() && wanted && !seen.contains(&id) {
            return Err(format!("{filters:?} misses {id}"));
        }
        if !wanted && seen.contains(&id) {
            return Err(format!("{filters:?} saw {id}, which does not match"));
        }
    }
    Ok(())
}
