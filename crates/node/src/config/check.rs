//! What the types of settings do not say.

use std::time::Duration;

use kukuri_core::{FUTURE_SECONDS_BOUND, NetworkId};
use kukuri_event::Pubkey;
use kukuri_gossip::{PeerHint, RelayUrl};
use kukuri_relay::Network;

use super::layers::ConfigError;
use super::settings::known;
use super::{AuthChoice, Config};
use crate::cli::relay_url;

/// Longer waits are no waits, and times far beyond cannot be told.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub fn check(config: &Config) -> Result<(), ConfigError> {
    let Config { relay, limits, .. } = config;
    // The URL may hold a password, so it is not repeated.
    let is_postgres =
        |url: &String| url.starts_with("postgres://") || url.starts_with("postgresql://");
    that("database", config.database.as_ref().is_none_or(is_postgres), || {
        "no PostgreSQL URL; expected postgres://user@host/database".to_owned()
    })?;
    parsed("network", [&config.network], NetworkId::parse)?;
    parsed("relay.urls", &relay.urls, relay_url)?;
    parsed("relay.trusted_proxies", &relay.trusted_proxies, |text| text.parse::<Network>())?;
    parsed("relay.pubkey", &relay.pubkey, Pubkey::parse)?;
    let bound = !relay.urls.is_empty() || !relay.listen.ip().is_unspecified();
    that("relay.urls", config.auth.mode == AuthChoice::Off || bound, || {
        let ip = relay.listen.ip();
        format!(
            "auth is required and proofs are bound to the address that clients know, and {ip} is none; name one"
        )
    })?;
    that(
        "limits.message_bytes_max",
        limits.message_bytes_max >= limits.events.event_bytes_max,
        || {
            format!(
                "an event of {} bytes (limits.events.event_bytes_max) must fit",
                limits.events.event_bytes_max
            )
        },
    )?;
    that(
        "limits.outbound_bytes_max",
        limits.outbound_bytes_max >= limits.message_bytes_max,
        || {
            format!(
                "a message of {} bytes (limits.message_bytes_max) must fit",
                limits.message_bytes_max
            )
        },
    )?;
    that("capacity.soft_percent", (1..=100).contains(&config.capacity.soft_percent), || {
        "expected a percentage from 1 to 100".to_owned()
    })?;
    let is_looked_at = config.capacity.database_directory.is_some();
    that("capacity.database_directory", !is_looked_at || config.database.is_some(), || {
        "there is no `database`, and the disk of `data` is looked at without it; leave it out, or set both"
            .to_owned()
    })?;
    parsed("gossip.peers", &config.gossip.peers, |text| text.parse::<PeerHint>())?;
    parsed("gossip.relays", &config.gossip.relays, |text| text.parse::<RelayUrl>())?;
    parsed("backfill.from", &config.backfill.from, relay_url)?;
    let kinds = config.search.kinds();
    that("search.kinds", kinds.is_ok(), || kinds.err().map(|e| e.to_string()).unwrap_or_default())?;
    let at_least_one = [
        ("limits.filters_max", limits.filters_max),
        ("limits.filter_values_max", limits.filter_values_max),
        ("limits.limit_max", limits.limit_max),
        ("limits.subscriptions_max", limits.subscriptions_max),
        ("limits.sub_id_chars_max", limits.sub_id_chars_max),
        ("limits.scan_rows_max", limits.scan_rows_max),
        ("limits.neg_sessions_max", limits.neg_sessions_max),
        ("limits.neg_ids_max", limits.neg_ids_max),
        ("limits.neg_sessions_all_max", limits.neg_sessions_all_max),
        ("limits.neg_ids_all_max", limits.neg_ids_all_max),
        ("limits.neg_ids_per_ip_max", limits.neg_ids_per_ip_max),
        ("limits.neg_idle_seconds_max", seconds(limits.neg_idle_max)),
        ("limits.neg_lifetime_seconds_max", seconds(limits.neg_lifetime_max)),
        (
            "backfill.interval_seconds",
            usize::try_from(config.backfill.interval_seconds).unwrap_or(usize::MAX),
        ),
        ("backfill.window_days", config.backfill.window_days as usize),
        ("retention.feed_days", config.retention.feed_days as usize),
        ("limits.in_flight_events_max", limits.in_flight_events_max),
        ("limits.lag_rows_max", usize::try_from(limits.lag_rows_max).unwrap_or(0)),
        ("limits.connections_max", limits.connections_max),
        ("limits.connections_per_ip_max", limits.connections_per_ip_max),
        ("limits.handshakes_max", limits.handshakes_max),
        ("limits.handshake_seconds_max", seconds(limits.handshake_wait_max)),
        ("limits.ping_interval_seconds", seconds(limits.ping_interval)),
        ("limits.stall_seconds_max", seconds(limits.stall_wait_max)),
        ("limits.node_topics_max", limits.node_topics_max),
        ("gossip.mute_seconds", usize::try_from(config.gossip.mute_seconds).unwrap_or(usize::MAX)),
        ("limits.senders_remembered_max", limits.senders_remembered_max),
        ("limits.events.event_bytes_max", limits.events.event_bytes_max),
        ("limits.events.topics_max", limits.events.topics_max),
        (
            "auth.timeout_seconds",
            usize::try_from(config.auth.timeout_seconds).unwrap_or(usize::MAX),
        ),
    ];
    for (key, wait) in [
        ("limits.handshake_seconds_max", limits.handshake_wait_max),
        ("limits.ping_interval_seconds", limits.ping_interval),
        ("limits.stall_seconds_max", limits.stall_wait_max),
        ("limits.neg_idle_seconds_max", limits.neg_idle_max),
        ("limits.neg_lifetime_seconds_max", limits.neg_lifetime_max),
        ("backfill.interval_seconds", Duration::from_secs(config.backfill.interval_seconds)),
    ] {
        that(key, wait <= WAIT_MAX, || format!("at most {} are possible", WAIT_MAX.as_secs()))?;
    }
    for (key, value) in at_least_one {
        that(key, value >= 1, || "at least 1 is needed".to_owned())?;
    }
    that("limits.events.dedupe_retention_days", limits.events.dedupe_retention_days >= 2, || {
        "at least 2 days are needed: events older than all but one of them are refused".to_owned()
    })?;
    let future = 0..=FUTURE_SECONDS_BOUND;
    that(
        "limits.events.future_seconds_max",
        future.contains(&limits.events.future_seconds_max),
        || format!("a time to come is within 0 and {FUTURE_SECONDS_BOUND}"),
    )
}

fn seconds(span: std::time::Duration) -> usize {
    usize::try_from(span.as_secs()).unwrap_or(usize::MAX)
}

fn that(key: &str, holds: bool, why: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    let setting = known(|setting| setting.key == key).expect("checks name settings");
    Err(ConfigError::Wrong { setting, why: why() })
}

fn parsed<'a, T, E: std::fmt::Display>(
    key: &str,
    texts: impl IntoIterator<Item = &'a String>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<(), ConfigError> {
    for text in texts {
        if let Err(error) = parse(text) {
            return that(key, false, || format!("{text:?}: {error}"));
        }
    }
    Ok(())
}
