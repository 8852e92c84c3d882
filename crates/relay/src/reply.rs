//! What the node says.

use kukuri_core::Cursor;
use serde_json::json;

pub fn ok(id: &str, accepted: bool, message: &str) -> String {
    json!(["OK", id, accepted, message]).to_string()
}

pub fn closed(sub: &str, why: &str) -> String {
    json!(["CLOSED", sub, why]).to_string()
}

pub fn notice(why: &str) -> String {
    json!(["NOTICE", why]).to_string()
}

pub fn auth(challenge: &str) -> String {
    json!(["AUTH", challenge]).to_string()
}

pub fn count(sub: &str, count: usize) -> String {
    json!(["COUNT", sub, { "count": count }]).to_string()
}

/// The end of what is stored; with the place to go on from for clients that resume.
pub fn eose(sub: &str, cursor: Option<Cursor>) -> String {
    match cursor {
        None => json!(["EOSE", sub]).to_string(),
        Some(cursor) => json!(["EOSE", sub, { "cursor": write_cursor(cursor) }]).to_string(),
    }
}

/// An event for a subscription. Its JSON is canonical already and goes in as it is.
pub fn event(sub: &str, json: &str, cursor: Option<Cursor>) -> String {
    let mut text = String::with_capacity(json.len() + sub.len() + 64);
    text.push_str(r#"["EVENT","#);
    text.push_str(&serde_json::Value::from(sub).to_string());
    text.push(',');
    text.push_str(json);
    if let Some(cursor) = cursor {
        text.push(',');
        text.push_str(&json!({ "cursor": write_cursor(cursor) }).to_string());
    }
    text.push(']');
    text
}

/// Opaque to clients.
pub fn write_cursor(cursor: Cursor) -> String {
    format!("{:x}.{:x}", cursor.epoch.0, cursor.seq.0)
}

pub fn read_cursor(text: &str) -> Option<Cursor> {
    let (epoch, seq) = text.split_once('.')?;
    let number = |text: &str| i64::from_str_radix(text, 16).ok().filter(|number| *number >= 0);
    Some(Cursor { epoch: kukuri_core::Epoch(number(epoch)?), seq: kukuri_core::Seq(number(seq)?) })
}
