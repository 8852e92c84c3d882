//! The stage that cases play on: a store, a few authors and topics, and words for what happens.

use std::any::Any;
use std::sync::Arc;

use kukuri_core::{
    Act, Admitted, Command, Decision, Dedupe, FeedRow, IngestPolicy, NodeState, NodeTopic, Op,
    Outcome, ReadSet, Reason, Record, Removed, Tombstone, TombstoneKey, TopicId, UnixMillis,
    UnlinkReason, Usage, Version, VersionKey,
};
use kukuri_event::{EventId, Filter, UnixSeconds};

use super::Subject;
use super::signing::{Author, Draft};
use crate::{Hit, Query, Store};

/// The second at which everything happens unless a case says otherwise.
pub const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

/// A reason that holds for everything.
pub const PURGE: UnlinkReason = UnlinkReason::Before(UnixMillis(i64::MAX));

/// More than any case finds or costs.
pub const PLENTY: usize = 10_000;

pub fn alice() -> Author {
    Author::numbered(1)
}

pub fn bob() -> Author {
    Author::numbered(2)
}

/// The topic of 64 times one hex digit.
pub fn topic(digit: char) -> TopicId {
    let text = format!("kukuri:{}", digit.to_string().repeat(64));
    TopicId::parse(&text).expect("64 hex digits make a topic")
}

pub fn topics(digits: &str) -> Vec<TopicId> {
    digits.chars().map(topic).collect()
}

/// `created_at` of the nth second in a past hour.
pub fn second(nth: i64) -> UnixSeconds {
    UnixSeconds(NOW.0 - 3600 + nth)
}

/// An event of some kind, on the topics of these digits.
pub fn draft(kind: u16, nth: i64, digits: &str) -> Draft {
    let draft = Draft::new(kind, second(nth));
    topics(digits).iter().fold(draft, |draft, topic| draft.tag("t", topic))
}

/// A note of Alice's.
pub fn note(nth: i64, digits: &str) -> Admitted {
    signed(&alice(), &draft(1, nth, digits))
}

/// A version of Alice's article `d`.
pub fn article(d: &str, nth: i64, digits: &str) -> Admitted {
    signed(&alice(), &draft(30_023, nth, digits).tag("d", d))
}

pub fn signed(author: &Author, draft: &Draft) -> Admitted {
    author.admit(draft, NOW)
}

pub fn id(admitted: &Admitted) -> EventId {
    admitted.event().id()
}

pub fn ids(events: &[&Admitted]) -> Vec<EventId> {
    events.iter().map(|event| id(event)).collect()
}

pub fn key(admitted: &Admitted) -> VersionKey {
    VersionKey::of(admitted.event()).expect("the event has versions")
}

/// What a case says of a feed row: operation, event, topic, the other topics, and the reason.
pub type Brief = (Op, EventId, TopicId, Vec<TopicId>, Option<Reason>);

pub fn upsert(event: &Admitted, topic_digit: char, prior: &str) -> Brief {
    (Op::Upsert, id(event), topic(topic_digit), topics(prior), None)
}

pub fn delete(event: &Admitted, topic_digit: char, remaining: &str, reason: Reason) -> Brief {
    let (topic, remaining) = (topic(topic_digit), topics(remaining));
    (Op::Delete, id(event), topic, remaining, Some(reason))
}

pub fn briefs(rows: &[FeedRow]) -> Vec<Brief> {
    let brief = |row: &FeedRow| {
        let (topic, prior) = (row.topic_id.clone(), row.prior.clone());
        (row.op, row.event_id, topic, prior, row.reason)
    };
    rows.iter().map(brief).collect()
}

/// What events count for.
pub fn usage(events: &[&Admitted]) -> Usage {
    let mut usage = Usage::default();
    events.iter().for_each(|event| usage.add(event.body().json().len() as u64));
    usage
}

/// The outcome of an act by which these events left the node.
pub fn removed(events: &[&Admitted]) -> Outcome {
    let gone = usage(events);
    Outcome::Removed(Removed { events: gone.events, bytes: gone.bytes, gone })
}

/// The outcome of an act by which these events left a topic or were hidden, and stay stored.
pub fn unlinked(events: &[&Admitted]) -> Outcome {
    let Usage { events, bytes } = usage(events);
    Outcome::Removed(Removed { events, bytes, gone: Usage::default() })
}

/// A filter written as JSON.
pub fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn unlink(digit: char, events: &[&Admitted], reason: UnlinkReason) -> Act {
    Act::Unlink { topic: topic(digit), events: ids(events), reason }
}

pub fn set_topic(digit: char, enabled: bool) -> Act {
    Act::SetTopic {
        topic_id: topic(digit),
        name: format!("topic {digit}"),
        enabled,
        pinned: true,
        wanted: 0,
        ingest_policy: IngestPolicy::default(),
    }
}

/// Carries a topic with a policy.
pub fn set_policy(digit: char, ingest_policy: IngestPolicy) -> Act {
    let name = format!("topic {digit}");
    Act::SetTopic {
        topic_id: topic(digit),
        name,
        enabled: true,
        pinned: true,
        wanted: 0,
        ingest_policy,
    }
}

pub struct Scene {
    store: Arc<dyn Store>,
    _home: Box<dyn Any + Send + Sync>,
}

impl Scene {
    pub fn new(subject: Subject) -> Self {
        Self { store: subject.store, _home: subject.home }
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Runs acts as one batch at one time.
    pub async fn batch_at(&self, at: UnixSeconds, acts: Vec<Act>) -> Decision {
        let at = UnixMillis::from(at);
        let batch: Arc<[Command]> = acts.into_iter().map(|act| Command { at, act }).collect();
        self.store.apply(batch).await.expect("a batch is committed")
    }

    pub async fn batch(&self, acts: Vec<Act>) -> Decision {
        self.batch_at(NOW, acts).await
    }

    pub async fn act(&self, act: Act) -> (Outcome, Vec<Brief>) {
        self.act_at(NOW, act).await
    }

    pub async fn act_at(&self, at: UnixSeconds, act: Act) -> (Outcome, Vec<Brief>) {
        let mut decision = self.batch_at(at, vec![act]).await;
        let outcome = decision.outcomes.pop().expect("one command, one outcome");
        (outcome, briefs(&decision.rows))
    }

    pub async fn publish(&self, event: &Admitted) -> (Outcome, Vec<Brief>) {
        self.act(Act::Publish(event.clone())).await
    }

    /// Publishes events that must all be accepted.
    pub async fn given(&self, events: &[&Admitted]) {
        for event in events {
            assert_eq!(self.publish(event).await.0, Outcome::Accepted);
        }
    }

    /// Starts to carry the topics of these digits.
    pub async fn carry(&self, digits: &str) {
        self.batch(digits.chars().map(|digit| set_topic(digit, true)).collect()).await;
    }

    pub async fn hits_at(&self, now: UnixSeconds, filters: Vec<Filter>) -> Vec<Hit> {
        let (limit_max, rows_max, bodies_max) = (PLENTY, PLENTY, PLENTY);
        let query = Query { filters, after: None, now, limit_max, rows_max, bodies_max };
        let found = self.store.query(query).await.expect("a query has an answer");
        let events = found.hits.iter().map(|hit| hit.event).collect();
        let bodies = self.store.bodies(events).await.expect("bodies can be read");
        assert_eq!(bodies, found.bodies.into_iter().map(Some).collect::<Vec<_>>());
        found.hits
    }

    /// The events that a filter finds, in the order of the answer.
    pub async fn found(&self, text: &str) -> Vec<EventId> {
        let hits = self.hits_at(NOW, vec![filter(text)]).await;
        hits.iter().map(|hit| hit.id).collect()
    }

    /// Everything that is visible in a topic.
    pub async fn visible(&self, digit: char) -> Vec<EventId> {
        self.found(&format!(r##"{{"#t":["{}"]}}"##, topic(digit))).await
    }

    pub async fn record(&self, event: &Admitted) -> Option<Record> {
        let mut needs = ReadSet::default();
        needs.events.insert(id(event));
        self.facts(needs).await.records.remove(&id(event)).flatten()
    }

    pub async fn dedupe(&self, event: &Admitted) -> Option<Dedupe> {
        let mut needs = ReadSet::default();
        needs.events.insert(id(event));
        self.facts(needs).await.dedupe.remove(&id(event)).flatten()
    }

    pub async fn version(&self, key: &VersionKey) -> Option<Version> {
        let mut needs = ReadSet::default();
        needs.versions.insert(key.clone());
        self.facts(needs).await.versions.remove(key).flatten()
    }

    pub async fn tombstone(&self, target: &Admitted, author: &Author) -> Option<Tombstone> {
        let key = TombstoneKey { target: id(target), pubkey: author.pubkey() };
        let mut needs = ReadSet::default();
        needs.tombstones.insert(key);
        self.facts(needs).await.tombstones.remove(&key).flatten()
    }

    pub async fn usage(&self, digit: char) -> Usage {
        let topics = self.store.topics().await.expect("topics are listed");
        let wanted = topic(digit);
        let found = topics.into_iter().find(|(row, _)| row.topic_id == wanted);
        found.map(|(_, usage)| usage).unwrap_or_default()
    }

    /// What is known of a topic, as the rules see it.
    pub async fn topic(&self, digit: char) -> (Option<NodeTopic>, Option<Usage>) {
        let mut needs = ReadSet::default();
        needs.topics.insert(topic(digit));
        let mut facts = self.facts(needs).await;
        let row = facts.topics.remove(&topic(digit)).flatten();
        (row, facts.usage.remove(&topic(digit)).flatten())
    }

    pub async fn node(&self) -> NodeState {
        crate::node_state(self.store()).await.expect("facts are loaded")
    }

    async fn facts(&self, needs: ReadSet) -> kukuri_core::Facts {
        self.store.facts(needs).await.expect("facts are loaded")
    }
}
