//! What the relay says of itself over plain HTTP, and whether it is true.

use kukuri_core::Limits;
use kukuri_relay::{OpenGate, RelayLimits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{Client, Rig, ago, config, limited, note, note_of, signed, topic};

async fn get(rig: &Rig, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let request =
        format!("GET / HTTP/1.1\r\nHost: relay\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

async fn document(rig: &Rig) -> Value {
    let (head, body) = get(rig, "application/nostr+json").await;
    assert!(head.contains("content-type: application/nostr+json"), "{head}");
    assert!(head.contains("access-control-allow-origin: *"), "{head}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn the_document_tells_the_limits_of_the_table() {
    let rig = Rig::start().await;
    let document = document(&rig).await;
    let limits = config().limits;
    let told = &document["limitation"];
    for (key, limit) in [
        ("max_message_length", limits.message_bytes_max),
        ("max_event_length", limits.events.event_bytes_max),
        ("max_subscriptions", limits.subscriptions_max),
        ("max_filters", limits.filters_max),
        ("max_filter_values", limits.filter_values_max),
        ("max_limit", limits.limit_max),
        ("max_subid_length", limits.sub_id_chars_max),
        ("max_event_tags", limits.events.tags_max),
        ("max_rows_scanned", limits.scan_rows_max),
    ] {
        assert_eq!(told[key], limit, "{key}");
    }
    // Those that NIP-11 has no names for are told by their own.
    assert_eq!(document["limits"], serde_json::to_value(&limits).unwrap());
    assert_eq!(told["auth_required"], false);
    assert_eq!(told["payment_required"], false);
    assert_eq!(document["name"], "<b>rig</b>");
    for key in ["description", "software", "version"] {
        assert!(document[key].is_string(), "{key}: {document}");
    }
    assert_eq!(document["supported_nips"], json!([1, 9, 11, 40, 42, 45, 70, 77]));
}

/// A relay whose limits are small and not the standard ones, and what it tells of them.
async fn with_odd_limits() -> (Rig, impl Fn(&str) -> usize) {
    let events = Limits {
        event_bytes_max: 3_001,
        tags_max: 7,
        tag_value_bytes_max: 77,
        topics_max: 3,
        future_seconds_max: 33,
        dedupe_retention_days: 5,
        ..Limits::STANDARD
    };
    let limits = |l| RelayLimits {
        events,
        message_bytes_max: 5_003,
        filters_max: 4,
        filter_values_max: 9,
        limit_max: 6,
        subscriptions_max: 5,
        sub_id_chars_max: 11,
        connections_per_ip_max: 3,
        ..l
    };
    let rig = Rig::with(limited(limits), OpenGate).await;
    let told = document(&rig).await["limitation"].clone();
    (rig, move |key: &str| usize::try_from(told[key].as_u64().expect(key)).unwrap())
}

/// Asks with filters of which there are so many.
async fn ask(client: &mut Client, sub: &str, filters: usize) {
    let mut message = vec![json!("REQ"), json!(sub)];
    message.extend(vec![json!({"#t": [topic(1)]}); filters]);
    client.send(Value::Array(message)).await;
}

#[tokio::test]
async fn what_it_tells_of_questions_is_what_it_enforces() {
    let (rig, told) = with_odd_limits().await;
    let mut client = rig.client().await;
    let of_values = |values: usize| {
        let kinds: Vec<usize> = (1..values).collect();
        json!({"#t": [topic(1)], "kinds": kinds})
    };
    client.request("s", of_values(told("max_filter_values"))).await;
    let why = client.refused_request("s", of_values(told("max_filter_values") + 1)).await;
    assert!(why.starts_with("invalid: too many values in a filter"), "{why}");
    ask(&mut client, "s", told("max_filters")).await;
    client.until_eose("s").await;
    ask(&mut client, "s", told("max_filters") + 1).await;
    assert!(client.closed("s").await.starts_with("invalid: too many filters"));
    let longest = "é".repeat(told("max_subid_length"));
    client.request(&longest, json!({"#t": [topic(1)]})).await;
    let why = client.refused_request(&(longest + "x"), json!({"#t": [topic(1)]})).await;
    assert!(why.starts_with("invalid: a subscription id has"), "{why}");
    for nth in 1..told("max_subscriptions") {
        client.request(&nth.to_string(), json!({"#t": [topic(1)]})).await;
    }
    let why = client.refused_request("more", json!({"#t": [topic(1)]})).await;
    assert!(why.starts_with("error: too many subscriptions"), "{why}");
}

#[tokio::test]
async fn what_it_tells_of_answers_and_connections_is_what_it_enforces() {
    let (rig, told) = with_odd_limits().await;
    let mut client = rig.client().await;
    let (max, default) = (told("max_limit"), told("default_limit"));
    for nth in 0..=max {
        client.publish_ok(&signed(&note(&nth.to_string()))).await;
    }
    for (limit, found) in [(max - 1, max - 1), (max, max), (max + 1, max)] {
        let filter = json!({"#t": [topic(1)], "limit": limit});
        assert_eq!(client.stored(filter).await.len(), found, "{limit}");
    }
    assert_eq!(client.stored(json!({"#t": [topic(1)]})).await.len(), default);
    let mut others = Vec::new();
    for _ in 1..told("max_connections_per_ip") {
        others.push(rig.client().await);
    }
    assert_eq!(rig.client_from([127, 0, 0, 1], None).await.err(), Some(429));
}

#[tokio::test]
async fn what_it_tells_of_events_is_what_it_enforces() {
    let (rig, told) = with_odd_limits().await;
    let mut client = rig.client().await;
    let of_tags = |tags: usize| (1..tags).fold(note(""), |note, nth| note.tag("x", nth));
    let of_value = |bytes: usize| note("").tag("x", "x".repeat(bytes));
    let of_topics = |topics: usize| (1..topics).fold(note(""), |note, _| note.tag("t", topic(2)));
    let of_age = |seconds: usize| ago(i64::try_from(seconds).unwrap(), note(""));
    let in_future = |seconds: usize| ago(-i64::try_from(seconds).unwrap(), note(""));
    for (key, of, why) in [
        ("max_event_length", &note_of as &dyn Fn(usize) -> _, "invalid: event too large"),
        ("max_event_tags", &of_tags, "invalid: too many tags"),
        ("max_tag_value_length", &of_value, "invalid: tag value too long"),
        ("max_topics_per_event", &of_topics, "invalid: too many topics"),
        ("created_at_lower_limit", &of_age, "invalid: created_at too old"),
        ("created_at_upper_limit", &in_future, "invalid: created_at too far in the future"),
    ] {
        client.publish_ok(&signed(&of(told(key)))).await;
        client.refused(&signed(&of(told(key) + 1)), why).await;
    }
    let of_size = |bytes: usize| format!("{:bytes$}", r#"["CLOSE"]"#);
    client.send_text(of_size(told("max_message_length"))).await;
    let why = "invalid: CLOSE has the wrong number of parts";
    assert_eq!(client.expect().await, json!(["NOTICE", why]));
    client.send_text(of_size(told("max_message_length") + 1)).await;
    let why = "invalid: a message that cannot be received";
    assert_eq!(client.expect().await, json!(["NOTICE", why]));
    assert_eq!(client.next().await, None, "the connection ends");
}

#[tokio::test]
async fn browsers_get_a_page_in_which_nothing_is_markup() {
    let rig = Rig::start().await;
    let (head, body) = get(&rig, "text/html").await;
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(body.contains("&lt;b&gt;rig&lt;/b&gt;") && !body.contains("<b>"), "{body}");
    assert!(body.contains("kukuri:global") && body.contains("ws://relay.example"), "{body}");
}
