//! What is sent while faults happen: notes in bulk, and among them small worlds in which versions,
//! deletions and their targets come in any order; some lines come again.

use std::collections::HashMap;

use kukuri_core::{Act, Command, TopicId, UnixMillis};
use kukuri_event::{Event, EventId, UnixSeconds};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Store, StoreError};
use kukuri_testkit::generate::bulk::Bulk;
use kukuri_testkit::generate::{Seed, World};

/// The clock of every program in these tests, so that nothing expires under their hands.
pub const NOW: UnixSeconds = World::NOW;

/// Of a hundred lines, those from small worlds and those that were there before.
const WORLD_PERCENT: usize = 15;
const REPEATS_PERCENT: usize = 10;

const WORLD_EVENTS: usize = 50;
/// Less than the largest event that is taken in.
const LONG_NOTE_BYTES: usize = 48 * 1024;
const BULK_TOPICS: usize = 30;
const BULK_AUTHORS: u32 = 60;
const TOPICS_PER_BATCH: usize = 500;

/// Lines in the order in which they are sent, and the topics they need.
pub struct Load {
    pub lines: Vec<Line>,
    pub topics: Vec<TopicId>,
    texts: HashMap<EventId, String>,
}

#[derive(Clone)]
pub struct Line {
    pub id: EventId,
    pub text: String,
}

impl Load {
    /// The same seed gives the same lines.
    pub fn new(seed: Seed, lines: usize) -> Load {
        let repeats = lines * REPEATS_PERCENT / 100;
        let worlds = (lines * WORLD_PERCENT / 100).div_ceil(WORLD_EVENTS);
        let bulk = Bulk {
            seed,
            events: lines - repeats - worlds * WORLD_EVENTS,
            topics: BULK_TOPICS,
            authors: BULK_AUTHORS,
            until: NOW,
            events_per_second: 10,
        };
        let mut dice = seed.part(u64::MAX).dice();
        let mut topics: Vec<TopicId> =
            (0..BULK_TOPICS).map(|nth| topic(&bulk.topic(nth))).collect();
        let mut placed: Vec<(usize, Line)> =
            bulk.lines().into_iter().map(line).enumerate().collect();
        for lot in 0..worlds {
            let nth = u32::try_from(lot).expect("there are few worlds");
            let world = World::new(seed.part(lot as u64), nth, WORLD_EVENTS);
            let events = world.events.iter().map(|event| line(event.event().to_json()));
            placed.extend(events.map(|line| (dice.below(lines), line)));
            topics.extend(world.topics);
        }
        for _ in 0..repeats {
            let (_, line) = dice.pick(&placed).clone();
            placed.push((dice.below(lines), line));
        }
        placed.sort_by_key(|(place, _)| *place);
        Load::of(placed.into_iter().map(|(_, line)| line).collect(), topics)
    }

    pub fn of(lines: Vec<Line>, topics: Vec<TopicId>) -> Load {
        let texts = lines.iter().map(|line| (line.id, line.text.clone())).collect();
        Load { lines, topics, texts }
    }

    /// The same lines after so many bytes of long notes.
    pub fn after_long_notes(mut self, bytes: usize) -> Load {
        let author = Author::numbered(u32::MAX);
        let mut lines: Vec<Line> = (0..bytes / LONG_NOTE_BYTES)
            .map(|nth| {
                let draft = Draft::new(1, NOW).tag("t", &self.topics[0]).tag("nth", nth);
                line(author.sign(&draft.content("x".repeat(LONG_NOTE_BYTES))))
            })
            .collect();
        lines.append(&mut self.lines);
        Load::of(lines, self.topics)
    }

    pub fn text(&self, id: &EventId) -> Option<&str> {
        self.texts.get(id).map(String::as_str)
    }

    /// Makes a store carry the topics.
    pub async fn carry(&self, store: &dyn Store) -> Result<(), StoreError> {
        let commands: Vec<Command> = self.topics.iter().map(enable).collect();
        for batch in commands.chunks(TOPICS_PER_BATCH) {
            store.apply(batch.into()).await?;
        }
        Ok(())
    }
}

fn enable(topic_id: &TopicId) -> Command {
    let act = Act::carry(topic_id.clone(), "");
    Command { at: UnixMillis::from(NOW), act }
}

pub fn line(text: String) -> Line {
    let event = Event::parse(&text).expect("a generated text is an event");
    Line { id: event.id(), text }
}

fn topic(text: &str) -> TopicId {
    TopicId::parse(text).expect("the load names canonical topics")
}
