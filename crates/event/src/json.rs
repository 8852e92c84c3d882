//! Reading an event from JSON by strict rules, and writing the one form we store and send.
//!
//! The rules: an object with the seven fields exactly once each; fields we do not know are dropped;
//! hex in lower case; `created_at` and `kind` as plain integers in range (no sign, fraction or
//! exponent); tags a list of non-empty lists of strings; strings are any Unicode text, NUL included,
//! but no lone surrogates. What is written is built from the parsed value alone, so nothing else gets
//! in.

use std::borrow::Cow;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{Event, EventId, Kind, Pubkey, Signature, Tag, Tags, UnixSeconds};

/// Why a text is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("{0}")]
    Json(String),
    #[error("{field} must be {digits} lowercase hex digits")]
    Hex { field: &'static str, digits: usize },
    #[error("{field} is out of range")]
    Range { field: &'static str },
    #[error("a tag has no name")]
    EmptyTag,
}

/// A parser message may quote what it read; this keeps it short enough for a reply and a log line.
const JSON_MESSAGE_CHARS_MAX: usize = 160;

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    pubkey: Cow<'a, str>,
    created_at: u64,
    kind: u64,
    tags: Vec<Vec<String>>,
    content: String,
    #[serde(borrow)]
    sig: Cow<'a, str>,
}

pub(crate) fn parse(text: &str) -> Result<Event, ParseError> {
    // Fields are named: serde would also take a list of the seven values in their order.
    if !text.trim_ascii_start().starts_with('{') {
        return Err(ParseError::Json("an event is an object".to_owned()));
    }
    let wire: Wire<'_> = serde_json::from_str(text).map_err(|error| {
        ParseError::Json(error.to_string().chars().take(JSON_MESSAGE_CHARS_MAX).collect())
    })?;
    let created_at =
        i64::try_from(wire.created_at).map_err(|_| ParseError::Range { field: "created_at" })?;
    let kind = u16::try_from(wire.kind).map_err(|_| ParseError::Range { field: "kind" })?;
    let tags: Option<Vec<Tag>> = wire.tags.into_iter().map(Tag::new).collect();
    Ok(Event {
        id: EventId::parse(&wire.id).map_err(|_| ParseError::Hex { field: "id", digits: 64 })?,
        pubkey: Pubkey::parse(&wire.pubkey)
            .map_err(|_| ParseError::Hex { field: "pubkey", digits: 64 })?,
        created_at: UnixSeconds(created_at),
        kind: Kind(kind),
        tags: Tags::new(tags.ok_or(ParseError::EmptyTag)?),
        content: wire.content,
        sig: Signature::parse(&wire.sig)
            .map_err(|_| ParseError::Hex { field: "sig", digits: 128 })?,
    })
}

/// The id that NIP-01 gives to the event's values: SHA-256 of `[0,pubkey,created_at,kind,tags,content]`.
pub(crate) fn hash(event: &Event) -> EventId {
    let mut out = String::with_capacity(160 + event.content.len() + 80 * event.tags.len());
    out.push_str("[0,\"");
    push_hex(&mut out, event.pubkey.as_bytes());
    out.push_str("\",");
    push_number(&mut out, event.created_at.0);
    out.push(',');
    push_number(&mut out, i64::from(event.kind.0));
    out.push(',');
    push_tags(&mut out, &event.tags);
    out.push(',');
    push_string(&mut out, &event.content);
    out.push(']');
    EventId::from_bytes(Sha256::digest(out.as_bytes()).into())
}

/// The seven fields in the order of NIP-01, without blanks.
pub(crate) fn write(event: &Event) -> String {
    let mut out = String::with_capacity(400 + event.content.len() + 80 * event.tags.len());
    out.push_str("{\"id\":\"");
    push_hex(&mut out, event.id.as_bytes());
    out.push_str("\",\"pubkey\":\"");
    push_hex(&mut out, event.pubkey.as_bytes());
    out.push_str("\",\"created_at\":");
    push_number(&mut out, event.created_at.0);
    out.push_str(",\"kind\":");
    push_number(&mut out, i64::from(event.kind.0));
    out.push_str(",\"tags\":");
    push_tags(&mut out, &event.tags);
    out.push_str(",\"content\":");
    push_string(&mut out, &event.content);
    out.push_str(",\"sig\":\"");
    push_hex(&mut out, event.sig.as_bytes());
    out.push_str("\"}");
    out
}

/// A buffer on the stack: three of these are written for every event that is stored.
fn push_hex(out: &mut String, bytes: &[u8]) {
    let mut digits = [0; 128];
    let digits = &mut digits[..2 * bytes.len()];
    hex::encode_to_slice(bytes, digits).expect("the buffer has two digits for each byte");
    out.push_str(std::str::from_utf8(digits).expect("hex digits are ASCII"));
}

fn push_number(out: &mut String, number: i64) {
    use std::fmt::Write;
    write!(out, "{number}").expect("writing to a String does not fail");
}

fn push_tags(out: &mut String, tags: &Tags) {
    out.push('[');
    for (nth, tag) in tags.iter().enumerate() {
        out.push_str(if nth == 0 { "[" } else { ",[" });
        for (nth, field) in tag.fields().iter().enumerate() {
            if nth > 0 {
                out.push(',');
            }
            push_string(out, field);
        }
        out.push(']');
    }
    out.push(']');
}

/// The escapes of NIP-01, and `\u00xx` for the other control characters, as every implementation
/// in use writes them; everything else verbatim.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0x00..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        if escape.is_empty() {
            use std::fmt::Write;
            write!(out, "\\u{byte:04x}").expect("writing to a String does not fail");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}
