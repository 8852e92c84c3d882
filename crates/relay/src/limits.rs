//! What a connection may do. One table: the session enforces it, NIP-11 tells it, and tests try it at
//! n and n + 1.

use std::time::Duration;

use kukuri_core::Limits;
use kukuri_core::rate::Allowance;
use serde::{Deserialize, Serialize};

/// The limits of the WebSocket door.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayLimits {
    /// Those of events, which every door shares.
    pub events: Limits,
    pub message_bytes_max: usize,
    pub filters_max: usize,
    /// Ids, authors, kinds and tag values of one filter together.
    pub filter_values_max: usize,
    /// Bounds the `limit` of each filter.
    pub limit_max: usize,
    pub subscriptions_max: usize,
    pub sub_id_chars_max: usize,
    /// Index rows that one REQ or COUNT may cost.
    pub scan_rows_max: usize,
    /// Reconciliations (NIP-77) that one connection has open.
    pub neg_sessions_max: usize,
    /// Ids that one of them is about.
    pub neg_ids_max: usize,
    /// Reconciliations of all connections, and the ids that are held for them together.
    pub neg_sessions_all_max: usize,
    pub neg_ids_all_max: usize,
    /// Those of them that are held for one IPv4 address or one IPv6 /64: nobody keeps the others out.
    pub neg_ids_per_ip_max: usize,
    /// How long one may be silent before it is closed.
    #[serde(rename = "neg_idle_seconds_max", with = "seconds")]
    pub neg_idle_max: Duration,
    /// How long one lasts, however much is said.
    #[serde(rename = "neg_lifetime_seconds_max", with = "seconds")]
    pub neg_lifetime_max: Duration,
    /// Events of one connection that wait for their OK; more are not read.
    pub in_flight_events_max: usize,
    /// What waits to be sent on one connection; a live subscription that needs more falls behind.
    pub outbound_bytes_max: usize,
    /// How far a subscription may fall behind before it is closed.
    pub lag_rows_max: i64,
    pub connections_max: usize,
    /// Of one IPv4 address or one IPv6 /64.
    pub connections_per_ip_max: usize,
    /// Connections that have not become a WebSocket yet.
    pub handshakes_max: usize,
    /// From the connection to the upgrade.
    #[serde(rename = "handshake_seconds_max", with = "seconds")]
    pub handshake_wait_max: Duration,
    #[serde(rename = "ping_interval_seconds", with = "seconds")]
    pub ping_interval: Duration,
    /// How long nothing at all can be sent before the connection is given up.
    #[serde(rename = "stall_seconds_max", with = "seconds")]
    pub stall_wait_max: Duration,
    pub events_per_ip: Allowance,
    pub events_per_pubkey: Allowance,
    pub requests_per_ip: Allowance,
    pub connects_per_ip: Allowance,
    /// How many topics the node carries at once.
    pub node_topics_max: usize,
    /// How many addresses and keys are remembered; who has been quiet longest is forgotten first.
    pub senders_remembered_max: usize,
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self::STANDARD
    }
}

impl RelayLimits {
    pub const STANDARD: Self = Self {
        events: Limits::STANDARD,
        message_bytes_max: 128 * 1024,
        filters_max: 10,
        filter_values_max: 500,
        limit_max: 500,
        subscriptions_max: 32,
        sub_id_chars_max: 64,
        scan_rows_max: 50_000,
        neg_sessions_max: 2,
        neg_ids_max: 500_000,
        neg_sessions_all_max: 100,
        neg_ids_all_max: 2_000_000,
        neg_ids_per_ip_max: 500_000,
        neg_idle_max: Duration::from_secs(60),
        neg_lifetime_max: Duration::from_secs(10 * 60),
        in_flight_events_max: 256,
        outbound_bytes_max: 1024 * 1024,
        lag_rows_max: 100_000,
        connections_max: 10_000,
        connections_per_ip_max: 10,
        handshakes_max: 1024,
        handshake_wait_max: Duration::from_secs(10),
        ping_interval: Duration::from_secs(30),
        stall_wait_max: Duration::from_secs(60),
        events_per_ip: Allowance { per_minute: 600, burst: 200 },
        events_per_pubkey: Allowance { per_minute: 300, burst: 100 },
        requests_per_ip: Allowance { per_minute: 1200, burst: 200 },
        connects_per_ip: Allowance { per_minute: 120, burst: 30 },
        node_topics_max: 1000,
        senders_remembered_max: 65_536,
    };
}

/// Spans of time as people write them down.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(span.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}
