//! A state with its surroundings at hand.

use std::time::Duration;

use kukuri_event::{Event, EventId, Filter, UnixSeconds};

use crate::backoff::{Backoff, Dice};
use crate::state::{
    Input, Moment, Output, Publication, Settings, Signs, State, SubKey, Surroundings, Ticket,
};
use crate::{Check, Item, PublishError, Published, Reason};

pub const CLOCK: UnixSeconds = UnixSeconds(1_700_000_000);
pub const PUBLISH_WAIT_MAX: Duration = Duration::from_secs(30);
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
pub const PAUSE: Duration = Duration::from_millis(100);

pub struct Rig {
    pub state: State,
    pub now: Moment,
    pub room: usize,
}

impl Rig {
    pub fn new(signs: Signs) -> Self {
        let settings = Settings {
            backoff: Backoff { first: PAUSE, max: PAUSE * 8 },
            ping_interval: PING_INTERVAL,
            check: Check::Shape,
            signs,
        };
        Self { state: State::new(settings), now: Moment(Duration::ZERO), room: 100 }
    }

    /// One that is connected.
    pub fn up(signs: Signs) -> Self {
        let mut rig = Self::new(signs);
        assert_eq!(rig.handle(Input::Opened), []);
        rig
    }

    pub fn handle(&mut self, input: Input<'_>) -> Vec<Output> {
        let room = self.room;
        let around = Surroundings { now: self.now, clock: CLOCK, dice: Dice(0.0), room: &|_| room };
        self.state.handle(input, &around)
    }

    pub fn hear(&mut self, text: &str) -> Vec<Output> {
        self.handle(Input::Text(text))
    }

    /// Lets time pass, and the state know.
    pub fn pass(&mut self, time: Duration) -> Vec<Output> {
        self.now = self.now + time;
        self.handle(Input::Tick)
    }

    pub fn subscribe(&mut self, key: u64, filter: &str) -> Vec<Output> {
        let filters = vec![Filter::parse(filter).unwrap()];
        self.handle(Input::Subscribe(SubKey(key), filters))
    }

    pub fn publish(&mut self, ticket: u64, number: u8) -> Vec<Output> {
        let publication = Publication {
            id: id(number),
            json: event(number, CLOCK),
            begun: self.now,
            wait_max: PUBLISH_WAIT_MAX,
        };
        self.handle(Input::Publish(Ticket(ticket), publication))
    }

    /// Loses the connection and gets another; what is said first on it.
    pub fn reconnect(&mut self) -> Vec<Output> {
        assert_eq!(self.handle(Input::Lost), []);
        assert_eq!(self.pass(PAUSE), [Output::Connect]);
        self.handle(Input::Opened)
    }
}

pub fn id(number: u8) -> EventId {
    EventId::from_bytes([number; 32])
}

/// The text of an event of the right shape.
pub fn event(number: u8, created_at: UnixSeconds) -> String {
    event_with(id(number), created_at)
}

pub fn event_with(id: EventId, created_at: UnixSeconds) -> String {
    let (key, sig) = ("00".repeat(32), "00".repeat(64));
    let unsigned = format!(r#""created_at":{created_at},"kind":1,"tags":[],"content":"""#);
    format!(r#"{{"id":"{id}","pubkey":"{key}","sig":"{sig}",{unsigned}}}"#)
}

pub fn send(text: &str) -> Output {
    Output::Send(text.to_owned())
}

pub fn stored(key: u64, number: u8) -> Output {
    Output::Show(SubKey(key), Item::Stored(Box::new(parsed(number))))
}

pub fn live(key: u64, number: u8) -> Output {
    Output::Show(SubKey(key), Item::Live(Box::new(parsed(number))))
}

pub fn eose(key: u64) -> Output {
    Output::Show(SubKey(key), Item::Eose)
}

pub fn published(ticket: u64, number: u8) -> Output {
    let message = Reason(String::new());
    Output::Answer(Ticket(ticket), Ok(Published { id: id(number), message }))
}

pub fn refused(ticket: u64, number: u8, why: &str) -> Output {
    let error = PublishError::Refused { id: id(number), reason: Reason(why.to_owned()) };
    Output::Answer(Ticket(ticket), Err(error))
}

pub fn ok(number: u8, accepted: bool, why: &str) -> String {
    format!(r#"["OK","{}",{accepted},"{why}"]"#, id(number))
}

fn parsed(number: u8) -> Event {
    Event::parse(&event(number, CLOCK)).unwrap()
}
