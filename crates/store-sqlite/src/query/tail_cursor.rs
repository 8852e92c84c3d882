//! Reading the tail newest first, a few places at a time, so that its lock is held for moments.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use kukuri_event::Filter;

use super::check::Candidate;
use super::plan::Stream;
use crate::tail::{Newest, Segment, TailEvents};

const PLACES_AT_A_TIME: usize = 128;

pub(super) struct TailCursor<'a> {
    segment: &'a Segment,
    stream: &'a Stream,
    oldest: i64,
    /// Where the next places begin; `None` when there are no more.
    next_from: Option<Bound<Newest>>,
    places: VecDeque<Newest>,
}

impl<'a> TailCursor<'a> {
    pub(super) fn new(segment: &'a Segment, stream: &'a Stream, filter: &Filter) -> Self {
        let newest = filter.until.map_or(i64::MAX, |until| until.0);
        let oldest = filter.since.map_or(i64::MIN, |since| since.0);
        let next_from = Some(Bound::Included((Reverse(newest), i64::MIN)));
        Self { segment, stream, oldest, next_from, places: VecDeque::new() }
    }

    /// The next place. Whether its event is visible is for its row to say.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        if self.places.is_empty() {
            self.refill();
        }
        let (Reverse(created_at), seq) = self.places.pop_front()?;
        Some(Candidate { created_at, seq, kind: None, author: None, topic: None })
    }

    fn refill(&mut self) {
        let Some(from) = self.next_from.take() else { return };
        let events = self.segment.events();
        let Some(places) = index(&events, self.stream) else { return };
        let wanted = places
            .range((from, Bound::Unbounded))
            .take_while(|(Reverse(created_at), _)| *created_at >= self.oldest);
        self.places.extend(wanted.take(PLACES_AT_A_TIME));
        if self.places.len() == PLACES_AT_A_TIME {
            self.next_from = self.places.back().copied().map(Bound::Excluded);
        }
    }
}

fn index<'e>(events: &'e TailEvents, stream: &Stream) -> Option<&'e BTreeSet<Newest>> {
    match stream {
        Stream::Topic(topic_no) => events.topics.get(topic_no),
        Stream::Tag(tag, value) => events.tags.get(&(*tag, value.clone())),
        Stream::Author(author) => events.authors.get(author),
    }
}
