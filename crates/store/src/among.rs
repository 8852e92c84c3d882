//! What was found elsewhere, such as by its words, as the store has it now.

use std::collections::BTreeMap;

use kukuri_event::{EventId, Filter, Values};

use crate::{Query, QueryError, Store};

/// Those of some events that match now, with their JSON, in the order in which they are given. What has
/// been hidden since they were found, or never matched, is left out.
pub async fn among(
    store: &dyn Store,
    query: Query,
    ids: &[EventId],
) -> Result<Vec<(EventId, String)>, QueryError> {
    let narrow = |filter: &Filter| {
        let wanted = |id: &&EventId| filter.ids.as_ref().is_none_or(|ids| ids.contains(id));
        let ids: Values<EventId> = ids.iter().filter(wanted).copied().collect();
        Filter { ids: Some(ids), limit: None, ..filter.clone() }
    };
    let filters = query.filters.iter().map(narrow).collect();
    let query = Query { filters, limit_max: ids.len(), bodies_max: ids.len(), ..query };
    let found = store.query(query).await?;
    let hits = found.hits.iter().map(|hit| hit.id);
    let mut bodies: BTreeMap<EventId, String> = hits.zip(found.bodies).collect();
    Ok(ids.iter().filter_map(|id| bodies.remove_entry(id)).collect())
}
