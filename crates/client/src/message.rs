//! The wire: what relays say, and what is said to them.

use kukuri_event::{EventId, Filter};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Reason;

/// A place in a relay's feed. Only the relay knows what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(pub String);

impl Cursor {
    /// Before everything that is kept.
    pub fn floor() -> Self {
        Self(String::new())
    }
}

/// The name of one question on the wire. A number is used once, so that what is still said about an
/// earlier question is not taken for an answer to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuestionId(pub u64);

/// What a relay says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RelayMessage<'a> {
    Event { question: QuestionId, event: &'a str, cursor: Option<Cursor> },
    Eose { question: QuestionId, cursor: Option<Cursor> },
    Closed { question: QuestionId, reason: Reason },
    Ok { id: EventId, accepted: bool, message: Reason },
    Auth { challenge: String },
    Notice { text: String },
    NegMsg { question: QuestionId, answer: String },
    NegErr { question: QuestionId, reason: Reason },
}

impl<'a> RelayMessage<'a> {
    /// Whether a relay that says it does what it is there for.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Event { .. } | Self::Eose { .. } | Self::Ok { .. })
    }

    /// `None` for what is not known, or about nothing that was asked.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
        let (name, rest) = parts.split_first()?;
        match (string(name)?.as_str(), rest) {
            ("EVENT", [sub, event, more @ ..]) => Some(Self::Event {
                question: question(sub)?,
                event: event.get(),
                cursor: cursor(more.first()),
            }),
            ("EOSE", [sub, more @ ..]) => {
                Some(Self::Eose { question: question(sub)?, cursor: cursor(more.first()) })
            }
            ("CLOSED", [sub, more @ ..]) => {
                Some(Self::Closed { question: question(sub)?, reason: reason(more.first()) })
            }
            ("OK", [id, accepted, more @ ..]) => Some(Self::Ok {
                id: EventId::parse(&string(id)?).ok()?,
                accepted: serde_json::from_str(accepted.get()).ok()?,
                message: reason(more.first()),
            }),
            ("AUTH", [challenge]) => Some(Self::Auth { challenge: string(challenge)? }),
            ("NOTICE", [text]) => Some(Self::Notice { text: string(text)? }),
            ("NEG-MSG", [sub, answer]) => {
                Some(Self::NegMsg { question: question(sub)?, answer: string(answer)? })
            }
            ("NEG-ERR", [sub, more @ ..]) => {
                Some(Self::NegErr { question: question(sub)?, reason: reason(more.first()) })
            }
            _ => None,
        }
    }
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn question(value: &RawValue) -> Option<QuestionId> {
    string(value)?.parse().ok().map(QuestionId)
}

fn reason(value: Option<&&RawValue>) -> Reason {
    Reason(value.and_then(|value| string(value)).unwrap_or_default())
}

fn cursor(value: Option<&&RawValue>) -> Option<Cursor> {
    let more: Value = serde_json::from_str(value?.get()).ok()?;
    more.get("cursor")?.as_str().map(|cursor| Cursor(cursor.to_owned()))
}

/// The event's text goes in as it is.
pub(crate) fn event(text: &str) -> String {
    format!(r#"["EVENT",{text}]"#)
}

pub(crate) fn auth(text: &str) -> String {
    format!(r#"["AUTH",{text}]"#)
}

pub(crate) fn close(question: QuestionId) -> String {
    json!(["CLOSE", question.0.to_string()]).to_string()
}

/// Opens a reconciliation (NIP-77), whose messages are written in hex.
pub(crate) fn neg_open(question: QuestionId, filter: &Filter, first: &[u8]) -> String {
    let (number, filter) = (question.0, filter.to_json());
    format!(r#"["NEG-OPEN","{number}",{filter},"{}"]"#, hex::encode(first))
}

pub(crate) fn neg_msg(question: QuestionId, query: &[u8]) -> String {
    format!(r#"["NEG-MSG","{}","{}"]"#, question.0, hex::encode(query))
}

pub(crate) fn neg_close(question: QuestionId) -> String {
    json!(["NEG-CLOSE", question.0.to_string()]).to_string()
}

/// A question, from a place in the feed on if one is given.
pub(crate) fn req(question: QuestionId, filters: &[Filter], after: Option<&Cursor>) -> String {
    let mut text = format!(r#"["REQ","{}""#, question.0);
    for filter in filters {
        text.push(',');
        let filter = filter.to_json();
        match (after, filter.strip_suffix('}')) {
            (Some(Cursor(after)), Some(open)) => {
                let comma = if open == "{" { "" } else { "," };
                text.push_str(&format!(r#"{open}{comma}"after":{}}}"#, Value::from(after.clone())));
            }
            _ => text.push_str(&filter),
        }
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_relays_say_is_read() {
        let id = EventId::from_bytes([7; 32]);
        let ok = format!(r#"["OK","{id}",false,"blocked: no"]"#);
        let question = QuestionId(3);
        let cursor = Some(Cursor("1.2".to_owned()));
        let reason = |text: &str| Reason(text.to_owned());
        for (text, message) in [
            (
                r#"["EVENT","3",{"a":1},{"cursor":"1.2"}]"#,
                RelayMessage::Event { question, event: r#"{"a":1}"#, cursor: cursor.clone() },
            ),
            (r#"["EVENT","3",{}]"#, RelayMessage::Event { question, event: "{}", cursor: None }),
            (r#"["EOSE","3",{"cursor":"1.2"}]"#, RelayMessage::Eose { question, cursor }),
            (r#"["EOSE","3"]"#, RelayMessage::Eose { question, cursor: None }),
            (
                r#"["CLOSED","3","error: x"]"#,
                RelayMessage::Closed { question, reason: reason("error: x") },
            ),
            (&ok, RelayMessage::Ok { id, accepted: false, message: reason("blocked: no") }),
            (r#"["AUTH","c"]"#, RelayMessage::Auth { challenge: "c".to_owned() }),
            (r#"["NOTICE","n"]"#, RelayMessage::Notice { text: "n".to_owned() }),
            (r#"["NEG-MSG","3","61"]"#, RelayMessage::NegMsg { question, answer: "61".to_owned() }),
            (
                r#"["NEG-ERR","3","blocked: no"]"#,
                RelayMessage::NegErr { question, reason: reason("blocked: no") },
            ),
        ] {
            assert_eq!(RelayMessage::parse(text), Some(message), "{text}");
        }
        for text in ["", "{}", "[]", r#"["EVENT"]"#, r#"["EOSE","x"]"#, r#"["OK","x",true]"#] {
            assert_eq!(RelayMessage::parse(text), None, "{text}");
        }
    }

    #[test]
    fn questions_go_on_from_a_cursor() {
        let filters = [Filter::default(), Filter::parse(r#"{"kinds":[1]}"#).unwrap()];
        let after = Cursor("1.2".to_owned());
        assert_eq!(req(QuestionId(1), &filters, None), r#"["REQ","1",{},{"kinds":[1]}]"#);
        assert_eq!(
            req(QuestionId(1), &filters, Some(&after)),
            r#"["REQ","1",{"after":"1.2"},{"kinds":[1],"after":"1.2"}]"#
        );
    }
}
