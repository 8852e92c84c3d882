//! From candidates to a page of results. What the candidates are is the same in every back end: of the
//! newest [`ROWS_MAX`] documents that have all terms, the newest [`CANDIDATES_MAX`] that match.

use kukuri_core::{Seq, TopicId};
use kukuri_event::{EventId, UnixSeconds};

use crate::cursor::{Cursor, CursorError};
use crate::document::Number;
use crate::query::{Query, QueryError};
use crate::rank::{Features, Score, score};
use crate::text::mix;

/// Matches that are ranked: with more, the newest ones.
pub const CANDIDATES_MAX: usize = 2000;
/// Documents with all terms that are looked at, so that no question costs more than so much.
pub const ROWS_MAX: usize = 10_000;
/// Results of a page.
pub const PAGE_HITS_MAX: usize = 500;
/// Lookups of one question: its terms in each of its topics.
pub const LOOKUPS_MAX: usize = 4096;

/// Why a question is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error("a search is within topics: name at least one")]
    NoTopic,
    #[error("too many words in too many topics: {LOOKUPS_MAX} terms times topics at most")]
    TooBroad,
}

/// Where to go on, or from when on the first page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    First { now: UnixSeconds },
    After(Cursor),
}

/// A question about documents of some topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub query: Query,
    /// Distinct, at least one.
    pub topics: Vec<TopicId>,
    pub since: Option<UnixSeconds>,
    pub until: Option<UnixSeconds>,
    pub start: Start,
    pub hits_max: usize,
}

impl Ask {
    /// The newest matches of some topics.
    pub fn new(text: &str, topics: Vec<TopicId>, start: Start) -> Result<Self, AskError> {
        let query = Query::parse(text)?;
        let mut topics = topics;
        topics.sort_unstable();
        topics.dedup();
        if topics.is_empty() {
            return Err(AskError::NoTopic);
        }
        if topics.len() * query.terms().len() > LOOKUPS_MAX {
            return Err(AskError::TooBroad);
        }
        let ask = Self { query, topics, since: None, until: None, start, hits_max: PAGE_HITS_MAX };
        if let Start::After(cursor) = start {
            cursor.check(ask.digest())?;
        }
        Ok(ask)
    }

    /// Tells questions apart: a cursor belongs to one of them.
    fn digest(&self) -> u64 {
        let topics = self.topics.iter().map(|topic| TopicKey::of(topic).0);
        topics.fold(self.query.digest(), |digest, topic| mix(digest ^ topic as u64))
    }

    /// Documents have a number from the first of these to the last.
    pub fn numbers(&self) -> (Number, Number) {
        let first = self.since.map_or(Number(0), Number::start_of);
        let after = |until: UnixSeconds| UnixSeconds(until.0.saturating_add(1));
        let last = self.until.map_or(i64::MAX, |until| Number::start_of(after(until)).0 - 1);
        (first, Number(last))
    }

    /// Documents that came later are not on the further pages of an answer.
    pub fn seq_max(&self) -> Seq {
        match self.start {
            Start::First { .. } => Seq(i64::MAX),
            Start::After(cursor) => cursor.seq_max,
        }
    }

    /// Where the answer goes on behind one of its results. `head` is up to where the documents had
    /// followed the feed.
    pub fn after(&self, hit: &Hit, head: Seq) -> Cursor {
        let seq_max = match self.start {
            Start::First { .. } => head,
            Start::After(cursor) => cursor.seq_max,
        };
        let (digest, now) = (self.digest(), self.now());
        Cursor { digest, now, seq_max, score: hit.score, number: hit.number }
    }

    fn now(&self) -> UnixSeconds {
        match self.start {
            Start::First { now } => now,
            Start::After(cursor) => cursor.now,
        }
    }
}

/// A document with all terms, as a back end found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub number: Number,
    pub event_id: EventId,
    pub topic: TopicKey,
    pub created_at: UnixSeconds,
    pub popularity: u32,
}

/// Stands for a topic in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicKey(pub i64);

impl TopicKey {
    pub fn of(topic: &TopicId) -> Self {
        let hash = blake3::hash(topic.as_str().as_bytes());
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        Self(i64::from_be_bytes(*first))
    }
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub event_id: EventId,
    pub topic_id: TopicId,
    pub created_at: UnixSeconds,
    pub score: Score,
    number: Number,
}

/// Results in their order, and where to go on if there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub hits: Vec<Hit>,
    pub next: Option<Cursor>,
}

/// Ranks candidates as they come, newest first, and makes the page that was asked for.
pub struct Ranking<'a> {
    ask: &'a Ask,
    topics: Vec<(TopicKey, &'a TopicId)>,
    rows: usize,
    hits: Vec<Hit>,
}

impl<'a> Ranking<'a> {
    pub fn new(ask: &'a Ask) -> Self {
        let topics = ask.topics.iter().map(|topic| (TopicKey::of(topic), topic)).collect();
        Self { ask, topics, rows: 0, hits: Vec::new() }
    }

    /// Whether more candidates can change anything.
    pub fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.hits.len() >= CANDIDATES_MAX
    }

    /// Looks at a document that has all terms and is within the numbers and the seq that the question
    /// allows. Newer ones must have come before it.
    pub fn look(&mut self, candidate: &Candidate, trail: &[u8]) {
        if self.is_full() {
            return;
        }
        // Another topic with the same terms by chance.
        let topic = self.topics.iter().find(|(key, _)| *key == candidate.topic);
        let Some((_, topic)) = topic else { return };
        self.rows += 1;
        let Candidate { number, event_id, created_at, popularity, .. } = *candidate;
        let features = Features { created_at, popularity, trail };
        if let Some(score) = score(&self.ask.query, self.ask.now(), &features) {
            let topic_id = (*topic).clone();
            self.hits.push(Hit { event_id, topic_id, created_at, score, number });
        }
    }

    /// The page. `head` is up to where the documents have followed the feed.
    pub fn page(mut self, head: Seq) -> Page {
        self.hits.sort_unstable_by_key(Hit::order);
        let begin = match self.ask.start {
            Start::First { .. } => 0,
            Start::After(cursor) => {
                let after = (std::cmp::Reverse(cursor.score), std::cmp::Reverse(cursor.number));
                self.hits.partition_point(|hit| hit.order() <= after)
            }
        };
        let mut hits = self.hits.split_off(begin);
        let more = hits.len() > self.ask.hits_max;
        hits.truncate(self.ask.hits_max);
        let next = hits.last().filter(|_| more).map(|last| self.ask.after(last, head));
        Page { hits, next }
    }
}

impl Hit {
    /// The best first; of equal ones the newest.
    fn order(&self) -> (std::cmp::Reverse<Score>, std::cmp::Reverse<Number>) {
        (std::cmp::Reverse(self.score), std::cmp::Reverse(self.number))
    }
}
