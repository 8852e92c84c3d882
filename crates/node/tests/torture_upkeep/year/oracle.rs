//! What must be kept, remembered and answered, by the words of the policy. It is written from those words,
//! over plain JSON, and shares no code with the rules it judges.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::Source;
use kukuri_testkit::spec::Event;

use super::policy::{Full, NodeRules, TopicRules};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Nothing is dated more than a day after it comes.
const AHEAD_SECONDS: i64 = 24 * 60 * 60;

/// What became of a stored event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Visible,
    Replaced,
    Deleted,
    Expired,
}

#[derive(Clone, Debug)]
struct Held {
    event: Event,
    bytes: u64,
    /// When it was taken in, and as which.
    at: i64,
    nth: u64,
    topics: BTreeSet<char>,
    /// Topics that it was taken out of.
    left: BTreeSet<char>,
    fate: Fate,
}

impl Held {
    /// Whether it is the version that counts.
    fn is_current(&self) -> bool {
        self.event.key().is_some() && self.fate == Fate::Visible
    }
}

/// That an id was seen, and whether it was stored.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: i64,
    stored: bool,
}

/// The greatest version of a key, and whether it was given up for good.
#[derive(Clone, Debug)]
struct Mark {
    created_at: i64,
    id: String,
    evicted: bool,
}

type Key = (u64, String, String);

fn key(event: &Event) -> Option<Key> {
    event.key().map(|(kind, author, d)| (kind, author.to_owned(), d.to_owned()))
}

/// Events and bytes.
pub type Sum = (u64, u64);

pub struct Oracle {
    pub topics: BTreeMap<char, TopicRules>,
    pub node: NodeRules,
    /// How many steps of the ladder are taken, and what has held since when.
    pub step: u8,
    felt: Option<(bool, i64)>,
    /// Whether there was too much when it was last looked, and when that was.
    pressed: bool,
    /// Whether there was less than that by a margin.
    relieved: bool,
    looked_at: Option<i64>,
    held: BTreeMap<String, Held>,
    seen: BTreeMap<String, Seen>,
    marks: BTreeMap<Key, Mark>,
    /// Until when versions are deleted.
    limits: BTreeMap<Key, i64>,
    /// Deletions by target and author, and when they were last asked for, or the date of what they refused,
    /// if that is later.
    requests: BTreeMap<(String, String), i64>,
    /// The latest time from which anything was forgotten.
    forgotten: Option<i64>,
    arrivals: u64,
}

impl Oracle {
    pub fn new(topics: BTreeMap<char, TopicRules>, node: NodeRules) -> Self {
        Self {
            topics,
            node,
            step: 0,
            felt: None,
            pressed: false,
            relieved: true,
            looked_at: None,
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            marks: BTreeMap::new(),
            limits: BTreeMap::new(),
            requests: BTreeMap::new(),
            forgotten: None,
            arrivals: 0,
        }
    }

    /// The node is started again with another capacity: how long anything held is not known any more.
    pub fn resettle(&mut self, node: NodeRules) {
        let NodeRules { max_events, max_bytes, full, memory_days, .. } = node;
        self.node = NodeRules { max_events, max_bytes, full, memory_days, ..self.node };
        self.felt = None;
    }

    /// Whether the ladder may move within the next minutes.
    pub fn is_restless(&self) -> bool {
        self.pressed || self.step > 0
    }

    /// What an event is answered.
    pub fn publish(&mut self, text: &str, source: Source, now: i64) -> &'static str {
        let event = Event::read(text);
        // An event is refused a day before its id may be forgotten.
        let age_days = self.node.memory_days - 1;
        if event.key().is_none() && event.created_at < (now - age_days * DAY_MS).div_euclid(1000) {
            return "invalid: created_at too old";
        }
        if event.expiration().is_some_and(|end| end <= now.div_euclid(1000)) {
            return "invalid: expired";
        }
        match self.seen.get(&event.id) {
            Some(seen) => self.publish_again(&event, *seen, source, now),
            None => self.publish_new(&event, text.len() as u64, source, now),
        }
    }

    fn publish_again(
        &mut self,
        event: &Event,
        seen: Seen,
        source: Source,
        now: i64,
    ) -> &'static str {
        let held = self.held.get(&event.id).cloned();
        if let Some(held) = held.as_ref().filter(|held| held.fate == Fate::Visible) {
            let open: Vec<char> = topics(event)
                .filter(|topic| !held.topics.contains(topic) && !held.left.contains(topic))
                .filter(|topic| !self.has_aged(held, *topic, now))
                .filter(|topic| self.closed(event, *topic, held.bytes, source).is_none())
                .collect();
            if open.is_empty() {
                return "duplicate: already have this event";
            }
            self.held.get_mut(&event.id).expect("it is held").topics.extend(open);
            return "";
        }
        let deleted = held.as_ref().is_some_and(|held| held.fate == Fate::Deleted);
        if deleted || self.is_deleted(event) {
            return "blocked: deleted by its author";
        }
        match (held, seen.stored) {
            (Some(_), _) => "duplicate: already have this event",
            (None, true) => "duplicate: seen before, no longer kept",
            (None, false) => "duplicate: a newer version is stored",
        }
    }

    fn publish_new(&mut self, event: &Event, bytes: u64, source: Source, now: i64) -> &'static str {
        let forgotten = self.forgotten.map(|at| at.div_euclid(1000) + AHEAD_SECONDS);
        if event.key().is_none() && forgotten.is_some_and(|until| event.created_at <= until) {
            return "invalid: created_at too old";
        }
        let mark = key(event).and_then(|key| self.marks.get(&key)).cloned();
        if mark.as_ref().is_some_and(|mark| mark.id == event.id && mark.evicted) {
            return "duplicate: seen before, no longer kept";
        }
        let wins = mark.as_ref().is_none_or(|mark| {
            (event.created_at, Reverse(&event.id)) > (mark.created_at, Reverse(&mark.id))
        });
        let deleted = self.is_deleted(event);
        let mut open = BTreeSet::new();
        if wins && !deleted {
            match self.room(event, bytes, source) {
                Ok(topics) => open = topics,
                Err(refusal) => return refusal,
            }
        }
        if let Some(key) = key(event).filter(|_| wins) {
            let old = mark.and_then(|mark| self.held.get_mut(&mark.id));
            if let Some(old) = old.filter(|old| old.fate == Fate::Visible) {
                old.fate = Fate::Replaced;
            }
            let mark = Mark { created_at: event.created_at, id: event.id.clone(), evicted: false };
            self.marks.insert(key, mark);
        }
        if deleted {
            let request = self.requests.get_mut(&(event.id.clone(), event.pubkey.clone()));
            request.into_iter().for_each(|at| *at = (*at).max(1000 * event.created_at));
            return "blocked: deleted by its author";
        }
        self.seen.insert(event.id.clone(), Seen { at: now, stored: wins });
        if !wins {
            return "duplicate: a newer version is stored";
        }
        self.arrivals += 1;
        let (nth, event) = (self.arrivals, event.clone());
        if event.kind == 5 {
            self.delete(&event, now);
        }
        let (topics, left) = (open, BTreeSet::new());
        let held = Held { bytes, at: now, nth, topics, left, fate: Fate::Visible, event };
        self.held.insert(held.event.id.clone(), held);
        ""
    }

    /// The topics that take a new event.
    fn room(
        &self,
        event: &Event,
        bytes: u64,
        source: Source,
    ) -> Result<BTreeSet<char>, &'static str> {
        let (events_now, bytes_now) = self.sum(None);
        let NodeRules { max_events, full, .. } = self.node;
        let over = max_events.is_some_and(|max| events_now >= max);
        let over = over || self.node.max_bytes.is_some_and(|max| bytes_now + bytes > max);
        if event.kind != 5 && full == Full::Refuse && over {
            return Err("restricted: node is full");
        }
        // What the first of its topics says is the answer where none takes it.
        let mut refusal = None;
        let mut open = BTreeSet::new();
        for topic in topics(event) {
            match self.closed(event, topic, bytes, source) {
                Some(why) => refusal = refusal.or(Some(why)),
                None => _ = open.insert(topic),
            }
        }
        if open.is_empty() { Err(refusal.expect("an event has a topic")) } else { Ok(open) }
    }

    /// Why a topic takes nothing more now. Deletions are always taken.
    fn closed(
        &self,
        event: &Event,
        topic: char,
        bytes: u64,
        source: Source,
    ) -> Option<&'static str> {
        let rules = &self.topics[&topic];
        if event.kind == 5 {
            return None;
        }
        if rules.low && self.step >= 2 {
            return Some("restricted: topic is paused, the node is short of room");
        }
        if source == Source::Backfill && (rules.no_backfill || self.step >= 1) {
            return Some("restricted: topic takes no backfill now");
        }
        let (events_now, bytes_now) = self.sum(Some(topic));
        let over = rules.max_events.is_some_and(|max| events_now >= max)
            || rules.max_bytes.is_some_and(|max| bytes_now + bytes > max);
        (rules.full == Full::Refuse && over).then_some("restricted: topic is full")
    }

    fn is_deleted(&self, event: &Event) -> bool {
        let by_id = self.requests.contains_key(&(event.id.clone(), event.pubkey.clone()));
        let until = key(event).and_then(|key| self.limits.get(&key));
        event.kind != 5 && (by_id || until.is_some_and(|until| event.created_at <= *until))
    }

    /// A deletion reaches what its author signed, and no deletions.
    fn delete(&mut self, request: &Event, now: i64) {
        for target in request.values("e") {
            let held = self.held.get_mut(target);
            let ours = |held: &Held| held.event.pubkey == request.pubkey && held.event.kind != 5;
            if held.as_deref().is_some_and(|held| !ours(held)) {
                continue;
            }
            held.into_iter().for_each(|held| held.fate = Fate::Deleted);
            self.requests.insert((target.to_owned(), request.pubkey.clone()), now);
        }
        for address in request.values("a") {
            let mut parts = address.splitn(3, ':');
            let mut part = || parts.next().expect("an address has three parts").to_owned();
            let key = (part().parse().expect("a kind"), part(), part());
            if key.1 != request.pubkey {
                continue;
            }
            let until = self.limits.entry(key.clone()).or_insert(i64::MIN);
            *until = (*until).max(request.created_at);
            let mark = self.marks.get(&key).filter(|mark| mark.created_at <= request.created_at);
            let winner = mark.and_then(|mark| self.held.get_mut(&mark.id));
            if let Some(winner) = winner.filter(|held| held.fate == Fate::Visible) {
                winner.fate = Fate::Deleted;
            }
        }
    }

    /// A whole round of upkeep.
    pub fn keep(&mut self, now: i64) {
        self.feel(self.sum(None), now);
        let expired = |held: &&mut Held| {
            held.event.expiration().is_some_and(|end| end <= now.div_euclid(1000))
        };
        for held in self.held.values_mut().filter(expired) {
            if held.fate == Fate::Visible {
                held.fate = Fate::Expired;
            }
        }
        let all: Vec<char> = self.topics.keys().copied().collect();
        for topic in &all {
            let linked = self.held.values().filter(|held| held.topics.contains(topic));
            let aged = linked.filter(|held| self.has_aged(held, *topic, now));
            let aged: Vec<String> = aged.map(|held| held.event.id.clone()).collect();
            aged.iter().for_each(|id| self.unlink(id, *topic));
        }
        let before = self.sum(None);
        all.iter().for_each(|topic| self.evict_topic(*topic));
        self.evict_node(before);
        let horizon = now - self.node.memory_days * DAY_MS;
        let seen =
            self.seen.extract_if(.., |id, seen| seen.at < horizon && !self.held.contains_key(id));
        let seen: Vec<i64> = seen.map(|(_, seen)| seen.at).collect();
        let requests = self.requests.extract_if(.., |_, at| *at < horizon).map(|(_, at)| at);
        self.forgotten = self.forgotten.max(seen.into_iter().chain(requests).max());
    }

    /// Regular events leave after their topic's days, or the node's; versions that do not count any more
    /// after fewer, deletions after more; versions that count stay.
    fn has_aged(&self, held: &Held, topic: char, now: i64) -> bool {
        let own = self.topics[&topic].retention_days;
        let regular = own.unwrap_or(self.node.regular_days);
        let days = if held.event.kind == 5 {
            own.unwrap_or(0).max(self.node.deletion_days)
        } else if held.event.key().is_none() {
            regular
        } else if held.is_current() {
            return false;
        } else {
            regular.min(self.node.history_days)
        };
        held.at <= now - days * DAY_MS
    }

    /// A body goes with its last topic; the mark of a version that counted says that it is given up.
    fn unlink(&mut self, id: &str, topic: char) {
        let held = self.held.get_mut(id).expect("only what is held leaves");
        held.topics.remove(&topic);
        held.left.insert(topic);
        if held.topics.is_empty() {
            self.drop_body(id);
        }
    }

    fn drop_body(&mut self, id: &str) {
        let held = self.held.remove(id).expect("only what is held leaves");
        if let Some(key) = key(&held.event).filter(|_| held.is_current()) {
            self.marks.get_mut(&key).expect("what counts is marked").evicted = true;
        }
    }

    /// The oldest by their own time leave, versions that count last.
    fn evict_topic(&mut self, topic: char) {
        let rules = self.topics[&topic].clone();
        while rules.full == Full::Evict && over(&rules, self.sum(Some(topic))) {
            let linked = self.held.values().filter(|held| held.topics.contains(&topic));
            let oldest = linked.min_by_key(|held| {
                (held.is_current(), held.event.created_at, Reverse(&held.event.id))
            });
            let id = oldest.expect("too much is something").event.id.clone();
            self.unlink(&id, topic);
        }
    }

    /// The oldest by their arrival leave, versions that count last: what is too much, or a hundredth on
    /// the last step of the ladder, until there is less than too much by a margin.
    fn evict_node(&mut self, before: Sum) {
        let NodeRules { max_events, max_bytes, full, .. } = self.node;
        let (mut to_events, mut to_bytes) =
            (max_events.unwrap_or(u64::MAX), max_bytes.unwrap_or(u64::MAX));
        let pressed = self.step >= 3 && !self.relieved;
        if pressed {
            to_events = to_events.min(before.0 - before.0.div_ceil(100));
            to_bytes = to_bytes.min(before.1 - before.1.div_ceil(100));
        }
        loop {
            let (events, bytes) = self.sum(None);
            let over = max_events.is_some_and(|max| events > max)
                || max_bytes.is_some_and(|max| bytes > max);
            let evicts = (full == Full::Evict && over) || pressed;
            if !evicts || (events <= to_events && bytes <= to_bytes) {
                return;
            }
            let oldest = self.held.values().min_by_key(|held| (held.is_current(), held.nth));
            let Some(id) = oldest.map(|held| held.event.id.clone()) else { return };
            self.drop_body(&id);
        }
    }

    /// One step up after a minute beyond the soft limit, one down after five below nine tenths of it. Who refuses
    /// what is too much never takes the last one. Time in which nobody looked tells nothing.
    fn feel(&mut self, (events, bytes): Sum, now: i64) {
        let soft = |max: u64| max * self.node.soft_percent / 100;
        let loads = [(self.node.max_events, events), (self.node.max_bytes, bytes)];
        let gauges = || loads.iter().filter_map(|(max, load)| Some((soft((*max)?), *load)));
        let high = gauges().any(|(soft, load)| load > soft);
        let low = gauges().all(|(soft, load)| load * 100 <= soft * 90);
        (self.pressed, self.relieved) = (high, low);
        let top = if self.node.full == Full::Evict { 3 } else { 2 };
        self.step = self.step.min(top);
        if self.looked_at.replace(now).is_none_or(|at| now - at > 60_000) {
            self.felt = None;
        }
        if !high && !low {
            self.felt = None;
            return;
        }
        let since = self.felt.filter(|(was, _)| *was == high).map_or(now, |(_, since)| since);
        self.felt = Some((high, since));
        let wait = if high { 60_000 } else { 300_000 };
        let end = if high { top } else { 0 };
        if now - since >= wait && self.step != end {
            self.step = if high { self.step + 1 } else { self.step - 1 };
            self.felt = Some((high, now));
        }
    }

    /// What is readable in a topic: newest first, of equally new ones the smallest id first.
    pub fn visible(&self, topic: char, now: i64) -> Vec<String> {
        let there = self.held.values().filter(|held| {
            let expired = held.event.expiration().is_some_and(|end| end <= now.div_euclid(1000));
            held.fate == Fate::Visible && held.topics.contains(&topic) && !expired
        });
        let mut there: Vec<&Event> = there.map(|held| &held.event).collect();
        there.sort_by_key(|event| (Reverse(event.created_at), &event.id));
        there.into_iter().map(|event| event.id.clone()).collect()
    }

    /// What the stored bodies of a topic or of the node add up to, hidden ones included.
    pub fn sum(&self, topic: Option<char>) -> Sum {
        let counted = self
            .held
            .values()
            .filter(|held| topic.is_none_or(|topic| held.topics.contains(&topic)));
        counted.fold((0, 0), |(events, bytes), held| (events + 1, bytes + held.bytes))
    }

    pub fn remembered(&self) -> BTreeSet<String> {
        self.seen.keys().cloned().collect()
    }

    pub fn requested(&self) -> BTreeSet<(String, String)> {
        self.requests.keys().cloned().collect()
    }
}

fn over(rules: &TopicRules, (events, bytes): Sum) -> bool {
    rules.max_events.is_some_and(|max| events > max)
        || rules.max_bytes.is_some_and(|max| bytes > max)
}

/// Topics are named by the digit that their ids repeat; in the order of their ids.
fn topics(event: &Event) -> impl Iterator<Item = char> {
    let digits = event.values("t").filter_map(|topic| topic.chars().last());
    digits.collect::<BTreeSet<char>>().into_iter()
}
