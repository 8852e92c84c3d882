//! Admission: the ordered list of checks that every event passes, whatever door it came through.
//! Cheap before dear: size, shape, counts, kinds, topic, times, rate, id, known id, signature, policy.
//!
//! ```text
//! text ─screen→ Screened ─verify→ Checked ─admit→ Admitted
//! ```
//! What is known already need not be verified again: a door may look the id up between `screen` and
//! `verify` ([`crate::known`]), or have kept what it verified lately ([`Screened::verify_unless`]).

use std::sync::Arc;

use kukuri_event::{Body, Class, Event, Identified, Kind, Verified};

use crate::{Limits, Rejection, Source, TopicId, UnixMillis};

/// Access-control kinds travel between peers only; a node neither takes nor passes them on.
const P2P_ONLY: [Kind; 3] = [Kind(39020), Kind(39021), Kind(39022)];

/// Whether events of a kind travel between peers only.
pub fn is_p2p_only(kind: Kind) -> bool {
    P2P_ONLY.contains(&kind)
}

/// What to do with events that carry no topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topicless {
    Reject,
    /// Treat them as events of `kukuri:global`.
    Global,
}

/// Whether events older than the memory of ids may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    Bounded,
    /// `import --any-age` alone.
    Any,
}

/// Whether the sender keeps to its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Within,
    Exceeded,
}

/// What policy says of an event whose signature holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admit,
    AuthRequired,
    Restricted,
    Blocked,
}

/// Everything the checks depend on besides the event.
pub struct Door<'a> {
    pub limits: &'a Limits,
    pub topicless: Topicless,
    pub age: Age,
    pub now: UnixMillis,
    /// Whether the node carries a topic now.
    pub handles: &'a dyn Fn(&TopicId) -> bool,
}

/// An event that passed every check that needs no signature.
#[derive(Clone, Debug)]
pub struct Screened {
    event: Identified,
    topics: Vec<TopicId>,
    age: Age,
}

/// All checks up to the id. `rate` is what the door's limiter said of the sender.
pub fn screen(text: &str, rate: Rate, door: &Door<'_>) -> Result<Screened, Rejection> {
    if text.len() > door.limits.event_bytes_max {
        return Err(Rejection::TooLarge);
    }
    let event = Event::parse(text).map_err(Rejection::Malformed)?;
    check_counts(&event, door.limits)?;
    if is_p2p_only(event.kind()) {
        return Err(Rejection::P2pOnly);
    }
    if event.kind() == Kind::AUTH {
        return Err(Rejection::AuthKind);
    }
    let topics = topics(&event, door)?;
    check_times(&event, door)?;
    if rate == Rate::Exceeded {
        return Err(Rejection::RateLimited);
    }
    let event = event.identify().map_err(|_| Rejection::IdMismatch)?;
    Ok(Screened { event, topics, age: door.age })
}

fn check_counts(event: &Event, limits: &Limits) -> Result<(), Rejection> {
    let tags = event.tags();
    if tags.len() > limits.tags_max {
        return Err(Rejection::TooManyTags);
    }
    if tags.letters().any(|(_, value)| value.len() > limits.tag_value_bytes_max) {
        return Err(Rejection::TagValueTooLong);
    }
    if topic_tags(event).count() > limits.topics_max {
        return Err(Rejection::TooManyTopics);
    }
    let targets = tags.iter().filter(|tag| matches!(tag.name(), "e" | "a")).count();
    if event.kind() == Kind::DELETION && targets > limits.deletion_targets_max {
        return Err(Rejection::TooManyTargets);
    }
    Ok(())
}

/// The `t` tags that are canonical topic ids; the others are hashtags.
fn topic_tags(event: &Event) -> impl Iterator<Item = TopicId> {
    event.tags().values("t").filter_map(|value| TopicId::parse(value).ok())
}

/// The topics that an event is of, as a door understands it, sorted; handled or not.
pub fn topics_of(event: &Event, topicless: Topicless) -> Result<Vec<TopicId>, Rejection> {
    let mut topics: Vec<TopicId> = topic_tags(event).collect();
    topics.sort_unstable();
    topics.dedup();
    if topics.is_empty() {
        if event.tags().values("t").any(|value| value.starts_with("kukuri:")) {
            return Err(Rejection::BadTopic);
        }
        match topicless {
            Topicless::Reject => return Err(Rejection::MissingTopic),
            Topicless::Global => topics.push(TopicId::global()),
        }
    }
    Ok(topics)
}

fn topics(event: &Event, door: &Door<'_>) -> Result<Vec<TopicId>, Rejection> {
    let topics = topics_of(event, door.topicless)?;
    if !topics.iter().any(|topic| (door.handles)(topic)) {
        return Err(Rejection::TopicNotHandled);
    }
    Ok(topics)
}

fn check_times(event: &Event, door: &Door<'_>) -> Result<(), Rejection> {
    let now = door.now.seconds();
    if event.created_at() > door.limits.newest(now) {
        return Err(Rejection::TooNew);
    }
    // Versions have no lower bound: their marks are never forgotten.
    let forgettable = matches!(event.kind().class(), Class::Regular | Class::Ephemeral);
    if forgettable && door.age == Age::Bounded && event.created_at() < door.limits.oldest(now) {
        return Err(Rejection::TooOld);
    }
    if event.kind().class() == Class::Addressable && event.tags().d().is_none() {
        return Err(Rejection::MissingD);
    }
    if event.tags().expiration().is_some_and(|end| end <= now) {
        return Err(Rejection::Expired);
    }
    Ok(())
}

impl Screened {
    pub fn event(&self) -> &Event {
        self.event.event()
    }

    /// All canonical topics of the event, sorted; at least one is handled.
    pub fn topics(&self) -> &[TopicId] {
        &self.topics
    }

    pub fn verify(self) -> Result<Checked, Rejection> {
        self.verify_unless(None)
    }

    /// Like `verify`, but for nothing if `seen` is the same event with the same signature, which was
    /// checked when it came.
    pub fn verify_unless(self, seen: Option<Arc<Body>>) -> Result<Checked, Rejection> {
        let event = self.event.verify_unless(seen).map_err(|_| Rejection::BadSignature)?;
        Ok(Checked { event, topics: self.topics, age: self.age })
    }
}

/// A screened event whose signature holds.
#[derive(Clone, Debug)]
pub struct Checked {
    event: Verified,
    topics: Vec<TopicId>,
    age: Age,
}

impl Checked {
    pub fn event(&self) -> &Event {
        self.event.event()
    }

    /// The last step: policy. `via` is the topic of the swarm an event came through.
    pub fn admit(
        self,
        verdict: Verdict,
        source: Source,
        via: Option<TopicId>,
    ) -> Result<Admitted, Rejection> {
        match verdict {
            Verdict::Admit => {}
            Verdict::AuthRequired => return Err(Rejection::AuthRequired),
            Verdict::Restricted => return Err(Rejection::Restricted),
            Verdict::Blocked => return Err(Rejection::Blocked),
        }
        let Self { event, topics, age } = self;
        let admitted = Inner { body: event.into_body(), topics, age, source, via };
        Ok(Admitted(Arc::new(admitted)))
    }
}

/// An event that passed admission. Only this can be published.
#[derive(Clone, Debug)]
pub struct Admitted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    body: Arc<Body>,
    topics: Vec<TopicId>,
    age: Age,
    source: Source,
    via: Option<TopicId>,
}

impl Admitted {
    pub fn event(&self) -> &Event {
        self.0.body.event()
    }

    pub fn body(&self) -> &Arc<Body> {
        &self.0.body
    }

    /// All canonical topics of the event, sorted, handled or not.
    pub fn topics(&self) -> &[TopicId] {
        &self.0.topics
    }

    /// Whether the lane, too, refuses what is so old that it may have been forgotten.
    pub fn age(&self) -> Age {
        self.0.age
    }

    pub fn source(&self) -> Source {
        self.0.source
    }

    pub fn via(&self) -> Option<&TopicId> {
        self.0.via.as_ref()
    }
}
