//! What has aged leaves in the order of its dates, whatever its topics: events that came together lie
//! together in a store, and a page that many of them leave at once is written once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use kukuri_core::{Act, Cutoffs, Look, TopicId, UnixMillis, UnlinkReason};
use kukuri_event::EventId;
use kukuri_store::{Dated, Store, StoreError};

/// Events that are looked for at once in one topic: whoever looks passes by what stays, and by what has
/// left and was not cleared away yet.
const LOOK_EVENTS_MAX: usize = 8_000;
/// How many they are in the beginning: a topic of few events need not be looked at far ahead.
const LOOK_EVENTS_FIRST: usize = 256;
/// Events of all topics that are known ahead, however many topics there are (but one of each).
const KNOWN_EVENTS_MAX: usize = 256 * 1024;

/// What has aged in several topics, and what is known of it so far.
#[derive(Debug, Default)]
pub struct Aging {
    streams: Vec<Stream>,
    /// Events that are looked for at once in one topic: its share of what may be known.
    look_events_max: usize,
    failed: Option<StoreError>,
}

/// What has aged in one topic.
#[derive(Debug)]
struct Stream {
    topic: TopicId,
    cutoffs: Cutoffs,
    reason: UnlinkReason,
    /// Found and not sent yet, the oldest last.
    found: Vec<Dated>,
    /// How many are looked for next.
    look_events: usize,
    looked: Looked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    NotYet,
    /// There may be more than was found. Of that, so many have left.
    AtSome {
        left: u64,
    },
    AtAll,
}

impl Aging {
    /// What a plan says has aged. Other looks are not for this.
    pub fn planned<'a>(looks: impl IntoIterator<Item = &'a Look>) -> Self {
        let aged = looks.into_iter().filter_map(|look| match look {
            Look::Aged { topic, cutoffs } => {
                Some((topic.clone(), *cutoffs, UnlinkReason::Retention))
            }
            _ => None,
        });
        Self::of(aged)
    }

    /// What was taken into topics before a time, whatever they keep.
    pub fn before(topics: impl IntoIterator<Item = TopicId>, time: UnixMillis) -> Self {
        let (cutoffs, reason) = (cutoffs_before(time), UnlinkReason::Before(time));
        Self::of(topics.into_iter().map(|topic| (topic, cutoffs, reason)))
    }

    fn of(topics: impl Iterator<Item = (TopicId, Cutoffs, UnlinkReason)>) -> Self {
        let stream = |(topic, cutoffs, reason)| Stream {
            topic,
            cutoffs,
            reason,
            found: Vec::new(),
            look_events: LOOK_EVENTS_FIRST,
            looked: Looked::NotYet,
        };
        let mut streams: Vec<Stream> = topics.map(stream).collect();
        let share = KNOWN_EVENTS_MAX / streams.len().max(1);
        let look_events_max = share.clamp(1, LOOK_EVENTS_MAX);
        for stream in &mut streams {
            stream.look_events = look_events_max.min(LOOK_EVENTS_FIRST);
        }
        Self { streams, look_events_max, failed: None }
    }

    /// A topic of which nothing is known, though there may be more.
    pub(super) fn blank(&self) -> Option<usize> {
        self.streams.iter().position(Stream::is_blank)
    }

    /// Looks for more in a topic. One that cannot be looked at is left out from then on, so that the others
    /// get their turn.
    pub(super) async fn look(&mut self, nth: usize, store: &dyn Store) {
        let stream = &mut self.streams[nth];
        let looked_for = stream.look_events;
        stream.look_events = looked_for.saturating_mul(2).min(self.look_events_max);
        stream.looked = Looked::AtAll;
        match store.aged(stream.topic.clone(), stream.cutoffs, looked_for).await {
            Err(error) => {
                self.failed.get_or_insert(error);
            }
            Ok(found) => {
                stream.found = found;
                stream.found.sort_unstable_by(|a, b| b.cmp(a));
                if stream.found.len() >= looked_for {
                    stream.looked = Looked::AtSome { left: 0 };
                }
            }
        }
    }

    /// The next events to leave, at most so many, the oldest of all topics first: a command for each topic,
    /// and the topic's place. None if a topic has to be looked at before, or if there are no more.
    pub(super) fn next(&mut self, events_max: usize) -> Vec<(usize, Act)> {
        let mut taken: BTreeMap<usize, Vec<EventId>> = BTreeMap::new();
        let first = |(nth, stream): (usize, &Stream)| Some(Reverse((*stream.found.last()?, nth)));
        let mut firsts: BinaryHeap<_> = self.streams.iter().enumerate().filter_map(first).collect();
        let (mut count, mut known) = (0, self.blank().is_none());
        while let Some(Reverse(((_, id), nth))) =
            firsts.pop().filter(|_| known && count < events_max)
        {
            taken.entry(nth).or_default().push(id);
            count += 1;
            let stream = &mut self.streams[nth];
            stream.found.pop();
            firsts.extend(first((nth, stream)));
            // What comes next may be one of this topic's that is not known yet.
            known = !stream.found.is_empty() || stream.looked == Looked::AtAll;
        }
        let act = |(nth, events): (usize, Vec<EventId>)| {
            let Stream { topic, reason, .. } = &self.streams[nth];
            (nth, Act::Unlink { topic: topic.clone(), events, reason: *reason })
        };
        taken.into_iter().map(act).collect()
    }

    /// Why the first topic that could not be looked at could not be.
    ///
    /// # Errors
    /// There was one.
    pub fn into_result(self) -> Result<(), StoreError> {
        self.failed.map_or(Ok(()), Err)
    }

    /// Takes note of how many have left a topic.
    pub(super) fn note(&mut self, nth: usize, events: u64) {
        if let Looked::AtSome { left } = &mut self.streams[nth].looked {
            *left += events;
        }
    }
}

impl Stream {
    /// Whether nothing is known of it, though there may be more. What is found and does not leave would be
    /// found for ever.
    fn is_blank(&self) -> bool {
        let more = match self.looked {
            Looked::NotYet => true,
            Looked::AtSome { left } => left > 0,
            Looked::AtAll => false,
        };
        more && self.found.is_empty()
    }
}

/// What was taken in before a time.
pub fn cutoffs_before(time: UnixMillis) -> Cutoffs {
    Cutoffs::all(UnixMillis(time.0.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use kukuri_event::UnixSeconds;
    use kukuri_store::Model;

    use super::*;

    fn topic(nth: u8) -> TopicId {
        TopicId::parse(&format!("kukuri:{nth:064x}")).expect("it is canonical")
    }

    fn dated(at: i64) -> Dated {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&at.to_be_bytes());
        (UnixSeconds(at), EventId::from_bytes(id))
    }

    /// As if a topic had been looked at.
    fn find(aging: &mut Aging, nth: usize, dates: &[i64], looked: Looked) {
        let stream = &mut aging.streams[nth];
        stream.found = dates.iter().rev().map(|at| dated(*at)).collect();
        stream.looked = looked;
    }

    fn events(acts: &[(usize, Act)]) -> Vec<(usize, Vec<EventId>)> {
        let events = |(nth, act): &(usize, Act)| match act {
            Act::Unlink { events, .. } => (*nth, events.clone()),
            act => panic!("{act:?}"),
        };
        acts.iter().map(events).collect()
    }

    fn ids(dates: &[i64]) -> Vec<EventId> {
        dates.iter().map(|at| dated(*at).1).collect()
    }

    #[test]
    fn the_oldest_of_all_topics_leave_first() {
        let mut aging = Aging::before([topic(0), topic(1)], UnixMillis(9));
        assert_eq!(aging.blank(), Some(0));
        assert_eq!(events(&aging.next(9)), [], "who has not looked knows none");
        find(&mut aging, 0, &[1, 4, 5], Looked::AtSome { left: 0 });
        find(&mut aging, 1, &[2, 3, 7, 8], Looked::AtAll);
        assert_eq!(aging.blank(), None);
        assert_eq!(events(&aging.next(3)), [(0, ids(&[1])), (1, ids(&[2, 3]))]);
        aging.note(0, 1);
        // What comes after 5 in the first topic is not known: 7 and 8 wait.
        assert_eq!(events(&aging.next(9)), [(0, ids(&[4, 5]))]);
        assert_eq!(aging.blank(), Some(0));
        find(&mut aging, 0, &[6], Looked::AtAll);
        assert_eq!(events(&aging.next(9)), [(0, ids(&[6])), (1, ids(&[7, 8]))]);
        assert_eq!((aging.blank(), events(&aging.next(9))), (None, vec![]));
    }

    #[test]
    fn what_does_not_leave_is_not_looked_for_again() {
        let mut aging = Aging::before([topic(0)], UnixMillis(9));
        find(&mut aging, 0, &[1], Looked::AtSome { left: 0 });
        assert_eq!(events(&aging.next(9)), [(0, ids(&[1]))]);
        aging.note(0, 0);
        assert_eq!(aging.blank(), None);
    }

    #[tokio::test]
    async fn a_topic_without_events_has_been_looked_at() {
        let mut aging = Aging::before([topic(0)], UnixMillis(9));
        aging.look(0, &Model::default()).await;
        assert_eq!((aging.blank(), aging.into_result()), (None, Ok(())));
    }
}
