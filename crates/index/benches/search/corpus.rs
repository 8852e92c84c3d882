//! Posts as people write them, as far as their words go: half in a script with spaces, half in one
//! without, and words as unequal as words are.

use kukuri_core::{Mapping, NetworkId, TopicId};
use kukuri_event::Event;
use kukuri_testkit::generate::{Dice, Seed};

pub const NOW: i64 = 1_790_000_000;

const WORDS: f64 = 200_000.0;
const WORDS_PER_POST: usize = 30;
const CHARS: f64 = 3000.0;
const CHARS_PER_POST: usize = 60;
/// Between one post and the next.
const POSTS_PER_SECOND: i64 = 4;

/// How many posts have a word, of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// Fewer than 100.
    Rare,
    Medium,
    /// More than 50 000.
    Common,
}

impl Frequency {
    pub const ALL: [Self; 3] = [Self::Rare, Self::Medium, Self::Common];

    /// The ranks of words that are as frequent: the word of rank r is in about 1.2 million / r of a
    /// million posts.
    fn ranks(self) -> std::ops::Range<i64> {
        match self {
            Self::Rare => 15_000..150_000,
            Self::Medium => 30..10_000,
            Self::Common => 1..20,
        }
    }
}

pub struct Corpus {
    pub documents: usize,
    pub topics: Vec<TopicId>,
    dice: Dice,
    made: i64,
}

impl Corpus {
    pub fn new(documents: usize, topics: usize) -> Self {
        let network = NetworkId::default();
        let topic = |nth: usize| TopicId::from_name(&nth.to_string(), &network, Mapping::V1);
        let topics = (0..topics).map(|nth| topic(nth).expect("a number names a topic")).collect();
        Self { documents, topics, dice: Seed::of_run("search bench").dice(), made: 0 }
    }

    pub fn batch(&mut self, count: usize) -> Vec<(Event, TopicId)> {
        (0..count).map(|_| self.post()).collect()
    }

    fn post(&mut self) -> (Event, TopicId) {
        self.made += 1;
        let content = if self.made % 2 == 0 { self.words() } else { self.chars() };
        let age = (self.documents as i64 - self.made) / POSTS_PER_SECOND;
        let topic = self.dice.pick(&self.topics).clone();
        let json = serde_json::json!({
            "id": hex::encode(self.dice.bytes()),
            "pubkey": hex::encode(self.dice.bytes()),
            "created_at": NOW - age,
            "kind": 1,
            "tags": [["t", topic.as_str()]],
            "content": content,
            "sig": "00".repeat(64),
        });
        (Event::parse(&json.to_string()).expect("an event"), topic)
    }

    fn words(&mut self) -> String {
        let words = (0..WORDS_PER_POST).map(|_| word(WORDS.powf(self.dice.float()) as i64));
        words.collect::<Vec<_>>().join(" ")
    }

    fn chars(&mut self) -> String {
        let mut text = String::new();
        for nth in 0..CHARS_PER_POST {
            let rank = CHARS.powf(self.dice.float()) as u32;
            text.extend(char::from_u32(u32::from('一') + rank));
            if nth % 20 == 19 {
                text.push('。');
            }
        }
        text
    }

    /// Six in ten are rare, three medium, one common.
    pub fn question(&mut self, nth: usize) -> (Frequency, String, TopicId) {
        let frequency = match nth % 10 {
            0..6 => Frequency::Rare,
            6..9 => Frequency::Medium,
            _ => Frequency::Common,
        };
        let topic = self.dice.pick(&self.topics).clone();
        (frequency, word(self.dice.range(frequency.ranks())), topic)
    }
}

/// Of letters, about as long as words are.
fn word(rank: i64) -> String {
    let mut rest = rank as u64;
    let mut word = String::from("w");
    while rest > 0 {
        word.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    word
}
