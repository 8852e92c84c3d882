//! What clients say, and how it is read. Whatever they send gets an answer: what cannot be read says
//! which one.

use std::collections::BTreeSet;

use kukuri_event::Filter;
use serde_json::value::RawValue;

/// The name a client gives a subscription, its own and this connection's only.
pub type SubId = String;

/// A message of the right shape.
#[derive(Debug)]
pub enum ClientMessage<'a> {
    /// The event's text, to be screened.
    Event(&'a str),
    Req(Question),
    Count(Question),
    Close(SubId),
    Auth(&'a str),
    Neg(NegMessage),
}

/// A part of a reconciliation (NIP-77). Their names are apart from those of subscriptions.
#[derive(Debug)]
pub enum NegMessage {
    Open { sub: SubId, filter: Box<Filter>, query: Vec<u8> },
    Msg { sub: SubId, query: Vec<u8> },
    Close(SubId),
}

/// A group of filters, and where to go on from if the client has been here before.
#[derive(Debug)]
pub struct Question {
    pub sub: SubId,
    pub filters: Vec<Filter>,
    pub after: Option<String>,
    /// The words of NIP-50.
    pub search: Option<String>,
}

/// What to answer to a message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    Notice(String),
    Req { sub: SubId, why: String },
    Count { sub: SubId, why: String },
    Neg { sub: SubId, why: String },
}

impl<'a> ClientMessage<'a> {
    /// No more than `filters_max` filters are looked at.
    pub fn parse(text: &'a str, filters_max: usize) -> Result<Self, Unreadable> {
        let parts: Vec<&'a RawValue> = serde_json::from_str(text)
            .map_err(|_| notice("a message is a JSON array that begins with its name"))?;
        let [name, rest @ ..] = &parts[..] else {
            return Err(notice("an empty message"));
        };
        match (string(name).as_deref(), rest) {
            (Some("EVENT"), [event]) => Ok(Self::Event(event.get())),
            (Some("AUTH"), [event]) => Ok(Self::Auth(event.get())),
            (Some("CLOSE"), [sub]) => Ok(Self::Close(sub_id(sub)?)),
            (Some("REQ"), [sub, filters @ ..]) => {
                let sub = sub_id(sub)?;
                let question = question(&sub, filters, filters_max).map(Self::Req);
                question.map_err(|why| Unreadable::Req { sub, why })
            }
            (Some("COUNT"), [sub, filters @ ..]) => {
                let sub = sub_id(sub)?;
                let question = question(&sub, filters, filters_max).map(Self::Count);
                question.map_err(|why| Unreadable::Count { sub, why })
            }
            (Some("NEG-OPEN"), [sub, filter, query]) => {
                let sub = sub_id(sub)?;
                let read = neg_filter(filter).and_then(|filter| Ok((filter, neg_query(query)?)));
                match read {
                    Ok((filter, query)) => Ok(Self::Neg(NegMessage::Open { sub, filter, query })),
                    Err(why) => Err(Unreadable::Neg { sub, why }),
                }
            }
            (Some("NEG-MSG"), [sub, query]) => {
                let sub = sub_id(sub)?;
                match neg_query(query) {
                    Ok(query) => Ok(Self::Neg(NegMessage::Msg { sub, query })),
                    Err(why) => Err(Unreadable::Neg { sub, why }),
                }
            }
            (Some("NEG-CLOSE"), [sub]) => Ok(Self::Neg(NegMessage::Close(sub_id(sub)?))),
            (Some(name), _) if KNOWN.contains(&name) => {
                Err(notice(&format!("{name} has the wrong number of parts")))
            }
            _ => Err(notice(
                "unknown message: EVENT, REQ, CLOSE, COUNT, AUTH, NEG-OPEN, NEG-MSG and NEG-CLOSE are known",
            )),
        }
    }
}

const KNOWN: [&str; 8] =
    ["EVENT", "AUTH", "CLOSE", "REQ", "COUNT", "NEG-OPEN", "NEG-MSG", "NEG-CLOSE"];

fn neg_filter(text: &RawValue) -> Result<Box<Filter>, String> {
    let filter = Filter::parse(text.get());
    filter.map(Box::new).map_err(|error| format!("invalid: bad filter: {error}"))
}

fn neg_query(text: &RawValue) -> Result<Vec<u8>, String> {
    let bytes = string(text).and_then(|text| hex::decode(text).ok());
    bytes.ok_or_else(|| "invalid: a reconciliation is spoken in hex".into())
}

fn notice(why: &str) -> Unreadable {
    Unreadable::Notice(format!("invalid: {why}"))
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn sub_id(value: &RawValue) -> Result<SubId, Unreadable> {
    string(value).ok_or_else(|| notice("a subscription id is a string"))
}

fn question(sub: &str, filters: &[&RawValue], filters_max: usize) -> Result<Question, String> {
    if filters.len() > filters_max {
        return Err(format!("invalid: too many filters, at most {filters_max}"));
    }
    let mut afters = BTreeSet::new();
    let mut search = None;
    let mut read = Vec::with_capacity(filters.len());
    for text in filters {
        let mut after = None;
        let filter = Filter::parse_with(text.get(), |key, value| {
            let field = match key {
                "after" => &mut after,
                "search" => &mut search,
                _ => return false,
            };
            *field = string(value);
            field.is_some()
        });
        read.push(filter.map_err(|error| format!("invalid: bad filter: {error}"))?);
        afters.insert(after);
    }
    if search.is_some() && read.len() > 1 {
        return Err("invalid: a search has one filter".into());
    }
    match afters.len() {
        0 => Err("invalid: no filter".into()),
        1 => {
            let after = afters.pop_first().flatten();
            Ok(Question { sub: sub.to_owned(), filters: read, after, search })
        }
        _ => Err("invalid: all filters need the same after".into()),
    }
}

/// The id an event says it has, for the answer to one that is not accepted.
pub fn claimed_id(event: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Claim {
        id: String,
    }
    // A struct would be read from a list, too.
    if !event.trim_start().starts_with('{') {
        return None;
    }
    serde_json::from_str::<Claim>(event).ok().map(|claim| claim.id)
}
