//! What the node says.

use std::borrow::Cow;

use kukuri_core::{Cursor, Epoch, Seq};
use serde_json::json;

pub fn ok(id: &str, accepted: bool, message: &str) -> String {
    json!(["OK", id, accepted, message]).to_string()
}

pub fn closed(sub: &str, why: &str) -> String {
    closed_of(&quoted(sub), why)
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

pub fn neg_msg(sub: &str, answer: &[u8]) -> String {
    json!(["NEG-MSG", sub, hex::encode(answer)]).to_string()
}

pub fn neg_err(sub: &str, why: &str) -> String {
    json!(["NEG-ERR", sub, why]).to_string()
}

/// The name of a subscription as JSON, for all that is said about it from now on.
pub fn quoted(sub: &str) -> String {
    serde_json::Value::from(sub).to_string()
}

/// `sub` is quoted, here and below.
pub fn closed_of(sub: &str, why: &str) -> String {
    format!(r#"["CLOSED",{sub},{}]"#, quoted(why))
}

/// The end of what is stored; with the place to go on from for clients that resume.
pub fn eose(sub: &str, cursor: Option<Cursor>) -> String {
    format!(r#"["EOSE",{sub}{}"#, end(cursor))
}

/// An event in parts, so that its JSON, which is canonical already, goes in as it is.
pub fn event<'a>(sub: &'a str, json: &'a str, end: &'a str) -> [&'a str; 5] {
    [r#"["EVENT","#, sub, ",", json, end]
}

/// How a message with a cursor ends.
pub fn end(cursor: Option<Cursor>) -> Cow<'static, str> {
    match cursor {
        None => "]".into(),
        Some(cursor) => format!(r#",{{"cursor":"{}"}}]"#, write_cursor(cursor)).into(),
    }
}

/// Opaque to clients. An epoch is any 64 bits, and a negative one is written as its bits.
pub fn write_cursor(cursor: Cursor) -> String {
    format!("{:x}.{:x}", cursor.epoch.0, cursor.seq.0)
}

pub fn read_cursor(text: &str) -> Option<Cursor> {
    let (epoch, seq) = text.split_once('.')?;
    let bits = |text: &str| u64::from_str_radix(text, 16).ok();
    let (epoch, seq) = (Epoch(bits(epoch)?.cast_signed()), Seq(bits(seq)?.try_into().ok()?));
    Some(Cursor { epoch, seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cursor_can_be_read_again() {
        for epoch in [i64::MIN, -1, 0, 1, i64::MAX].map(Epoch) {
            for seq in [0, 1, i64::MAX].map(Seq) {
                let cursor = Cursor { epoch, seq };
                assert_eq!(read_cursor(&write_cursor(cursor)), Some(cursor));
            }
        }
    }

    #[test]
    fn what_is_no_cursor_is_not_read() {
        for text in ["", ".", "1.", ".1", "1.-1", "-1.1", "1.1.1", "g.1", "1.8000000000000000"] {
            assert_eq!(read_cursor(text), None, "{text}");
        }
        assert_eq!(read_cursor("10000000000000000.1"), None, "an epoch has 64 bits");
    }
}
