//! Reading the tail newest first, a few places at a time, so that its lock is held for moments.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Bound;

use kukuri_event::Filter;

use super::check::Candidate;
use super::plan::Stream;
use crate::tail::{Newest, TailAt, TailEvents};

const PLACES_AT_A_TIME: usize = 128;

pub(super) struct TailCursor<'a> {
    tail: TailAt<'a>,
    stream: &'a Stream,
    oldest: i64,
    /// Where the next places begin; `None` when there are no more.
    next_from: Option<Bound<Newest>>,
    rows: VecDeque<Candidate>,
}

impl<'a> TailCursor<'a> {
    pub(super) fn new(tail: TailAt<'a>, stream: &'a Stream, filter: &Filter) -> Self {
        let newest = filter.until.map_or(i64::MAX, |until| until.0);
        let oldest = filter.since.map_or(i64::MIN, |since| since.0);
        let next_from = Some(Bound::Included((Reverse(newest), i64::MIN)));
        Self { tail, stream, oldest, next_from, rows: VecDeque::new() }
    }

    /// The next event. Whether it is visible is for its row to say.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        while self.rows.is_empty() && self.next_from.is_some() {
            self.refill();
        }
        self.rows.pop_front()
    }

    fn refill(&mut self) {
        let Some(from) = self.next_from.take() else { return };
        let events = self.tail.segment.events();
        let places = places(&events, self.stream, from);
        let (oldest, head) = (self.oldest, self.tail.head.0);
        let last = places.last().filter(|_| places.len() == PLACES_AT_A_TIME);
        let last = last.filter(|(Reverse(created_at), _)| *created_at >= oldest);
        self.next_from = last.copied().map(Bound::Excluded);
        let wanted = places.iter().take_while(|(Reverse(created_at), _)| *created_at >= oldest);
        let wanted = wanted.filter(|(_, seq)| *seq <= head);
        self.rows.extend(wanted.map(|place| candidate(&events, *place)));
    }
}

/// The next places of a stream from one on.
fn places(events: &TailEvents, stream: &Stream, from: Bound<Newest>) -> Vec<Newest> {
    let (index, number) = match stream {
        Stream::Topic(topic_no) | Stream::TopicBodies(topic_no) => (&events.topics, *topic_no),
        Stream::Tag(key) => (&events.tags, *key),
        Stream::Author(author) => (&events.authors, *author),
    };
    let range = index.range((from.map(|place| (number, place)), Bound::Unbounded));
    let ours = range.take_while(|row| row.0 == number).map(|row| row.1);
    ours.take(PLACES_AT_A_TIME).collect()
}

fn candidate(events: &TailEvents, (Reverse(created_at), seq): Newest) -> Candidate {
    let event = &events.by_seq[&seq];
    let (kind, author) = (Some(event.kind), Some(event.author));
    Candidate { created_at, seq, kind, author, topic: None, body: None }
}
