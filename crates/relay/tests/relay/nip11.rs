//! What the relay says of itself over plain HTTP.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{Rig, config};

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

#[tokio::test]
async fn the_document_tells_the_limits_that_are_enforced() {
    let rig = Rig::start().await;
    let (head, body) = get(&rig, "application/nostr+json").await;
    assert!(head.contains("content-type: application/nostr+json"), "{head}");
    assert!(head.contains("access-control-allow-origin: *"), "{head}");
    let document: Value = serde_json::from_str(&body).unwrap();
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
    assert_eq!(told["auth_required"], false);
}

#[tokio::test]
async fn browsers_get_a_page_in_which_nothing_is_markup() {
    let rig = Rig::start().await;
    let (head, body) = get(&rig, "text/html").await;
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(body.contains("&lt;b&gt;rig&lt;/b&gt;") && !body.contains("<b>"), "{body}");
    assert!(body.contains("kukuri:global") && body.contains("ws://relay.example"), "{body}");
}
