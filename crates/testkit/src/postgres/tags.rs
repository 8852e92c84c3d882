//! Tags that have outlived their events.

use anyhow::{Context, Result};

use super::Cluster;

/// Those of numbers that no partition has are counted nowhere.
const FORGOTTEN: &str =
    "SELECT COALESCE(sum(GREATEST(0, o.tags - COALESCE(p.stray_tags, 0))), 0)::BIGINT
    FROM (SELECT p.first_seq, count(*) AS tags FROM cn_relay.event_tags t
        LEFT JOIN cn_relay.event_partitions p ON t.seq >= p.first_seq AND t.seq < p.end_seq
        WHERE NOT EXISTS (SELECT FROM cn_relay.events e WHERE e.seq = t.seq)
            AND NOT EXISTS (SELECT FROM cn_relay.tag_sweeps s
                WHERE t.seq >= s.first_seq AND t.seq < s.end_seq)
        GROUP BY p.first_seq) AS o
    LEFT JOIN cn_relay.event_partitions p ON p.first_seq = o.first_seq";

impl Cluster {
    /// How many tags in a store's database lead to no event and are neither counted nor asked for, so that they
    /// would stay for ever. What one partition counts too many, because it was swept with others, hides none of another.
    ///
    /// # Errors
    /// The server's message.
    pub fn forgotten_tags(&self, database: &str) -> Result<i64> {
        let number = self.sql(database, FORGOTTEN)?;
        number.trim().parse().with_context(|| format!("{number:?} is no number"))
    }
}
