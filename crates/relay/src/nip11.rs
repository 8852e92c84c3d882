//! What the relay says of itself: to programs (NIP-11), and to people who come with a browser.

use kukuri_core::admission::Topicless;
use serde_json::{Value, json};

use crate::relay::Relay;

/// What the operator says of the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub name: String,
    pub description: String,
    pub pubkey: Option<String>,
    pub contact: Option<String>,
    pub software_version: String,
}

const NIPS: [u32; 8] = [1, 9, 11, 40, 42, 45, 70, 77];
/// Where there is a search.
const SEARCH_NIP: u32 = 50;

/// The document, from the limits that are enforced.
pub(crate) fn document(relay: &Relay) -> Value {
    let (about, limits) = (&relay.config.about, &relay.config.limits);
    let search = relay.search.get().map(|_| SEARCH_NIP);
    let mut nips: Vec<u32> = NIPS.into_iter().chain(search).collect();
    nips.sort_unstable();
    let mut document = json!({
        "name": about.name,
        "description": about.description,
        "software": "kukuri-node",
        "version": about.software_version,
        "supported_nips": nips,
        "limitation": {
            "max_message_length": limits.message_bytes_max,
            "max_event_length": limits.events.event_bytes_max,
            "max_subscriptions": limits.subscriptions_max,
            "max_filters": limits.filters_max,
            "max_filter_values": limits.filter_values_max,
            "max_limit": limits.limit_max,
            "default_limit": limits.limit_max,
            "max_subid_length": limits.sub_id_chars_max,
            "max_event_tags": limits.events.tags_max,
            "max_tag_value_length": limits.events.tag_value_bytes_max,
            "max_topics_per_event": limits.events.topics_max,
            "max_connections_per_ip": limits.connections_per_ip_max,
            "max_rows_scanned": limits.scan_rows_max,
            "max_neg_sessions": limits.neg_sessions_max,
            "max_neg_ids": limits.neg_ids_max,
            "created_at_lower_limit": (limits.events.dedupe_retention_days - 1) * 24 * 60 * 60,
            "created_at_upper_limit": limits.events.future_seconds_max,
            "auth_required": relay.auth().enforced(relay.now()),
            "payment_required": false,
            "restricted_writes": relay.config.topicless == Topicless::Reject,
        },
        // Those that NIP-11 has no names for, as the settings call them.
        "limits": limits,
    });
    for (key, value) in [("pubkey", &about.pubkey), ("contact", &about.contact)] {
        if let Some(value) = value {
            document[key] = json!(value);
        }
    }
    document
}

/// A page for browsers. Everything that anyone wrote is escaped.
pub(crate) fn page(relay: &Relay) -> String {
    let about = &relay.config.about;
    // Where people have to say who they are, what is spoken of is not for everyone.
    let open = !relay.auth().enforced(relay.now());
    let carried = relay.carried.borrow();
    let topics = carried.public().filter(|_| open).fold(String::new(), |list, (topic, name)| {
        list + "<li>" + &escape(name) + " <code>" + &escape(topic.as_str()) + "</code></li>"
    });
    let urls: Vec<String> = relay.config.urls.iter().map(|url| escape(url)).collect();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name}</title>\
         <body><h1>{name}</h1><p>{description}</p>\
         <h2>Connect</h2><p>This is a Nostr relay. Add it to your client: <code>{urls}</code></p>\
         <h2>Topics</h2><ul>{topics}</ul></body></html>",
        name = escape(&about.name),
        description = escape(&about.description),
        urls = urls.join("</code>, <code>"),
    )
}

fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
        out
    })
}
