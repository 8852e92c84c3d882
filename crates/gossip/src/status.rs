//! How gossip is doing, for people and programs.

use kukuri_core::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::GossipStats;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipStatus {
    /// Our own id.
    pub id: String,
    /// How others can name us.
    pub peers: Vec<String>,
    /// Nodes that are connected.
    pub connected: Vec<NeighbourStatus>,
    pub muted: Vec<NeighbourStatus>,
    pub topics: Vec<TopicStatus>,
    /// Topics that are carried and have no swarm, because there are too many.
    pub left_out: usize,
    /// How many rows of the feed the slowest swarm has not been told of.
    #[serde(default)]
    pub out_lag_rows: u64,
    pub stats: GossipStats,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourStatus {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicStatus {
    pub topic_id: String,
    /// `joined`, `alone` or `waiting`.
    pub state: String,
    pub since: UnixMillis,
    /// How often in a row it has asked in vain to be let in.
    #[serde(default)]
    pub tries: u32,
    pub neighbours: Vec<String>,
    pub received: u64,
    pub broadcasts: u64,
}

impl GossipStatus {
    pub fn joined(&self) -> usize {
        self.topics.iter().filter(|topic| !topic.neighbours.is_empty()).count()
    }
}
