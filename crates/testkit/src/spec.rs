//! The effective view, by definition: a function of the set of events that came, of the time, and of
//! the topics that are handled. Whatever order events come in, this is what must be visible (L4).
//!
//! It is written from the design's words, over plain JSON, and shares no code with the rules it judges.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The visible events by id, with the topics they are visible in.
pub type Effective = BTreeMap<String, BTreeSet<String>>;

/// What the definition speaks about.
pub struct Spec<'a> {
    /// The JSON of every event that came, in any order, as often as one likes.
    pub events: Vec<&'a str>,
    /// Seconds; the same for all of them.
    pub now: i64,
    pub handled: BTreeSet<String>,
}

/// An event as its JSON says it.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: String,
    pub pubkey: String,
    pub created_at: i64,
    pub kind: u64,
    pub tags: Vec<Vec<String>>,
}

/// What versions of an event share: kind, author, `d`.
pub type Key<'a> = (u64, &'a str, &'a str);

impl Spec<'_> {
    /// # Panics
    /// When a text is no event.
    pub fn effective(&self) -> Effective {
        let events: Vec<Event> = self.events.iter().map(|text| Event::read(text)).collect();
        let seen: Vec<&Event> = events.iter().filter(|event| self.admissible(event)).collect();
        let mut versions: BTreeMap<Key<'_>, Vec<&Event>> = BTreeMap::new();
        let mut requests: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in &seen {
            if let Some(key) = event.key() {
                versions.entry(key).or_default().push(event);
            }
            if event.kind == 5 {
                requests.entry(&event.pubkey).or_default().push(event);
            }
        }
        let visible = seen.iter().filter(|event| {
            let wins = event.key().is_none_or(|key| winner(&versions[&key]) == event.id);
            let requests = requests.get(event.pubkey.as_str()).map_or(&[][..], Vec::as_slice);
            wins && !deleted(requests, event)
        });
        visible.map(|event| (event.id.clone(), self.links(event))).collect()
    }

    /// Whether the event passes the doors and is one that is stored.
    fn admissible(&self, event: &Event) -> bool {
        let ephemeral = (20_000..30_000).contains(&event.kind);
        let expired = event.expiration().is_some_and(|end| end <= self.now);
        !ephemeral && !expired && !self.links(event).is_empty()
    }

    fn links(&self, event: &Event) -> BTreeSet<String> {
        let topics = event.values("t").map(str::to_owned).collect::<BTreeSet<_>>();
        topics.intersection(&self.handled).cloned().collect()
    }
}

/// The greatest version that came, deleted or not: the newest, and of equally new ones the one with
/// the smallest id.
fn winner<'a>(versions: &[&'a Event]) -> &'a str {
    let winner = versions.iter().max_by_key(|event| (event.created_at, Reverse(&event.id)));
    &winner.expect("a key that is asked for has a version").id
}

/// Whether the author of the event, whose requests these are, has asked for its deletion. Deletions
/// cannot be deleted.
fn deleted(requests: &[&Event], event: &Event) -> bool {
    let mut requests = requests.iter().filter(|_| event.kind != 5);
    requests.any(|request| {
        let by_id = request.values("e").any(|target| target == event.id);
        let by_address = event.key().is_some_and(|(kind, pubkey, d)| {
            let address = format!("{kind}:{pubkey}:{d}");
            let until = request.created_at;
            request.values("a").any(|target| target == address) && event.created_at <= until
        });
        by_id || by_address
    })
}

impl Event {
    /// # Panics
    /// When the text is no event.
    pub fn read(text: &str) -> Event {
        let value: Value = serde_json::from_str(text).expect("an event is JSON");
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let tags = list(&value["tags"]);
        Event {
            id: text(&value["id"]),
            pubkey: text(&value["pubkey"]),
            created_at: value["created_at"].as_i64().expect("a time"),
            kind: value["kind"].as_u64().expect("a kind"),
            tags: tags.iter().map(|tag| list(tag).iter().map(text).collect()).collect(),
        }
    }

    /// The first values of the tags of a name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.tags.iter().filter(move |tag| tag[0] == name);
        named.filter_map(|tag| tag.get(1)).map(String::as_str)
    }

    /// A number of seconds; anything else does not expire.
    pub fn expiration(&self) -> Option<i64> {
        let digits = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let end = self.values("expiration").find(digits)?;
        Some(end.parse().unwrap_or(i64::MAX))
    }

    /// `None` for events that have no versions.
    ///
    /// # Panics
    /// When an addressable event has no `d`.
    pub fn key(&self) -> Option<Key<'_>> {
        let d = match self.kind {
            0 | 3 | 10_000..20_000 => "",
            30_000..40_000 => {
                let tag = self.tags.iter().find(|tag| tag[0] == "d").expect("it has a d");
                tag.get(1).map_or("", String::as_str)
            }
            _ => return None,
        };
        Some((self.kind, &self.pubkey, d))
    }
}
