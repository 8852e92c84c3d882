//! Reading the tail newest first, a few places at a time, so that its lock is held for moments.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use kukuri_store::{Hit, StoreError};
use rusqlite::types::Value;

use super::check::{Candidate, Check, TopicCover};
use super::plan::Stream;
use crate::desk::TopicNumbers;
use crate::error::{OrStore, corrupt};
use crate::rows;
use crate::tail::{Newest, TailEvents};

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
    next_from: Option<Bound<Newest>>,
    /// Places of whole seconds, in the order of the answer.
    sorted: VecDeque<Newest>,
    rows: VecDeque<Candidate>,
}

impl<'a> TailCursor<'a> {
    /// So many places are looked at, at first: what is wanted may be all of the answer.
    pub(super) fn new(check: &'a Check<'a>, stream: &'a Stream, wanted: usize) -> Self {
        let newest = check.query.until(check.filter).map_or(i64::MAX, |until| until.0);
        let oldest = check.filter.since.map_or(i64::MIN, |since| since.0);
        let next_from = Some(Bound::Included((Reverse(newest), i64::MIN)));
        let places = wanted.clamp(1, PLACES_MAX);
        Self {
            check,
            places,
            places_next: PLACES_MORE,
            stream,
            oldest,
            next_from,
            sorted: VecDeque::new(),
            rows: VecDeque::new(),
        }
    }

    /// The next event. Unless it comes with its topic, whether it is visible is for its row to say.
    pub(super) fn next(&mut self) -> Result<Option<Candidate>, StoreError> {
        while self.rows.is_empty() && !(self.sorted.is_empty() && self.next_from.is_none()) {
            self.refill()?;
        }
        Ok(self.rows.pop_front())
    }

    fn refill(&mut self) -> Result<(), StoreError> {
        let segment = self.check.tail.segment;
        let events = segment.events();
        if self.sorted.is_empty() {
            self.sort_more(&events);
        }
        let next = (2 * self.places_next).min(PLACES_MAX);
        let places = std::mem::replace(&mut self.places, self.places_next);
        self.places_next = next;
        let places = self.sorted.drain(..places.min(self.sorted.len()));
        if let Stream::TopicBodies(topic_no) = self.stream {
            let seqs: Vec<Value> = places.map(|(_, seq)| Value::Integer(seq)).collect();
            drop(events);
            return self.read_visible(*topic_no, seqs);
        }
        self.rows.extend(places.map(|place| candidate(&events, place)));
        Ok(())
    }

    /// Looks at some more places, and at those that share the time of the last one.
    fn sort_more(&mut self, events: &TailEvents) {
        let Some(from) = self.next_from.take() else { return };
        let mut places = places(events, self.stream, from).peekable();
        let (mut found, mut last) = (Vec::with_capacity(self.places), None);
        while let Some(place) =
            places.next_if(|(at, _)| found.len() < self.places || last == Some(*at))
        {
            last = Some(place.0);
            found.push(place);
        }
        let oldest = self.oldest;
        let is_older = |(Reverse(created_at), _): &Newest| *created_at < oldest;
        let rest = found.last().filter(|last| places.peek().is_some() && !is_older(last));
        self.next_from = rest.copied().map(Bound::Excluded);
        let (head, query) = (self.check.tail.head.0, self.check.query);
        found.retain(|place| place.1 <= head && !is_older(place));
        // Most have a second for themselves, and their ids need not be looked up.
        for second in found.chunk_by_mut(|one, next| one.0 == next.0) {
            if second.len() > 1 {
                second.sort_by_cached_key(|(_, seq)| events.by_seq[seq].id);
            }
        }
        if query.after.is_some() {
            found.retain(|place| query.is_ahead(&hit(events, *place)));
        }
        self.sorted = found.into();
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

/// The places of a stream from one on.
fn places<'e>(
    events: &'e TailEvents,
    stream: &Stream,
    from: Bound<Newest>,
) -> impl Iterator<Item = Newest> + use<'e> {
    let (index, number) = match stream {
        Stream::Topic(topic_no) | Stream::TopicBodies(topic_no) => (&events.topics, *topic_no),
        Stream::Tag(key) => (&events.tags, *key),
        Stream::Author(author) => (&events.authors, *author),
    };
    let range = index.range((from.map(|place| (number, place)), Bound::Unbounded));
    range.take_while(move |row| row.0 == number).map(|row| row.1)
}

fn hit(events: &TailEvents, (Reverse(created_at), seq): Newest) -> Hit {
    let (created_at, id) = (UnixSeconds(created_at), events.by_seq[&seq].id);
    Hit { event: Seq(seq), created_at, id }
}

fn candidate(events: &TailEvents, (Reverse(created_at), seq): Newest) -> Candidate {
    let event = &events.by_seq[&seq];
    let (kind, author) = (Some(event.kind), Some(event.author));
    Candidate { created_at, id: Some(event.id), seq, kind, author, topic: None, body: None }
}
