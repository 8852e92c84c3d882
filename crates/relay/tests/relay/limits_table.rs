//! What docs/limits.md says of a WebSocket is what the limits are.

use std::collections::BTreeMap;

use kukuri_core::rate::Allowance;
use kukuri_relay::RelayLimits;

/// The numbers in a cell, thousands put together, and minutes and KiB as they stand there.
fn numbers(cell: &str) -> Vec<u64> {
    let mut text = cell.to_owned();
    while let Some(at) = text.match_indices(' ').find_map(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + 1..]);
        let thousands = after.len() >= 3 && after.as_bytes()[..3].iter().all(u8::is_ascii_digit);
        (before.ends_with(|c: char| c.is_ascii_digit()) && thousands).then_some(at)
    }) {
        text.remove(at);
    }
    let words = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map(|word| word.parse().unwrap()).collect()
}

/// The table, by the beginning of its rows.
fn documented() -> BTreeMap<String, Vec<u64>> {
    let text = include_str!("../../../../docs/limits.md");
    let section = text.split("\n## ").find(|section| section.starts_with("On a WebSocket"));
    let rows = section.unwrap().lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].to_owned(), numbers(cells[1]))).collect()
}

fn of(allowance: Allowance) -> Vec<u64> {
    vec![allowance.per_minute.into(), allowance.burst.into()]
}

#[test]
fn every_limit_of_a_websocket_is_documented() {
    // A limit that is new is missing here.
    let RelayLimits {
        events: _,
        message_bytes_max,
        filters_max,
        filter_values_max,
        limit_max,
        subscriptions_max,
        sub_id_chars_max,
        scan_rows_max,
        neg_sessions_max,
        neg_ids_max,
        neg_sessions_all_max,
        neg_ids_all_max,
        neg_ids_per_ip_max,
        neg_idle_max,
        neg_lifetime_max,
        in_flight_events_max,
        outbound_bytes_max,
        lag_rows_max,
        connections_max,
        connections_per_ip_max,
        handshakes_max,
        handshake_wait_max,
        ping_interval,
        stall_wait_max,
        events_per_ip,
        events_per_pubkey,
        requests_per_ip,
        connects_per_ip,
        node_topics_max,
        senders_remembered_max,
    } = RelayLimits::STANDARD;
    let one = |n: usize| vec![n as u64];
    let expected = [
        ("message", one(message_bytes_max / 1024)),
        ("filters in a question", one(filters_max)),
        ("values in a filter", one(filter_values_max)),
        ("`limit` of a filter", one(limit_max)),
        ("subscriptions of a connection", one(subscriptions_max)),
        ("questions that are being counted", one(subscriptions_max)),
        ("subscription id", vec![1, sub_id_chars_max as u64]),
        ("index rows a question", one(scan_rows_max)),
        ("reconciliations (NIP-77) of", one(neg_sessions_max)),
        ("ids that a reconciliation", vec![neg_ids_max as u64, scan_rows_max as u64]),
        ("reconciliations in all", vec![neg_sessions_all_max as u64, neg_ids_all_max as u64]),
        ("ids that are held", one(neg_ids_per_ip_max)),
        ("time of a reconciliation", vec![neg_lifetime_max.as_secs() / 60]),
        ("time between two messages", vec![neg_idle_max.as_secs()]),
        ("events that wait", one(in_flight_events_max)),
        ("bytes that wait", one(outbound_bytes_max / 1024 / 1024)),
        ("rows a subscription", vec![lag_rows_max.unsigned_abs()]),
        ("connections of an address", one(connections_per_ip_max)),
        ("connections in all", one(connections_max)),
        ("connections that are no", vec![handshakes_max as u64, connections_per_ip_max as u64]),
        ("time until the upgrade", vec![handshake_wait_max.as_secs()]),
        ("time in which nothing", vec![stall_wait_max.as_secs()]),
        ("silence after pings", vec![3, ping_interval.as_secs()]),
        ("events of an address", of(events_per_ip)),
        ("accepted events", of(events_per_pubkey)),
        ("questions of an address", of(requests_per_ip)),
        ("new connections", of(connects_per_ip)),
        ("topics that the node carries", one(node_topics_max)),
        ("addresses and keys", one(senders_remembered_max)),
    ];
    let documented = documented();
    for (row, values) in expected {
        let found: Vec<_> = documented.iter().filter(|(name, _)| name.starts_with(row)).collect();
        assert_eq!(found.len(), 1, "rows that begin with {row:?}: {found:?}");
        assert_eq!(*found[0].1, values, "{row}: in docs/limits.md, and in force");
    }
}
