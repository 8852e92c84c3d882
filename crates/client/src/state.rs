//! What a client does, without a socket: what happens goes in, and what is to be done comes out.
//! Knows no tasks and no clock; time, chance and the room in queues are arguments.

mod auth;
mod link;
mod publishes;
mod sub;
mod subs;
mod window;

#[cfg(test)]
mod tests;

use std::ops::Add;
use std::time::Duration;

use kukuri_event::{EventId, Filter, UnixSeconds};

use crate::backoff::{Backoff, Dice};
use crate::message::{self, RelayMessage};
use crate::{Check, Item, PublishError, Published};
use auth::Auth;
use link::Link;
use publishes::Publishes;
use subs::Subs;

pub(crate) use subs::ITEMS_RESERVED;

/// A time since the client began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub Duration);

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// Names a call of `publish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub u64);

/// Names a subscription, whatever it asks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubKey(pub u64);

/// An event to publish.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub id: EventId,
    pub json: String,
    pub begun: Moment,
    pub wait_max: Duration,
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    Opened,
    /// A connection ended or could not be made.
    Lost,
    Text(&'a str),
    /// A sign of life that says nothing.
    Heard,
    Publish(Ticket, Publication),
    Subscribe(SubKey, Vec<Filter>),
    Unsubscribe(SubKey),
    /// Half of a subscription's queue is free again.
    Room(SubKey),
    /// What the signer made of a challenge.
    Signed(Option<String>),
    /// The time of [`State::wake`] has come.
    Tick,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Connect,
    Disconnect,
    Send(String),
    Ping,
    Sign(String),
    Answer(Ticket, Result<Published, PublishError>),
    Show(SubKey, Item),
    /// [`Input::Room`] is wanted when half of the queue is free.
    AwaitRoom(SubKey),
    /// The subscription is over.
    Forget(SubKey),
    /// For the log.
    Note(String),
}

/// What inputs are judged by, as of now.
pub(crate) struct Surroundings<'a> {
    pub now: Moment,
    /// What the clock on the wall says.
    pub clock: UnixSeconds,
    pub dice: Dice,
    /// How many items the queue of a subscription has room for.
    pub room: &'a dyn Fn(SubKey) -> usize,
}

/// The part of the configuration that decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub backoff: Backoff,
    pub ping_interval: Duration,
    pub check: Check,
    pub signs: Signs,
}

/// Whether challenges can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signs {
    Yes,
    No,
}

pub(crate) struct State {
    settings: Settings,
    link: Link,
    auth: Auth,
    publishes: Publishes,
    subs: Subs,
}

impl State {
    /// Begins while the first connection is being made.
    pub fn new(settings: Settings) -> Self {
        Self {
            link: Link::dialing(),
            auth: Auth::new(settings.signs),
            publishes: Publishes::default(),
            subs: Subs::new(settings),
            settings,
        }
    }

    pub fn handle(&mut self, input: Input<'_>, around: &Surroundings<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Opened => self.opened(around, &mut out),
            Input::Lost => self.lost(around, &mut out),
            Input::Heard => self.link.heard(around.now),
            Input::Text(text) => self.text(text, around, &mut out),
            Input::Publish(ticket, publication) => {
                self.publishes.add(ticket, publication);
                if self.link.is_up() {
                    self.publishes.send_all(&self.auth, &mut out);
                }
            }
            Input::Subscribe(key, filters) => {
                self.subs.add(key, filters);
                self.ask(around, &mut out);
            }
            Input::Unsubscribe(key) => self.subs.remove(key, &mut out),
            Input::Room(key) => {
                self.subs.has_room(key);
                self.ask(around, &mut out);
            }
            Input::Signed(proof) => {
                if let Some(text) = self.auth.signed(proof) {
                    out.push(Output::Send(text));
                }
                self.after_auth(around, &mut out);
            }
            Input::Tick => self.tick(around, &mut out),
        }
        out
    }

    /// When [`Input::Tick`] is wanted.
    pub fn wake(&self) -> Option<Moment> {
        let wakes =
            [self.link.wake(self.settings.ping_interval), self.publishes.wake(), self.subs.wake()];
        wakes.into_iter().flatten().min()
    }

    fn opened(&mut self, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        self.link.opened(around.now);
        self.auth = Auth::new(self.settings.signs);
        self.publishes.send_all(&self.auth, out);
        self.ask(around, out);
    }

    fn lost(&mut self, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        self.link.lost(around.now, self.settings.backoff, around.dice);
        self.auth = Auth::new(self.settings.signs);
        self.publishes.lost();
        self.subs.lost();
        // A pause of nothing is over at once.
        self.tick(around, out);
    }

    fn tick(&mut self, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        if self.link.tick(around.now, self.settings.ping_interval, out) {
            out.push(Output::Disconnect);
            self.lost(around, out);
        }
        self.publishes.tick(around.now, out);
        self.subs.tick(around.now, out);
        self.ask(around, out);
    }

    fn text(&mut self, text: &str, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        self.link.heard(around.now);
        let Some(message) = RelayMessage::parse(text) else {
            return out.push(Output::Note("the relay said something unknown".to_owned()));
        };
        if message.is_service() {
            self.link.served();
        }
        match message {
            RelayMessage::Event { question, event, cursor } => {
                self.subs.event(question, event, cursor, around, out);
            }
            RelayMessage::Eose { question, cursor } => {
                self.subs.eose(question, cursor, around, out)
            }
            RelayMessage::Closed { question, reason } => {
                self.subs.closed(question, reason, &self.auth, around, out);
            }
            RelayMessage::Ok { id, accepted, message } => {
                if self.auth.answered(id, accepted) {
                    self.after_auth(around, out);
                } else {
                    self.publishes.answered(id, accepted, message, &self.auth, out);
                }
            }
            RelayMessage::Auth { challenge } => {
                if self.auth.challenged() {
                    out.push(Output::Sign(challenge));
                }
            }
            RelayMessage::Notice { text } => out.push(Output::Note(format!("NOTICE {text:?}"))),
            // Nothing is reconciled here.
            RelayMessage::NegMsg { .. } | RelayMessage::NegErr { .. } => {}
        }
        self.ask(around, out);
    }

    /// Lets those go on that waited for who we are.
    fn after_auth(&mut self, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        self.publishes.auth_changed(&self.auth, out);
        self.subs.auth_changed(&self.auth, out);
        self.ask(around, out);
    }

    fn ask(&mut self, around: &Surroundings<'_>, out: &mut Vec<Output>) {
        if self.link.is_up() {
            self.subs.ask(&self.auth, around.now, out);
        }
    }
}

/// What an event is published with.
fn event_text(publication: &Publication) -> Output {
    Output::Send(message::event(&publication.json))
}
