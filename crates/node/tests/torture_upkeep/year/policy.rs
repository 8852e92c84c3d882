//! The policies of the year, in words of their own, and what the node is told of them.

use std::collections::BTreeMap;

use kukuri_core::{Backfill, Capacity, IngestPolicy, Keeping, OnFull, Priority};
use kukuri_node::upkeep::UpkeepSettings;

use crate::rig::SETTINGS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    #[default]
    Evict,
    Refuse,
}

impl From<Full> for OnFull {
    fn from(full: Full) -> Self {
        match full {
            Full::Evict => Self::Evict,
            Full::Refuse => Self::Refuse,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TopicRules {
    pub retention_days: Option<i64>,
    pub max_events: Option<u64>,
    pub max_bytes: Option<u64>,
    pub full: Full,
    pub low: bool,
    pub no_backfill: bool,
}

impl TopicRules {
    pub fn told(&self) -> IngestPolicy {
        IngestPolicy {
            retention_days: self.retention_days.map(|days| days.try_into().expect("few days")),
            max_events: self.max_events,
            max_bytes: self.max_bytes,
            max_lag_seconds: None,
            backfill: if self.no_backfill { Backfill::Off } else { Backfill::On },
            priority: if self.low { Priority::Low } else { Priority::Normal },
            on_full: self.full.into(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NodeRules {
    pub regular_days: i64,
    pub history_days: i64,
    pub deletion_days: i64,
    pub memory_days: i64,
    pub feed_days: i64,
    pub soft_percent: u64,
    pub max_events: Option<u64>,
    pub max_bytes: Option<u64>,
    pub full: Full,
}

/// The defaults, as they are published.
pub const NODE: NodeRules = NodeRules {
    regular_days: 30,
    history_days: 7,
    deletion_days: 180,
    memory_days: 180,
    feed_days: 30,
    soft_percent: 90,
    max_events: None,
    max_bytes: None,
    full: Full::Evict,
};

impl NodeRules {
    /// Nothing but the capacity and the memory ever differs from the defaults.
    pub fn told(&self) -> UpkeepSettings {
        let capacity = Capacity { max_events: self.max_events, max_bytes: self.max_bytes };
        let memory_days = self.memory_days.try_into().expect("few days");
        let keeping = Keeping { memory_days, ..Keeping::STANDARD };
        UpkeepSettings { capacity, keeping, on_full: self.full.into(), ..SETTINGS }
    }
}

pub fn topics() -> BTreeMap<char, TopicRules> {
    let days = |days| TopicRules { retention_days: Some(days), ..TopicRules::default() };
    BTreeMap::from([
        ('a', TopicRules::default()),
        ('b', days(3)),
        ('c', days(90)),
        ('d', TopicRules { max_events: Some(40), ..TopicRules::default() }),
        ('e', TopicRules { max_bytes: Some(40_000), full: Full::Refuse, ..days(20) }),
        ('f', TopicRules { low: true, no_backfill: true, ..days(14) }),
        ('7', TopicRules { max_bytes: Some(60_000), ..days(200) }),
    ])
}
