//! Tags that have outlived their events.

use anyhow::{Context, Result};

use super::Cluster;

const FORGOTTEN: &str = "SELECT count(*) - (SELECT sum(stray_tags) FROM cn_relay.event_partitions)
    FROM cn_relay.event_tags t
    WHERE NOT EXISTS (SELECT FROM cn_relay.events e WHERE e.seq = t.seq)
        AND NOT EXISTS (SELECT FROM cn_relay.tag_sweeps s
            WHERE t.seq >= s.first_seq AND t.seq < s.end_seq)";

impl Cluster {
    /// How many tags in a store's database lead to no event and are neither counted nor asked for, so that they
    /// would stay for ever. Some may be counted that are swept with others: then there are fewer than none.
    ///
    /// # Errors
    /// The server's message.
    pub fn forgotten_tags(&self, database: &str) -> Result<i64> {
        let number = self.sql(database, FORGOTTEN)?;
        number.trim().parse().with_context(|| format!("{number:?} is no number"))
    }
}
