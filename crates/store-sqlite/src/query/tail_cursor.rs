//! Reading the tail newest first, a few places at a time, so that its lock is held for moments.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use kukuri_event::EventId;
use kukuri_store::{Order, StoreError};
use rusqlite::types::Value;

use super::check::{Candidate, Check, TopicCover};
use super::plan::Stream;
use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};
use crate::rows;
use crate::tail::TailEvents;

/// The most that are looked at together.
const PLACES_MAX: usize = 128;
/// How many are looked at once what was wanted did not do: most often it is only a few that share the
/// time of the last one.
const PLACES_MORE: usize = 16;

/// Rows come in the order asked for; those that are not visible do not come.
const VISIBLE: &str = "SELECT created_at, events.seq, event_id, expires_at, links, event_json
    FROM rarray(?1) AS wanted CROSS JOIN events ON events.seq = wanted.value AND state = 1";

pub(super) struct TailCursor<'a> {
    check: &'a Check<'a>,
    /// How many are looked at next, and how many after that.
    places: usize,
    places_next: usize,
    stream: &'a Stream,
    oldest: i64,
    /// Where the next places begin; `None` when there are no more.
    next_from: Option<Bound<Place>>,
    rows: VecDeque<Candidate>,
}

/// A place in an index of the tail. As in the tables, what is of a topic comes by ids within a second, and the
/// rest in any order: each place costs the query a row, wherever it lies.
#[derive(Clone, Copy)]
struct Place {
    created_at: i64,
    id: Option<EventId>,
    seq: i64,
}

impl<'a> TailCursor<'a> {
    /// So many places are looked at, at first: what is wanted may be all of the answer.
    pub(super) fn new(check: &'a Check<'a>, stream: &'a Stream, wanted: usize) -> Self {
        let oldest = check.filter.since.map_or(i64::MIN, |since| since.0);
        let places = wanted.clamp(1, PLACES_MAX);
        let next_from = Some(begin(check, stream));
        let (places_next, rows) = (PLACES_MORE, VecDeque::new());
        Self { check, places, places_next, stream, oldest, next_from, rows }
    }

    /// The next event. Unless it comes with its topic, whether it is visible is for its row to say.
    pub(super) fn next(&mut self) -> Result<Option<Candidate>, StoreError> {
        while self.rows.is_empty()
            && let Some(from) = self.next_from.take()
        {
            self.refill(from)?;
        }
        Ok(self.rows.pop_front())
    }

    /// Looks at some more places.
    fn refill(&mut self, from: Bound<Place>) -> Result<(), StoreError> {
        let next = (2 * self.places_next).min(PLACES_MAX);
        let count = std::mem::replace(&mut self.places, self.places_next);
        self.places_next = next;
        let segment = self.check.tail.segment;
        let events = segment.events();
        let mut places = places(&events, self.stream, from, count);
        let is_older = |place: &Place| place.created_at < self.oldest;
        let last = places.last().filter(|last| places.len() == count && !is_older(last));
        self.next_from = last.copied().map(Bound::Excluded);
        let head = self.check.tail.head.0;
        places.retain(|place| place.seq <= head && !is_older(place));
        if let Stream::TopicBodies(topic_no) = self.stream {
            let seqs = places.iter().map(|place| Value::Integer(place.seq)).collect();
            drop(events);
            return self.read_visible(*topic_no, seqs);
        }
        self.rows.extend(places.into_iter().map(|place| candidate(&events, place)));
        Ok(())
    }

    /// One statement for all of them, with their JSON.
    fn read_visible(&mut self, topic_no: i64, seqs: Vec<Value>) -> Result<(), StoreError> {
        let mut select = self.check.conn.prepare_cached(VISIBLE).or_store()?;
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
                id: Some(event_id),
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

/// Where the places of an answer begin.
fn begin(check: &Check<'_>, stream: &Stream) -> Bound<Place> {
    let newest = check.query.until(check.filter).map_or(i64::MAX, |until| until.0);
    match (stream, check.query.after) {
        (Stream::Topic(_) | Stream::TopicBodies(_), Some(Order(Reverse(second), id)))
            if second.0 == newest =>
        {
            Bound::Excluded(Place { created_at: newest, id: Some(id), seq: i64::MAX })
        }
        _ => Bound::Included(Place { created_at: newest, id: None, seq: i64::MIN }),
    }
}

/// So many places of a stream from one on, or as many as there are.
fn places(events: &TailEvents, stream: &Stream, from: Bound<Place>, count: usize) -> Vec<Place> {
    match stream {
        Stream::Topic(topic_no) | Stream::TopicBodies(topic_no) => {
            let least = EventId::from_bytes([0; 32]);
            let key = |of: Place| (Reverse(of.created_at), of.id.unwrap_or(least), of.seq);
            let found = range(&events.topics, *topic_no, from.map(key)).take(count);
            let place = |(Reverse(created_at), id, seq)| Place { created_at, id: Some(id), seq };
            found.map(place).collect()
        }
        Stream::Tag(number) | Stream::Author(number) => {
            let index = match stream {
                Stream::Tag(_) => &events.tags,
                _ => &events.authors,
            };
            let key = |of: Place| (Reverse(of.created_at), of.seq);
            let found = range(index, *number, from.map(key)).take(count);
            found.map(|(Reverse(created_at), seq)| Place { created_at, id: None, seq }).collect()
        }
    }
}

/// What an index has under a number, from a place on.
fn range<T: Copy + Ord>(
    index: &BTreeSet<(i64, T)>,
    number: i64,
    from: Bound<T>,
) -> impl Iterator<Item = T> {
    let rest = index.range((from.map(|place| (number, place)), Bound::Unbounded));
    rest.take_while(move |row| row.0 == number).map(|row| row.1)
}

fn candidate(events: &TailEvents, Place { created_at, id, seq }: Place) -> Candidate {
    let event = &events.by_seq[&seq];
    let (kind, author) = (Some(event.kind), Some(event.author));
    Candidate { created_at, id, seq, kind, author, topic: None, body: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: i64 = 7;
    const CROWD: i64 = 10_000;

    fn id(nth: i64) -> EventId {
        let mut bytes = [0; 32];
        // Ids in an order of their own.
        bytes[..8]
            .copy_from_slice(&nth.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).to_be_bytes());
        EventId::from_bytes(bytes)
    }

    /// A question looked at every event of a second, and sorted them, however few it wanted.
    #[test]
    fn a_page_of_a_crowded_second_is_a_page() {
        let mut events = TailEvents::default();
        for nth in 0..CROWD {
            events.topics.insert((TOPIC, (Reverse(5), id(nth), nth)));
            events.topics.insert((TOPIC + 1, (Reverse(5), id(nth), nth)));
        }
        let stream = Stream::Topic(TOPIC);
        let mut from = Bound::Included(Place { created_at: 9, id: None, seq: i64::MIN });
        let mut seen = Vec::new();
        loop {
            let page = places(&events, &stream, from, PLACES_MAX);
            seen.extend(page.iter().filter_map(|place| place.id));
            let Some(last) = page.last().filter(|_| page.len() == PLACES_MAX) else { break };
            from = Bound::Excluded(*last);
        }
        assert_eq!(seen.len() as i64, CROWD);
        assert!(seen.is_sorted());
        // Whoever goes on after an id begins there.
        let after = Place { created_at: 5, id: Some(seen[9000]), seq: i64::MAX };
        let page = places(&events, &stream, Bound::Excluded(after), 2);
        assert_eq!(page.iter().filter_map(|place| place.id).collect::<Vec<_>>(), seen[9001..9003]);
    }
}
