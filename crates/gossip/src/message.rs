//! What a swarm delivers, up to the event: size, form, admission. Pure: the time is in the [`Door`].

use kukuri_core::admission::{Door, Rate, Screened, screen};
use kukuri_core::{Rejection, TopicId};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::{Envelope, EnvelopeError, Subject};
use crate::time::parse_rfc3339;

/// What an envelope, or a date that is written out, may add to an event.
pub const WRAPPING_BYTES_MAX: usize = 2048;

/// Why a message holds no event that could be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("larger than any event")]
    TooLarge,
    #[error("no JSON, and no envelope: {0}")]
    Envelope(EnvelopeError),
    /// Something of the earlier clients' own, such as a heartbeat.
    #[error("no event")]
    OtherSubject,
    #[error("not UTF-8")]
    NotText,
}

/// Why a message is not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unreadable(Unreadable),
    Rejected(Rejection),
    /// It does not carry the topic of the swarm that it came through.
    ForeignTopic,
    /// NIP-70: only its author may bring it.
    Protected,
}

/// The event's JSON, in an envelope or without one. The size is looked at before anything else.
pub fn text(bytes: &[u8], event_bytes_max: usize) -> Result<&str, Unreadable> {
    if bytes.len() > event_bytes_max.saturating_add(WRAPPING_BYTES_MAX) {
        return Err(Unreadable::TooLarge);
    }
    let json = match bytes.first() {
        Some(b'{') => bytes,
        _ => {
            let envelope = Envelope::decode(bytes).map_err(Unreadable::Envelope)?;
            if envelope.subject != Subject::NostrEvent {
                return Err(Unreadable::OtherSubject);
            }
            envelope.payload
        }
    };
    // What is too large as it came may be an event with a written-out date, but not by much.
    std::str::from_utf8(json).map_err(|_| Unreadable::NotText)
}

/// All checks that need no signature. The event must carry the topic of its swarm.
pub fn read(bytes: &[u8], swarm: &TopicId, door: &Door<'_>) -> Result<Screened, Refusal> {
    let text = text(bytes, door.limits.event_bytes_max).map_err(Refusal::Unreadable)?;
    let screened = match screen(text, Rate::Within, door) {
        Err(rejection @ (Rejection::Malformed(_) | Rejection::TooLarge)) => match redated(text) {
            Some(text) => screen(&text, Rate::Within, door),
            None => Err(rejection),
        },
        screened => screened,
    };
    let screened = screened.map_err(Refusal::Rejected)?;
    if !screened.topics().contains(swarm) {
        return Err(Refusal::ForeignTopic);
    }
    if is_protected(screened.event()) {
        return Err(Refusal::Protected);
    }
    Ok(screened)
}

pub(crate) fn is_protected(event: &kukuri_event::Event) -> bool {
    event.tags().iter().any(|tag| tag.name() == "-")
}

/// The event with its date as a number, if it was written out (RFC 3339). The id was made with the number.
fn redated(text: &str) -> Option<String> {
    #[derive(serde::Deserialize, serde::Serialize)]
    struct Dated<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        #[serde(borrow)]
        pubkey: &'a RawValue,
        created_at: Value,
        #[serde(borrow)]
        kind: &'a RawValue,
        #[serde(borrow)]
        tags: &'a RawValue,
        #[serde(borrow)]
        content: &'a RawValue,
        #[serde(borrow)]
        sig: &'a RawValue,
    }
    // A list of the seven would be read as well, and is no event.
    let object = text.trim_ascii_start().starts_with('{');
    let mut event: Dated<'_> = serde_json::from_str(text).ok().filter(|_| object)?;
    let Value::String(date) = &event.created_at else { return None };
    event.created_at = parse_rfc3339(date)?.0.into();
    serde_json::to_string(&event).ok()
}
