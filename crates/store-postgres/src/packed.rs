//! How events and tag values are stored: without what is stored already, and hex digits as bytes.
//! The server copies every byte four times until it is durable, so half the bytes are worth some
//! care. Both forms lead back to exactly what went in.

use kukuri_event::{Event, EventId, Kind, Pubkey, Signature, UnixSeconds};

/// The fields of an event that have columns of their own.
pub(crate) struct Fields {
    pub id: EventId,
    pub pubkey: Pubkey,
    pub created_at: UnixSeconds,
    pub kind: Kind,
    pub sig: Signature,
}

impl Fields {
    pub fn of(event: &Event) -> Self {
        Self {
            id: event.id(),
            pubkey: event.pubkey(),
            created_at: event.created_at(),
            kind: event.kind(),
            sig: event.sig(),
        }
    }

    /// What the canonical JSON of these fields holds besides: tags and content. `None` if it is not
    /// canonical.
    pub fn strip<'a>(&self, json: &'a str) -> Option<&'a str> {
        // Where things stand follows from the lengths of two numbers.
        let numbers = self.created_at.0.to_string().len() + self.kind.0.to_string().len();
        let start = ID.len() + PUBKEY.len() + CREATED_AT.len() + KIND.len() + 128 + numbers;
        let end = json.len().checked_sub(SIG.len() + 128 + END.len())?;
        let body = json.get(start..end)?.strip_prefix(TAGS)?;
        (json.starts_with(ID) && json.get(end..)?.starts_with(SIG)).then_some(body)
    }

    /// The canonical JSON again.
    pub fn unstrip(&self, body: &str) -> String {
        let mut json = String::with_capacity(body.len() + JSON_AROUND_BYTES);
        json.push_str(ID);
        push_hex(&mut json, self.id.as_bytes());
        json.push_str(PUBKEY);
        push_hex(&mut json, self.pubkey.as_bytes());
        json.push_str(CREATED_AT);
        json.push_str(&self.created_at.0.to_string());
        json.push_str(KIND);
        json.push_str(&self.kind.0.to_string());
        json.push_str(TAGS);
        json.push_str(body);
        json.push_str(SIG);
        push_hex(&mut json, self.sig.as_bytes());
        json.push_str(END);
        json
    }
}

const ID: &str = "{\"id\":\"";
const PUBKEY: &str = "\",\"pubkey\":\"";
const CREATED_AT: &str = "\",\"created_at\":";
const KIND: &str = ",\"kind\":";
const TAGS: &str = ",\"tags\":";
const SIG: &str = ",\"sig\":\"";
const END: &str = "\"}";

/// More than stands around the body of any event.
const JSON_AROUND_BYTES: usize = 360;

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 128];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    out.push_str(std::str::from_utf8(&digits[..2 * bytes.len()]).expect("hex digits are ASCII"));
}

const AS_IS: u8 = 0;
const HEX: u8 = 1;

/// The value of a tag as a column holds it. Most are ids and keys.
pub(crate) fn tag_value(value: &str) -> Vec<u8> {
    match EventId::parse(value) {
        Ok(id) => [&[HEX], id.as_bytes().as_slice()].concat(),
        Err(_) => [&[AS_IS], value.as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stripped_comes_back() {
        let json = format!(
            r#"{{"id":"{}","pubkey":"{}","created_at":1700000000,"kind":30023,"tags":[["t","x"],["d","\u0000\",\"sig\":\""]],"content":"\"}}名","sig":"{}"}}"#,
            "0a".repeat(32),
            "0b".repeat(32),
            "0c".repeat(64)
        );
        let event = Event::parse(&json).unwrap();
        assert_eq!(event.to_json(), json);
        let fields = Fields::of(&event);
        let body = fields.strip(&json).unwrap();
        assert_eq!(body, r#"[["t","x"],["d","\u0000\",\"sig\":\""]],"content":"\"}名""#);
        assert_eq!(fields.unstrip(body), json);
        for other in [json.replace("1700000000", "1.7e9"), json.replace(":", ": "), "{}".into()] {
            assert_eq!(fields.strip(&other), None);
        }
    }

    #[test]
    fn no_two_values_are_stored_alike() {
        let hex = "0a".repeat(32);
        let values = ["", "a", &hex, &hex.to_uppercase(), &hex[1..], "\u{1}", "\0"];
        let stored: std::collections::BTreeSet<Vec<u8>> =
            values.iter().map(|value| tag_value(value)).collect();
        assert_eq!(stored.len(), values.len());
        assert_eq!(tag_value(&hex).len(), 33);
    }
}
