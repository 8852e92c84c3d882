//! Events by the hundred thousand, as a busy community writes them: for imports and measurements.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};

use super::{Dice, Seed};

/// Answers name events of their own chunk alone, so that chunks can be signed side by side and the
/// lines do not depend on the number of cores.
const EVENTS_PER_CHUNK: usize = 1000;

/// How many chunks may wait for the reader, per core.
const CHUNKS_READY_MAX: usize = 2;

/// How popularity falls: the nth topic is 1/n as popular as the first.
const ZIPF_EXPONENT: f64 = 1.0;

/// Short notes: ids, keys and the signature are most of an event anyway.
const CONTENT_BYTES: std::ops::Range<i64> = 1..40;

/// Of a hundred events of a topic, those that the next ones answer: about twenty answers each.
const ROOTS_PERCENT: u32 = 5;

/// What to make.
#[derive(Clone, Debug)]
pub struct Bulk {
    pub seed: Seed,
    pub events: usize,
    pub topics: usize,
    pub authors: u32,
    /// The `created_at` of the last event.
    pub until: UnixSeconds,
    /// How many events share a second.
    pub events_per_second: usize,
}

impl Bulk {
    /// The load that measurements speak of: 500 topics, 5 000 authors.
    pub fn standard(seed: Seed, events: usize, until: UnixSeconds) -> Bulk {
        Bulk { seed, events, topics: 500, authors: 5_000, until, events_per_second: 10 }
    }

    /// The nth most popular topic, counted from zero.
    pub fn topic(&self, nth: usize) -> String {
        let mut dice = self.seed.part(u64::MAX - nth as u64).dice();
        let digits = kukuri_event::EventId::from_bytes(dice.bytes());
        format!("kukuri:{digits}")
    }

    /// The JSON of all events, oldest first, in pieces, signed on all cores.
    fn chunks(&self) -> impl Iterator<Item = Vec<String>> {
        let chunks = self.events.div_ceil(EVENTS_PER_CHUNK);
        let workers = thread::available_parallelism().map_or(1, usize::from).min(chunks.max(1));
        let cast = std::sync::Arc::new(Cast::new(self));
        let lines: Vec<Receiver<Vec<String>>> = (0..workers)
            .map(|worker| {
                let (sender, receiver) = sync_channel(CHUNKS_READY_MAX);
                let cast = cast.clone();
                thread::spawn(move || {
                    let mut mine = (worker..chunks).step_by(workers);
                    // A reader that has gone away ends the work.
                    while mine.next().is_some_and(|nth| sender.send(cast.chunk(nth)).is_ok()) {}
                });
                receiver
            })
            .collect();
        (0..chunks).map(move |nth| {
            let chunk = lines[nth % workers].recv();
            chunk.expect("a worker sends all its chunks")
        })
    }

    /// The same, as one list.
    pub fn lines(&self) -> Vec<String> {
        self.chunks().flatten().collect()
    }
}

/// Who takes part: made once, shared by all cores.
struct Cast {
    bulk: Bulk,
    authors: Vec<Author>,
    topics: Vec<String>,
    /// The share of the topics up to each, of all events.
    shares: Vec<f64>,
}

impl Cast {
    fn new(bulk: &Bulk) -> Cast {
        let weights = (1..=bulk.topics).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT));
        let total: f64 = weights.clone().sum();
        let shares = weights.scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        });
        Cast {
            authors: (0..bulk.authors).map(|nth| Author::numbered(1_000_000 + nth)).collect(),
            topics: (0..bulk.topics).map(|nth| bulk.topic(nth)).collect(),
            shares: shares.collect(),
            bulk: bulk.clone(),
        }
    }

    fn chunk(&self, nth: usize) -> Vec<String> {
        let first = nth * EVENTS_PER_CHUNK;
        let last = (first + EVENTS_PER_CHUNK).min(self.bulk.events);
        let mut dice = self.bulk.seed.part(nth as u64).dice();
        // The newest event of each topic in this chunk: what an answer answers.
        let mut newest: Vec<Option<(String, usize)>> = vec![None; self.topics.len()];
        let mut lines = Vec::with_capacity(last - first);
        for position in first..last {
            let author = dice.below(self.authors.len());
            let topic = self.topic(&mut dice);
            let draft = self.draft(position, topic, newest[topic].as_ref(), &mut dice);
            let line = self.authors[author].sign(&draft);
            if newest[topic].is_none() || dice.chance(ROOTS_PERCENT) {
                newest[topic] = Some((id_of(&line), author));
            }
            lines.push(line);
        }
        lines
    }

    fn topic(&self, dice: &mut Dice) -> usize {
        let at = dice.float();
        self.shares.partition_point(|share| *share < at).min(self.topics.len() - 1)
    }

    /// Mostly notes and reactions, with two `e` or `p` tags on average, and some versions.
    fn draft(
        &self,
        position: usize,
        topic: usize,
        answers: Option<&(String, usize)>,
        dice: &mut Dice,
    ) -> Draft {
        let seconds = ((self.bulk.events - 1 - position) / self.bulk.events_per_second) as i64;
        let kind = dice.weigh(&[(1, 70), (7, 24), (10_002, 2), (30_023, 4)]);
        let created_at = self.bulk.until.saturating_sub(seconds);
        let mut draft = Draft::new(kind, created_at).tag("t", &self.topics[topic]);
        if kind == 30_023 {
            draft = draft.tag("d", dice.below(1000));
        }
        let mentioned = dice.below(self.authors.len());
        let (event, author) = match answers {
            Some((event, author)) => (event.clone(), *author),
            None => (kukuri_event::EventId::from_bytes(dice.bytes()).to_hex(), mentioned),
        };
        for _ in 0..dice.weigh(&[(0, 10), (1, 20), (2, 40), (3, 20), (4, 10)]) {
            draft = match draft.tags.iter().any(|tag| tag[0] == "e") {
                false => draft.tag("e", &event),
                true if draft.tags.len() == 2 => draft.tag("p", self.authors[author].pubkey()),
                true => draft.tag("p", self.authors[dice.below(self.authors.len())].pubkey()),
            };
        }
        draft.content("x".repeat(usize::try_from(dice.range(CONTENT_BYTES)).unwrap_or_default()))
    }
}

fn id_of(line: &str) -> String {
    let from = line.find(r#""id":""#).expect("an event has an id") + r#""id":""#.len();
    line[from..from + 64].to_owned()
}
