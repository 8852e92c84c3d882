//! What comes in on one day.

use kukuri_core::Source;
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::generate::Dice;
use kukuri_testkit::spec::Event;

use crate::rig::topic;

const AUTHORS: u32 = 5;
const PER_DAY: std::ops::Range<i64> = 6..16;
const CONTENT_BYTES: usize = 1500;
/// So much that a burst of them is many times what is there otherwise.
const BURST_CONTENT_BYTES: usize = 12_000;
const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;

#[derive(Clone, Copy)]
enum Arrival {
    Note,
    Profile,
    Article,
    Deletion,
    Again,
    /// A deletion of what comes only later.
    Ahead,
}

const ARRIVALS: &[(Arrival, u32)] = &[
    (Arrival::Note, 46),
    (Arrival::Profile, 6),
    (Arrival::Article, 12),
    (Arrival::Deletion, 10),
    (Arrival::Again, 24),
    (Arrival::Ahead, 2),
];

pub struct Traffic {
    dice: Dice,
    topics: Vec<char>,
    authors: Vec<Author>,
    /// Everything that was ever made, sent or not.
    made: Vec<(u32, String)>,
}

impl Traffic {
    pub fn new(dice: Dice, topics: Vec<char>) -> Self {
        let authors = (0..AUTHORS).map(Author::numbered).collect();
        Self { dice, topics, authors, made: Vec::new() }
    }

    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    pub fn day(&mut self, now: UnixSeconds) -> Vec<(String, Source)> {
        let count = self.dice.range(PER_DAY);
        (0..count).map(|_| (self.arrival(now), self.source())).collect()
    }

    /// So many long notes of one topic at once.
    pub fn burst(&mut self, now: UnixSeconds, digit: char, count: usize) -> Vec<(String, Source)> {
        let note = |nth| {
            let draft = Draft::new(1, now).tag("t", topic(digit)).tag("r", nth);
            (self.authors[0].sign(&draft.content("x".repeat(BURST_CONTENT_BYTES))), Source::Ws)
        };
        (0..count).map(note).collect()
    }

    fn source(&mut self) -> Source {
        let sources = [Source::Ws, Source::Gossip, Source::Backfill, Source::Import];
        *self.dice.pick(&sources)
    }

    fn arrival(&mut self, now: UnixSeconds) -> String {
        let arrival = self.dice.weigh(ARRIVALS);
        match arrival {
            Arrival::Again if !self.made.is_empty() => {
                // Mostly of late, sometimes of long ago.
                let from =
                    if self.dice.chance(60) { self.made.len().saturating_sub(60) } else { 0 };
                self.dice.pick(&self.made[from..]).1.clone()
            }
            Arrival::Deletion if !self.made.is_empty() => self.deletion(now),
            Arrival::Profile => self.version(now, &[0, 10_002]),
            Arrival::Article => self.version(now, &[30_023]),
            Arrival::Ahead => {
                self.note(now);
                let (author, text) = self.made.last().expect("a note was made").clone();
                let id = Event::read(&text).id;
                self.sign(author, Draft::new(5, now).tag("e", id))
            }
            _ => self.note(now),
        }
    }

    /// Mostly of the last hour, some from long ago, some from a clock that is ahead.
    fn time(&mut self, now: UnixSeconds) -> UnixSeconds {
        let age = match self.dice.weigh(&[(0, 80), (1, 14), (2, 6)]) {
            0 => self.dice.range(0..HOUR),
            1 => self.dice.range(HOUR..185 * DAY),
            _ => -self.dice.range(0..14 * 60),
        };
        UnixSeconds(now.0 - age)
    }

    fn note(&mut self, now: UnixSeconds) -> String {
        let author = self.author();
        let time = self.time(now);
        let draft = self.expiring(Draft::new(1, time).tag("r", time.0), now);
        self.sign(author, draft)
    }

    fn version(&mut self, now: UnixSeconds, kinds: &[u16]) -> String {
        let (author, time) = (self.author(), self.time(now));
        let mut draft = Draft::new(*self.dice.pick(kinds), time);
        if draft.kind.0 >= 30_000 {
            draft = draft.tag("d", self.dice.below(4));
        }
        let draft = self.expiring(draft, now);
        self.sign(author, draft)
    }

    fn expiring(&mut self, draft: Draft, now: UnixSeconds) -> Draft {
        match self.dice.chance(15) {
            true => draft.tag("expiration", now.0 + self.dice.range(HOUR..40 * DAY)),
            false => draft,
        }
    }

    /// By id and by address, sometimes of what is somebody else's.
    fn deletion(&mut self, now: UnixSeconds) -> String {
        let from = self.made.len().saturating_sub(150);
        let (mut author, text) = self.dice.pick(&self.made[from..]).clone();
        let target = Event::read(&text);
        if self.dice.chance(15) {
            author = self.author();
        }
        let mut draft = Draft::new(5, UnixSeconds(now.0 - self.dice.range(0..HOUR)));
        draft = match target.key() {
            Some((kind, pubkey, d)) if self.dice.chance(50) => {
                draft.tag("a", format!("{kind}:{pubkey}:{d}"))
            }
            _ => draft.tag("e", &target.id),
        };
        self.sign(author, draft)
    }

    fn author(&mut self) -> u32 {
        u32::try_from(self.dice.below(self.authors.len())).expect("few authors")
    }

    fn sign(&mut self, author: u32, mut draft: Draft) -> String {
        let topics = self.dice.some(&self.topics, 2);
        draft = topics.into_iter().fold(draft, |draft, digit| draft.tag("t", topic(digit)));
        // Drafts that say the same are different events.
        let nth = self.made.len();
        draft = draft.tag("nth", nth).content("x".repeat(self.dice.below(CONTENT_BYTES)));
        let text = self.authors[author as usize].sign(&draft);
        self.made.push((author, text.clone()));
        text
    }
}
