//! What is said on one connection, without the connection: messages go in, and what is to be done
//! comes out. Knows no sockets, no tasks and no clock.

mod neg;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kukuri_core::admission::{Age, Checked, Door, Rate, Topicless, Verdict, screen};
use kukuri_core::{Admitted, Cursor, Rejection, Source, TopicId, UnixMillis};
use kukuri_event::{Body, EventId, Filter, Pubkey, TagLetter, Values};
use kukuri_lane::Answer;

use crate::gate::{Authed, Gate, may_read};
use crate::limits::RelayLimits;
use crate::message::{ClientMessage, Question, SubId, Unreadable, claimed_id};
use crate::policy::{AuthRule, Deadline};
use crate::{auth, reply};
use neg::Neg;
pub use neg::Reconcile;

/// What is to be done.
#[derive(Debug)]
pub enum Output {
    Send(String),
    /// Publish the event; the client is told what becomes of it.
    Publish(Admitted),
    Ask(Ask),
    Count(Ask),
    Reconcile(Reconcile),
    /// The client wants no more of the subscription.
    Forget(SubId),
    /// The subscription cannot go on; the client is to be told why.
    Close(SubId, String),
    /// The connection has to end; the client was told why.
    End,
}

/// A question that may be asked.
#[derive(Debug)]
pub struct Ask {
    pub sub: SubId,
    pub filters: Vec<Filter>,
    pub resume: Option<Resume>,
    /// What is stored is found by these words, and nothing comes after it.
    pub search: Option<String>,
}

/// Where a client that was here before goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// From the oldest row that is kept.
    Floor,
    After(Cursor),
}

/// What is charged to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Event,
    /// Given back if the event is not accepted: anyone can send an event of a key again.
    EventOf(Pubkey),
    Request,
}

/// How many keys a connection can prove.
const AUTHED_MAX: usize = 16;

/// What messages are judged by, as of now.
pub struct Surroundings<'a> {
    pub now: UnixMillis,
    pub limits: &'a RelayLimits,
    /// The topics this node carries.
    pub topics: &'a BTreeSet<TopicId>,
    pub topicless: Topicless,
    /// The addresses by which clients know this relay.
    pub urls: &'a [String],
    pub auth: AuthRule,
    pub gate: &'a dyn Gate,
    /// Whether the sender of this connection keeps to its rates.
    pub charge: &'a dyn Fn(Charge) -> Rate,
    /// An event that was verified lately.
    pub seen: &'a dyn Fn(&EventId) -> Option<Arc<Body>>,
}

/// One connection's state.
pub struct Session {
    connected_at: UnixMillis,
    challenge: String,
    challenged: bool,
    authed: Authed,
    /// The topics that each subscription asks for.
    subs: BTreeMap<SubId, Values<TopicId>>,
    negs: BTreeMap<SubId, Neg>,
}

impl Session {
    /// `challenge` must be of this connection alone and not to be guessed.
    pub fn new(challenge: String, connected_at: UnixMillis) -> Self {
        let (authed, subs, negs) = (Authed::new(), BTreeMap::new(), BTreeMap::new());
        Self { connected_at, challenge, challenged: false, authed, subs, negs }
    }

    /// What is to be done at the beginning, at a time that [`Session::wake_at`] named, when the rule
    /// about proofs has changed, and when the gate has.
    pub fn wake(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        let ended = self.neg_end_overdue(around);
        ended.into_iter().chain(self.demand_proof(around)).collect()
    }

    fn demand_proof(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        if !around.auth.enforced(around.now) {
            return Vec::new();
        }
        if !self.authed.is_empty() {
            return self.ask_again(around);
        }
        match around.auth.deadline(self.connected_at) {
            Some(Deadline { at, notice }) if at <= around.now => {
                vec![Output::Send(reply::notice(notice)), Output::End]
            }
            _ => self.challenge().into_iter().collect(),
        }
    }

    /// When the passing of time alone will have something to be done.
    pub fn wake_at(&self, around: &Surroundings<'_>) -> Option<UnixMillis> {
        let deadline = around.auth.deadline(self.connected_at).map(|deadline| deadline.at);
        let deadline = deadline.filter(|_| self.authed.is_empty());
        let enforced_from = around.auth.enforced_from().filter(|from| *from > around.now);
        [enforced_from, deadline, self.neg_wake_at(around)].into_iter().flatten().min()
    }

    /// Ends subscriptions that may not be read on this connection, now that somebody can tell: they
    /// were opened before proofs were required, or before the gate changed its mind.
    fn ask_again(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        let topics = |topics: &Values<TopicId>| topics.iter().cloned().collect::<Vec<_>>();
        let asked = self.subs.iter().map(|(sub, of)| (sub, self.may_read(&topics(of), around)));
        let refused = asked.filter_map(|(sub, may)| Some((sub.clone(), may.err()?)));
        let ended = self.end_all(refused.map(|(sub, why)| (sub, why.to_owned())).collect());
        let against = |session: &Self, of: &Values<TopicId>| {
            session.may_read(&topics(of), around).err().map(str::to_owned)
        };
        ended.into_iter().chain(self.neg_end_if(against)).collect()
    }

    fn end_all(&mut self, subs: Vec<(SubId, String)>) -> Vec<Output> {
        subs.iter().for_each(|(sub, _)| self.ended(sub));
        subs.into_iter().map(|(sub, why)| Output::Close(sub, why)).collect()
    }

    pub fn handle(&mut self, text: &str, around: &Surroundings<'_>) -> Vec<Output> {
        match ClientMessage::parse(text, around.limits.filters_max) {
            Ok(ClientMessage::Event(event)) => self.event(event, around),
            Ok(ClientMessage::Req(question)) => self.request(question, around),
            Ok(ClientMessage::Count(question)) => self.count(question, around),
            Ok(ClientMessage::Close(sub)) => self.close(sub),
            Ok(ClientMessage::Auth(event)) => self.authenticate(event, around),
            Ok(ClientMessage::Neg(message)) => self.neg(message, around),
            Err(unreadable) => self.unreadable(unreadable, around),
        }
    }

    /// A message that is no text.
    pub fn binary(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        self.unreadable(Unreadable::Notice("invalid: messages are text".into()), around)
    }

    fn unreadable(&mut self, unreadable: Unreadable, around: &Surroundings<'_>) -> Vec<Output> {
        // Nonsense costs as much as a question, and is answered all the same.
        let _ = (around.charge)(Charge::Request);
        match unreadable {
            Unreadable::Notice(why) => vec![Output::Send(reply::notice(&why))],
            Unreadable::Count { sub, why } => vec![Output::Send(reply::closed(&sub, &why))],
            Unreadable::Neg { sub, why } => self.neg_end(&sub, &why),
            Unreadable::Req { sub, why } => {
                let replaced = self.close(sub.clone());
                replaced.into_iter().chain([Output::Send(reply::closed(&sub, &why))]).collect()
            }
        }
    }

    /// What to tell the sender of an event, after what the lane said.
    pub fn answered(id: EventId, answer: &Answer) -> String {
        let (accepted, message) = match answer {
            Ok(outcome) => (outcome.is_ok(), outcome.message()),
            Err(error) => (false, error.to_string()),
        };
        reply::ok(&id.to_hex(), accepted, &message)
    }

    /// A subscription ended by itself.
    pub fn ended(&mut self, sub: &str) {
        self.subs.remove(sub);
    }

    /// Ends subscriptions to topics that are carried no longer.
    pub fn topics_changed(&mut self, around: &Surroundings<'_>) -> Vec<Output> {
        let gone = |topics: &Values<TopicId>| topics.iter().any(|t| !around.topics.contains(t));
        let ended = self.subs.iter().filter(|(_, topics)| gone(topics));
        let ended = ended.map(|(sub, _)| (sub.clone(), Rejection::TopicNotHandled.to_string()));
        let ended = self.end_all(ended.collect());
        let why = Rejection::TopicNotHandled.to_string();
        let against = |_: &Self, topics: &Values<TopicId>| gone(topics).then(|| why.clone());
        ended.into_iter().chain(self.neg_end_if(against)).collect()
    }

    fn event(&mut self, text: &str, around: &Surroundings<'_>) -> Vec<Output> {
        match self.admit(text, around) {
            Ok(admitted) => vec![Output::Publish(admitted)],
            Err(rejection) => {
                let challenge =
                    matches!(rejection, Rejection::AuthRequired).then(|| self.challenge());
                let answer = match claimed_id(text) {
                    Some(id) => reply::ok(&id, false, &rejection.to_string()),
                    None => reply::notice(&rejection.to_string()),
                };
                challenge.flatten().into_iter().chain([Output::Send(answer)]).collect()
            }
        }
    }

    fn admit(&self, text: &str, around: &Surroundings<'_>) -> Result<Admitted, Rejection> {
        let door = Door {
            limits: &around.limits.events,
            topicless: around.topicless,
            age: Age::Bounded,
            now: around.now,
            handles: &|topic| around.topics.contains(topic),
        };
        let screened = screen(text, (around.charge)(Charge::Event), &door)?;
        let seen = (around.seen)(&screened.event().id());
        let checked = screened.verify_unless(seen)?;
        let (author, verdict) = (checked.event().pubkey(), self.verdict(&checked, around));
        let admitted = checked.admit(verdict, Source::Ws, None)?;
        match (around.charge)(Charge::EventOf(author)) {
            Rate::Within => Ok(admitted),
            Rate::Exceeded => Err(Rejection::RateLimited),
        }
    }

    /// A protected event (NIP-70) is taken from its author alone.
    fn verdict(&self, checked: &Checked, around: &Surroundings<'_>) -> Verdict {
        let event = checked.event();
        let protected = event.tags().iter().any(|tag| tag.name() == "-");
        let may_publish = match (around.auth.enforced(around.now), self.authed.is_empty()) {
            (false, _) => Verdict::Admit,
            (true, true) => Verdict::AuthRequired,
            (true, false) if !self.authed.contains(&event.pubkey()) => Verdict::Restricted,
            (true, false) => around.gate.publish(&self.authed, event),
        };
        match may_publish {
            Verdict::Admit if !protected || self.authed.contains(&event.pubkey()) => Verdict::Admit,
            Verdict::Admit if self.authed.is_empty() => Verdict::AuthRequired,
            Verdict::Admit => Verdict::Restricted,
            verdict => verdict,
        }
    }

    fn request(&mut self, question: Question, around: &Surroundings<'_>) -> Vec<Output> {
        // A new question under an old name takes its place, whatever becomes of it.
        let replaced = self.close(question.sub.clone());
        let places = Some(around.limits.subscriptions_max.saturating_sub(self.subs.len()));
        let asked = match self.ask(question, places, around) {
            Ok((ask, topics)) => {
                self.subs.insert(ask.sub.clone(), topics);
                vec![Output::Ask(ask)]
            }
            Err(refused) => refused,
        };
        replaced.into_iter().chain(asked).collect()
    }

    fn count(&mut self, question: Question, around: &Surroundings<'_>) -> Vec<Output> {
        if question.after.is_some() {
            let why = "invalid: COUNT takes no after";
            return vec![Output::Send(reply::closed(&question.sub, why))];
        }
        if question.search.is_some() {
            let why = "invalid: COUNT takes no search";
            return vec![Output::Send(reply::closed(&question.sub, why))];
        }
        match self.ask(question, None, around) {
            Ok((ask, _)) => vec![Output::Count(ask)],
            Err(refused) => refused,
        }
    }

    fn close(&mut self, sub: SubId) -> Vec<Output> {
        self.subs.remove(&sub).map(|_| Output::Forget(sub)).into_iter().collect()
    }

    /// `places` is how many more subscriptions there may be, if it is to be one.
    fn ask(
        &mut self,
        question: Question,
        places: Option<usize>,
        around: &Surroundings<'_>,
    ) -> Result<(Ask, Values<TopicId>), Vec<Output>> {
        let Question { sub, mut filters, after, search } = question;
        let shape = check_shape(&sub, &filters, places, around);
        name_global(&mut filters, around);
        let shape = shape.and_then(|()| match (&search, &after) {
            (Some(_), Some(_)) => Err("invalid: a search takes no after".to_owned()),
            _ => Ok(()),
        });
        let checked = shape.and_then(|()| self.check(&filters, after.as_deref(), around));
        match checked {
            Ok((topics, resume)) => Ok((Ask { sub, filters, resume, search }, topics)),
            Err(why) => {
                let challenge = self.challenge_if(&why);
                let closed = Output::Send(reply::closed(&sub, &why));
                Err(challenge.into_iter().chain([closed]).collect())
            }
        }
    }

    fn check(
        &self,
        filters: &[Filter],
        after: Option<&str>,
        around: &Surroundings<'_>,
    ) -> Result<(Values<TopicId>, Option<Resume>), String> {
        let resume = after.map(resume).transpose()?;
        let topics = topics(filters, around)?;
        let asked: Vec<TopicId> = topics.iter().cloned().collect();
        self.may_read(&asked, around)?;
        Ok((topics, resume))
    }

    fn may_read(&self, topics: &[TopicId], around: &Surroundings<'_>) -> Result<(), &'static str> {
        match may_read(around.gate, &around.auth, &self.authed, topics, around.now) {
            Verdict::Admit => Ok(()),
            Verdict::AuthRequired => Err("auth-required: authenticate to read"),
            Verdict::Restricted => Err("restricted: not allowed to read here"),
            Verdict::Blocked => Err("blocked: not allowed to read here"),
        }
    }

    fn authenticate(&mut self, text: &str, around: &Surroundings<'_>) -> Vec<Output> {
        let proved = match (around.charge)(Charge::Request) {
            Rate::Within => auth::check(text, &self.challenge, around.urls, around.now)
                .map_err(|error| error.to_string()),
            Rate::Exceeded => Err(Rejection::RateLimited.to_string()),
        };
        let (accepted, message) = match proved {
            Ok(pubkey) if self.authed.len() >= AUTHED_MAX && !self.authed.contains(&pubkey) => {
                (false, format!("error: too many keys, at most {AUTHED_MAX} on a connection"))
            }
            Ok(pubkey) => {
                self.authed.insert(pubkey);
                (true, String::new())
            }
            Err(why) => (false, why),
        };
        let answer = Output::Send(match claimed_id(text) {
            Some(id) => reply::ok(&id, accepted, &message),
            None => reply::notice(&message),
        });
        let ended = if accepted { self.wake(around) } else { Vec::new() };
        [answer].into_iter().chain(ended).collect()
    }

    /// Asks who is there, if it is for that that something is refused.
    fn challenge_if(&mut self, why: &str) -> Option<Output> {
        why.starts_with("auth-required:").then(|| self.challenge()).flatten()
    }

    /// Asks who is there, once.
    fn challenge(&mut self) -> Option<Output> {
        let first = !std::mem::replace(&mut self.challenged, true);
        first.then(|| Output::Send(reply::auth(&self.challenge)))
    }
}

/// What can be said of a question as it came, whatever it asks for. Every question costs.
fn check_shape(
    sub: &str,
    filters: &[Filter],
    places: Option<usize>,
    around: &Surroundings<'_>,
) -> Result<(), String> {
    let limits = around.limits;
    if (around.charge)(Charge::Request) == Rate::Exceeded {
        return Err(Rejection::RateLimited.to_string());
    }
    if places == Some(0) {
        let max = limits.subscriptions_max;
        return Err(format!("error: too many subscriptions, at most {max} are open at once"));
    }
    let chars = sub.chars().count();
    if chars == 0 || chars > limits.sub_id_chars_max {
        let max = limits.sub_id_chars_max;
        return Err(format!("invalid: a subscription id has 1 to {max} characters"));
    }
    if filters.iter().any(|filter| filter.values() > limits.filter_values_max) {
        let max = limits.filter_values_max;
        return Err(format!("invalid: too many values in a filter, at most {max}"));
    }
    Ok(())
}

/// Where topics need not be named, the global one is meant.
fn name_global(filters: &mut [Filter], around: &Surroundings<'_>) {
    if around.topicless == Topicless::Global {
        let global = || Values::from([TopicId::global().to_string()]);
        filters.iter_mut().filter(|filter| filter.topics().is_none()).for_each(|filter| {
            filter.tags.insert(TagLetter::TOPIC, global());
        });
    }
}

fn resume(after: &str) -> Result<Resume, String> {
    if after.is_empty() {
        return Ok(Resume::Floor);
    }
    reply::read_cursor(after).map(Resume::After).ok_or_else(|| "invalid: bad cursor".into())
}

/// The topics the filters ask for, all of which are carried.
fn topics(filters: &[Filter], around: &Surroundings<'_>) -> Result<Values<TopicId>, String> {
    let mut topics = Vec::new();
    for filter in filters {
        let named = filter.topics().filter(|named| !named.is_empty());
        for topic in named.ok_or("invalid: missing #t")? {
            match TopicId::parse(topic) {
                Ok(topic) => topics.push(topic),
                // Where topics need not be named, `#t` may ask for hashtags; nothing is linked to them.
                Err(_) if around.topicless == Topicless::Global => {}
                Err(_) => return Err(Rejection::BadTopic.to_string()),
            }
        }
    }
    // Those that are carried, so that all who ask for one share its name.
    let carried = topics.iter().map(|topic| around.topics.get(topic).cloned());
    carried.collect::<Option<_>>().ok_or_else(|| Rejection::TopicNotHandled.to_string())
}
