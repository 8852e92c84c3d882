//! What the node is under pressure from, and what letting go of events does about it.

use kukuri_core::ladder::{LagLimit, Limits, Load, Pressure, eviction_helps, pressure};
use kukuri_core::{Look, NodeState, NodeTopic, OnFull, Usage};

use super::UpkeepSettings;

/// How the node is, and whether it helps that events leave for it.
pub(super) struct Felt {
    pub pressure: Pressure,
    pub eviction_helps: bool,
}

impl Felt {
    /// Nothing could be felt.
    pub const NOTHING: Self = Self { pressure: Pressure::Between, eviction_helps: false };
}

/// The load of the node by what the operator wants.
pub(super) fn felt(settings: &UpkeepSettings, topics: &[(NodeTopic, Usage)], load: &Load) -> Felt {
    let UpkeepSettings { capacity, soft_percent, disk_reserve_bytes, .. } = settings;
    let soft = |max: Option<u64>| max.map(|max| percent_of(max, *soft_percent));
    let lag = |(topic, _): &(NodeTopic, Usage)| {
        let lag_seconds_max = topic.ingest_policy.max_lag_seconds?.into();
        Some(LagLimit { topic: topic.topic_id.clone(), lag_seconds_max })
    };
    let limits = Limits {
        soft_bytes_max: soft(capacity.max_bytes),
        soft_events_max: soft(capacity.max_events),
        // The ladder acts before nothing is taken in any more.
        disk_free_bytes_min: disk_reserve_bytes.saturating_mul(2),
        lags: topics.iter().filter_map(lag).collect(),
    };
    Felt { pressure: pressure(&limits, load), eviction_helps: eviction_helps(&limits, load) }
}

/// The ladder stays on its last step for a while when the pressure is gone, or when it comes from elsewhere:
/// events that leave then leave for nothing.
pub(super) fn is_of_use(look: &Look, felt: &Felt, node: &NodeState) -> bool {
    let NodeState { usage, allowance, .. } = node;
    let over = allowance.on_full == OnFull::Evict && allowance.capacity.is_exceeded(*usage);
    !matches!(look, Look::OldestOfNode { .. }) || over || felt.eviction_helps
}

/// So many hundredths of a number, however small or large it is.
pub(super) fn percent_of(whole: u64, percent: u32) -> u64 {
    let part = u128::from(whole) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_a_small_node_is_not_rounded_to_hundreds() {
        for (whole, part) in [(0, 0), (50, 45), (99, 89), (350, 315), (u64::MAX, u64::MAX / 10 * 9)]
        {
            let found = percent_of(whole, 90);
            assert!(found >= part && found <= whole, "{whole}: {found}");
        }
        assert_eq!(percent_of(350, 90), 315);
        assert_eq!(percent_of(u64::MAX, 100), u64::MAX);
    }
}
