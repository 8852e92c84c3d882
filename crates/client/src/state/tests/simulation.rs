//! A state and a relay made of lists, through cuts, delays and full queues, by chance: in the end
//! every event was shown exactly once, with cursors and without.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kukuri_event::{Event, EventId, Filter, UnixSeconds, matches_any};
use kukuri_testkit::generate::{Dice, Seed};
use serde_json::{Value, json};

use super::rig::{CLOCK, event_with};
use crate::backoff::{self, Backoff};
use crate::state::{Input, Moment, Output, Settings, Signs, State, SubKey, Surroundings};
use crate::{Check, Item};

const RUNS: u64 = 300;
const STEPS: usize = 1500;
const CAPACITY: usize = 8;
const NO_TOPICS: [&str; 0] = [];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursors {
    Yes,
    No,
    /// The sabotage: a relay that forgets one event after each cursor.
    Broken,
}

struct Relay {
    cursors: Cursors,
    events: Vec<Event>,
    open: BTreeMap<String, (Vec<Filter>, bool)>,
    said: VecDeque<String>,
}

impl Relay {
    fn publish(&mut self, event: Event) {
        self.events.push(event);
        let (event, cursor) = (self.events.last().unwrap(), self.events.len());
        for (name, (filters, resumes)) in &self.open {
            if matches_any(filters, event, &NO_TOPICS) {
                self.said.push_back(said(name, event, resumes.then_some(cursor)));
            }
        }
    }

    fn hear(&mut self, text: &str) {
        let message: Vec<Value> = serde_json::from_str(text).unwrap();
        let name = message[1].as_str().unwrap().to_owned();
        self.open.remove(&name);
        if message[0] == "CLOSE" {
            return;
        }
        let mut after = None;
        let parse = |filter: &Value| {
            Filter::parse_with(&filter.to_string(), |key, value| {
                after = serde_json::from_str::<String>(value.get()).ok();
                key == "after"
            })
        };
        let filters: Vec<Filter> = message[2..].iter().map(parse).map(Result::unwrap).collect();
        match after.filter(|_| self.cursors != Cursors::No) {
            Some(after) => {
                let skipped = usize::from(self.cursors == Cursors::Broken);
                let after = after.parse().map_or(0, |after: usize| after + skipped);
                for (nth, event) in self.events.iter().enumerate().skip(after) {
                    if matches_any(&filters, event, &NO_TOPICS) {
                        self.said.push_back(said(&name, event, Some(nth + 1)));
                    }
                }
                let cursor = json!({ "cursor": self.events.len().to_string() });
                self.said.push_back(json!(["EOSE", name, cursor]).to_string());
                self.open.insert(name, (filters, true));
            }
            None => {
                self.stored(&name, &filters);
                self.said.push_back(json!(["EOSE", name]).to_string());
                self.open.insert(name, (filters, false));
            }
        }
    }

    /// The newest first.
    fn stored(&mut self, name: &str, filters: &[Filter]) {
        let mut found = BTreeSet::new();
        for filter in filters {
            let mut hits: Vec<&Event> = self
                .events
                .iter()
                .filter(|e| kukuri_event::matches(filter, e, &NO_TOPICS))
                .collect();
            hits.sort_by_key(|event| std::cmp::Reverse((event.created_at(), event.id())));
            for event in hits.into_iter().take(filter.limit.unwrap_or(usize::MAX)) {
                if found.insert(event.id()) {
                    self.said.push_back(said(name, event, None));
                }
            }
        }
    }
}

fn said(name: &str, event: &Event, cursor: Option<usize>) -> String {
    let more = cursor.map(|cursor| format!(r#",{{"cursor":"{cursor}"}}"#)).unwrap_or_default();
    format!(r#"["EVENT","{name}",{}{more}]"#, event.to_json())
}

struct Simulation {
    state: State,
    relay: Relay,
    dice: Dice,
    now: Moment,
    up: bool,
    /// What the client said and the relay has not heard.
    spoken: VecDeque<String>,
    queue: VecDeque<Item>,
    awaits_room: bool,
    taken: Vec<Item>,
    cuts_in_flight: usize,
    pauses: usize,
}

impl Simulation {
    fn new(seed: Seed, cursors: Cursors) -> Self {
        let settings = Settings {
            backoff: Backoff { first: Duration::from_millis(1), max: Duration::from_secs(1) },
            ping_interval: Duration::from_secs(3600),
            check: Check::Shape,
            signs: Signs::No,
        };
        let (events, open, said) = (Vec::new(), BTreeMap::new(), VecDeque::new());
        Self {
            state: State::new(settings),
            relay: Relay { cursors, events, open, said },
            dice: seed.dice(),
            now: Moment(Duration::ZERO),
            up: false,
            spoken: VecDeque::new(),
            queue: VecDeque::new(),
            awaits_room: false,
            taken: Vec::new(),
            cuts_in_flight: 0,
            pauses: 0,
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        let room = CAPACITY - self.queue.len();
        let around = Surroundings {
            now: self.now,
            clock: clock(self.now),
            dice: backoff::Dice(self.dice.float()),
            room: &|_| room,
        };
        for output in self.state.handle(input, &around) {
            match output {
                Output::Connect => self.up = true,
                Output::Send(text) => self.spoken.push_back(text),
                Output::Show(_, item) => self.queue.push_back(item),
                Output::AwaitRoom(_) => {
                    self.awaits_room = true;
                    self.pauses += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(self.queue.len() <= CAPACITY, "the queue has overflowed");
        if std::mem::take(&mut self.up) {
            self.handle(Input::Opened);
        }
    }

    fn publish(&mut self) {
        let jitter = self.dice.range(-60..60);
        let id = EventId::from_bytes(self.dice.bytes());
        let created_at = clock(self.now).saturating_add(jitter);
        self.relay.publish(Event::parse(&event_with(id, created_at)).unwrap());
    }

    fn cut(&mut self) {
        self.cuts_in_flight += usize::from(!self.relay.said.is_empty());
        self.relay.said.clear();
        self.relay.open.clear();
        self.spoken.clear();
        self.handle(Input::Lost);
    }

    fn take(&mut self) {
        self.taken.extend(self.queue.pop_front());
        if self.queue.len() <= CAPACITY / 2 && std::mem::take(&mut self.awaits_room) {
            self.handle(Input::Room(SubKey(1)));
        }
    }

    fn step(&mut self) {
        match self.dice.weigh(&[(0, 12), (1, 60), (2, 40), (3, 2), (4, 26), (5, 20)]) {
            0 => self.publish(),
            1 => self.deliver(),
            2 => {
                if let Some(text) = self.spoken.pop_front() {
                    self.relay.hear(&text);
                }
            }
            3 => self.cut(),
            4 => self.take(),
            _ => {
                self.now = self.now + Duration::from_millis(self.dice.below(2000) as u64);
                self.handle(Input::Tick);
            }
        }
    }

    fn deliver(&mut self) {
        if let Some(text) = self.relay.said.pop_front() {
            self.handle(Input::Text(&text));
        }
    }

    /// Nothing is cut any more, and everyone gets to the end.
    fn settle(&mut self) {
        for _ in 0..STEPS * 20 {
            self.now = self.now + Duration::from_millis(100);
            self.handle(Input::Tick);
            self.deliver();
            self.take();
            if let Some(text) = self.spoken.pop_front() {
                self.relay.hear(&text);
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        let eose = self.taken.iter().position(|item| *item == Item::Eose).ok_or("no Eose")?;
        let mut seen = BTreeSet::new();
        for (nth, item) in self.taken.iter().enumerate() {
            let id = match item {
                Item::Stored(event) if nth < eose => event.id(),
                Item::Live(event) if nth > eose => event.id(),
                Item::Eose if nth == eose => continue,
                _ => return Err(format!("out of order: {item:?}")),
            };
            if !seen.insert(id) {
                return Err(format!("{id} twice"));
            }
        }
        let missed = self.relay.events.iter().filter(|event| !seen.contains(&event.id())).count();
        if missed > 0 { Err(format!("misses {missed}")) } else { Ok(()) }
    }
}

fn clock(now: Moment) -> UnixSeconds {
    CLOCK.saturating_add(now.0.as_secs() as i64)
}

/// How many cuts hit what was being said, and how often a queue was full.
fn run(seed: Seed, cursors: Cursors) -> Result<(usize, usize), String> {
    let mut simulation = Simulation::new(seed, cursors);
    (0..simulation.dice.below(20)).for_each(|_| simulation.publish());
    simulation.handle(Input::Opened);
    simulation.handle(Input::Subscribe(SubKey(1), vec![Filter::default()]));
    (0..STEPS).for_each(|_| simulation.step());
    simulation.settle();
    simulation.judge().map_err(|fault| format!("seed {seed}: {fault}"))?;
    Ok((simulation.cuts_in_flight, simulation.pauses))
}

fn run_all(seed: Seed, cursors: Cursors) {
    let (mut cuts, mut pauses) = (0, 0);
    for nth in 0..RUNS {
        let (cut, paused) = run(seed.part(nth), cursors).unwrap();
        cuts += cut;
        pauses += paused;
    }
    println!("{cuts} cuts hit what was being said, queues were full {pauses} times");
    assert!(cuts > 500 && pauses > 500, "too few: {cuts} cuts, {pauses} pauses");
}

#[test]
fn every_event_once_with_cursors() {
    run_all(Seed::of_run("-p kukuri-client every_event_once_with_cursors"), Cursors::Yes);
}

#[test]
fn every_event_once_without_cursors() {
    run_all(Seed::of_run("-p kukuri-client every_event_once_without_cursors"), Cursors::No);
}

#[test]
fn a_relay_that_forgets_is_noticed() {
    let seed = Seed::of_run("-p kukuri-client a_relay_that_forgets_is_noticed");
    let noticed = (0..100).filter(|nth| run(seed.part(*nth), Cursors::Broken).is_err()).count();
    assert!(noticed >= 30, "noticed in {noticed} of 100 runs");
}
