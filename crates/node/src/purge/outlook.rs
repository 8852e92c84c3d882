//! How much a purge has before it, for who watches its bar.

use std::collections::HashMap;

use kukuri_core::{Capacity, Look, NodeTopic, TopicId, Usage};
use kukuri_store::{Store, StoreError};
use tokio::task::yield_now;

/// How many events of one topic are counted: more would be held in memory at once, and keep who purges waiting.
const COUNTED_EVENTS_MAX: usize = 1_000_000;

/// Links to topics that are about to go: counted where they have aged, reckoned where they make room. `None` if they
/// are more than are counted.
pub async fn links(
    store: &dyn Store,
    topics: &[(NodeTopic, Usage)],
    looks: &[Look],
) -> Result<Option<u64>, StoreError> {
    let mut left: HashMap<&TopicId, (Capacity, Usage)> = topics
        .iter()
        .map(|(row, usage)| (&row.topic_id, (row.ingest_policy.capacity(), *usage)))
        .collect();
    let mut links = 0;
    for look in looks {
        let (Look::Aged { topic, .. } | Look::OldestOfTopic(topic)) = look else { continue };
        let Some((capacity, usage)) = left.get_mut(topic) else { continue };
        let leaving = match look {
            Look::Aged { cutoffs, .. } => {
                let counted = store.aged(topic.clone(), *cutoffs, COUNTED_EVENTS_MAX).await?.len();
                if counted >= COUNTED_EVENTS_MAX {
                    return Ok(None);
                }
                counted as u64
            }
            _ => too_many(*capacity, *usage),
        };
        let bytes_each = bytes_each(*usage);
        usage.events = usage.events.saturating_sub(leaving);
        usage.bytes = usage.bytes.saturating_sub(leaving.saturating_mul(bytes_each));
        links += leaving;
        // A store that reads on the thread that asks never waits: here is the turn of who interrupts.
        yield_now().await;
    }
    Ok(Some(links))
}

fn bytes_each(usage: Usage) -> u64 {
    usage.bytes.checked_div(usage.events).unwrap_or_default()
}

/// By how many events of their usual size they are more than there may be.
fn too_many(capacity: Capacity, usage: Usage) -> u64 {
    let over = |held: u64, max: Option<u64>| held.saturating_sub(max.unwrap_or(u64::MAX));
    let by_bytes = over(usage.bytes, capacity.max_bytes).div_ceil(bytes_each(usage).max(1));
    over(usage.events, capacity.max_events).max(by_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_reckoned_in_events() {
        let usage = Usage { events: 10, bytes: 1000 };
        for (max_events, max_bytes, expected) in [
            (None, None, 0),
            (Some(10), Some(1000), 0),
            (Some(9), None, 1),
            (None, Some(999), 1),
            (Some(7), Some(450), 6),
        ] {
            let capacity = Capacity { max_events, max_bytes };
            assert_eq!(too_many(capacity, usage), expected, "{capacity:?}");
            assert_eq!(too_many(capacity, Usage::default()), 0, "{capacity:?}");
        }
    }
}
