//! Reading the tail newest first, a few places at a time, so that its lock is held for moments.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use kukuri_event::Filter;
use kukuri_store::StoreError;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::check::{Candidate, TopicCover};
use super::plan::Stream;
use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};
use crate::rows;
use crate::tail::{Newest, TailAt, TailEvents};

/// The most that are looked at together.
const PLACES_MAX: usize = 128;
/// How many are looked at once what was wanted did not do: most often it is only a few that share the
/// time of the last one.
const PLACES_MORE: usize = 16;

/// Rows come in the order asked for; those that are not visible do not come.
const VISIBLE: &str = "SELECT created_at, events.seq, event_id, expires_at, links, event_json
    FROM rarray(?1) AS wanted CROSS JOIN events ON events.seq = wanted.value AND state = 1";

pub(super) struct TailCursor<'a> {
    conn: &'a Connection,
    tail: TailAt<'a>,
    /// How many are looked at next, and how many after that.
    places: usize,
    places_next: usize,
    stream: &'a Stream,
    oldest: i64,
    /// Where the next places begin; `None` when there are no more.
    next_from: Option<Bound<Newest>>,
    rows: VecDeque<Candidate>,
}

impl<'a> TailCursor<'a> {
    /// So many places are looked at, at first: what is wanted may be all of the answer.
    pub(super) fn new(
        conn: &'a Connection,
        tail: TailAt<'a>,
        stream: &'a Stream,
        filter: &Filter,
        wanted: usize,
    ) -> Self {
        let newest = filter.until.map_or(i64::MAX, |until| until.0);
        let oldest = filter.since.map_or(i64::MIN, |since| since.0);
        let next_from = Some(Bound::Included((Reverse(newest), i64::MIN)));
        let places = wanted.clamp(1, PLACES_MAX);
        Self {
            conn,
            tail,
            places,
            stream,
            oldest,
            next_from,
            rows: VecDeque::new(),
            places_next: PLACES_MORE,
        }
    }

    /// The next event. Unless it comes with its topic, whether it is visible is for its row to say.
    pub(super) fn next(&mut self) -> Result<Option<Candidate>, StoreError> {
        while self.rows.is_empty() && self.next_from.is_some() {
            self.refill()?;
        }
        Ok(self.rows.pop_front())
    }

    fn refill(&mut self) -> Result<(), StoreError> {
        let Some(from) = self.next_from.take() else { return Ok(()) };
        let events = self.tail.segment.events();
        let places = places(&events, self.stream, from, self.places);
        let (oldest, head) = (self.oldest, self.tail.head.0);
        let last = places.last().filter(|_| places.len() == self.places);
        let next = (2 * self.places_next).min(PLACES_MAX);
        self.places = std::mem::replace(&mut self.places_next, next);
        let last = last.filter(|(Reverse(created_at), _)| *created_at >= oldest);
        self.next_from = last.copied().map(Bound::Excluded);
        let wanted = places.iter().take_while(|(Reverse(created_at), _)| *created_at >= oldest);
        let wanted = wanted.filter(|(_, seq)| *seq <= head);
        if let Stream::TopicBodies(topic_no) = self.stream {
            let seqs: Vec<Value> = wanted.map(|(_, seq)| Value::Integer(*seq)).collect();
            drop(events);
            return self.read_visible(*topic_no, seqs);
        }
        self.rows.extend(wanted.map(|place| candidate(&events, *place)));
        Ok(())
    }

    /// One statement for all of them, with their JSON.
    fn read_visible(&mut self, topic_no: i64, seqs: Vec<Value>) -> Result<(), StoreError> {
        let mut select = self.conn.prepare_cached(VISIBLE).or_store()?;
        let mut found = select.query([Rc::new(seqs)]).or_store()?;
        while let Some(row) = found.next().or_store()? {
            let links = row.get_ref(4).or_store()?.as_str().map_err(corrupt)?;
            let mut links = TopicNumbers::split_links(links);
            // A later batch may have taken the link away.
            if !links.any(|link| link.is_ok_and(|(topic, _)| topic == topic_no)) {
                continue;
            }
            let (event_id, expires_at) = (rows::event_id(row, 2)?, row.get(3).or_store()?);
            self.rows.push_back(Candidate {
                created_at: row.get(0).or_store()?,
                seq: row.get(1).or_store()?,
                kind: None,
                author: None,
                topic: Some(TopicCover { event_id, expires_at }),
                body: Some(row.get(5).or_store()?),
            });
        }
        Ok(())
    }
}

/// The next places of a stream from one on.
fn places(
    events: &TailEvents,
    stream: &Stream,
    from: Bound<Newest>,
    places_max: usize,
) -> Vec<Newest> {
    let (index, number) = match stream {
        Stream::Topic(topic_no) | Stream::TopicBodies(topic_no) => (&events.topics, *topic_no),
        Stream::Tag(key) => (&events.tags, *key),
        Stream::Author(author) => (&events.authors, *author),
    };
    let range = index.range((from.map(|place| (number, place)), Bound::Unbounded));
    let ours = range.take_while(|row| row.0 == number).map(|row| row.1);
    ours.take(places_max).collect()
}

fn candidate(events: &TailEvents, (Reverse(created_at), seq): Newest) -> Candidate {
    let event = &events.by_seq[&seq];
    let (kind, author) = (Some(event.kind), Some(event.author));
    Candidate { created_at, seq, kind, author, topic: None, body: None }
}
