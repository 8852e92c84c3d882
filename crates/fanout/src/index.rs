//! Which subscriptions an event may be for. Each filter stands at the values of its most selective
//! condition, so that the cost of an event follows what it matches and not how many subscriptions
//! there are. What stands here is a candidate; the matcher decides.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};

use kukuri_core::TopicId;
use kukuri_event::{Event, EventId, Filter, Kind, Pubkey, TagLetter};

use crate::{SubKey, Subscription};

/// Where a filter stands: one value of one condition, from the most selective kind of condition to
/// the least.
#[derive(Hash)]
enum Place<'a> {
    Id(&'a EventId),
    Tag(TagLetter, &'a str),
    Author(&'a Pubkey),
    Topic(&'a str),
    Kind(Kind),
    /// The filter has no condition that names values.
    Anywhere,
}

/// Places are kept as hashes: two that share one have each other's subscriptions as candidates, and
/// the matcher tells them apart.
#[derive(Default)]
pub struct Index {
    places: HashMap<u64, Group>,
    hasher: RandomState,
}

/// Who stands at a place. Most places have one; those that have more are read far more often than
/// they change, and who comes mostly has the highest key.
enum Group {
    One(SubKey),
    /// In order.
    Many(Vec<SubKey>),
}

impl Index {
    pub fn insert(&mut self, subscription: &Subscription) {
        for place in self.places_of(subscription) {
            let key = subscription.key;
            self.places.entry(place).and_modify(|group| group.add(key)).or_insert(Group::One(key));
        }
    }

    pub fn remove(&mut self, subscription: &Subscription) {
        for place in self.places_of(subscription) {
            if let Some(group) = self.places.get_mut(&place)
                && group.remove(subscription.key)
            {
                self.places.remove(&place);
            }
        }
    }

    /// How many places are taken.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All subscriptions that an event in these topics can match, each once, and some that it does
    /// not.
    pub fn candidates<'a>(
        &self,
        event: &Event,
        topics: impl IntoIterator<Item = &'a TopicId>,
    ) -> Vec<SubKey> {
        let (id, author) = (event.id(), event.pubkey());
        let mut found = Vec::new();
        let mut look = |place: Place<'_>| match self.places.get(&self.hasher.hash_one(place)) {
            None => {}
            Some(Group::One(key)) => found.push(*key),
            Some(Group::Many(keys)) => found.extend(keys),
        };
        look(Place::Id(&id));
        for (letter, value) in event.tags().letters().filter(|(l, _)| *l != TagLetter::TOPIC) {
            look(Place::Tag(letter, value));
        }
        look(Place::Author(&author));
        topics.into_iter().for_each(|topic| look(Place::Topic(topic.as_str())));
        look(Place::Kind(event.kind()));
        look(Place::Anywhere);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn places_of(&self, subscription: &Subscription) -> BTreeSet<u64> {
        let filters = subscription.filters.iter().filter(|filter| !filter.matches_nothing());
        filters.flat_map(|filter| self.places_of_filter(filter)).collect()
    }

    fn places_of_filter(&self, filter: &Filter) -> Vec<u64> {
        let fewest = filter.other_tags().min_by_key(|(_, values)| values.len());
        if let Some(ids) = &filter.ids {
            self.hashes(ids.iter().map(Place::Id))
        } else if let Some((letter, values)) = fewest {
            self.hashes(values.iter().map(|value| Place::Tag(letter, value)))
        } else if let Some(authors) = &filter.authors {
            self.hashes(authors.iter().map(Place::Author))
        } else if let Some(topics) = filter.topics() {
            self.hashes(topics.iter().map(|topic| Place::Topic(topic)))
        } else if let Some(kinds) = &filter.kinds {
            self.hashes(kinds.iter().map(|kind| Place::Kind(*kind)))
        } else {
            self.hashes([Place::Anywhere].into_iter())
        }
    }

    fn hashes<'a>(&self, places: impl Iterator<Item = Place<'a>>) -> Vec<u64> {
        places.map(|place| self.hasher.hash_one(place)).collect()
    }
}

impl Group {
    fn add(&mut self, key: SubKey) {
        match self {
            Self::One(one) if *one == key => {}
            Self::One(one) => *self = Self::Many(vec![key.min(*one), key.max(*one)]),
            Self::Many(keys) => {
                if let Err(place) = keys.binary_search(&key) {
                    keys.insert(place, key);
                }
            }
        }
    }

    /// Says whether nobody is left.
    fn remove(&mut self, key: SubKey) -> bool {
        match self {
            Self::One(one) => *one == key,
            Self::Many(keys) => {
                if let Ok(place) = keys.binary_search(&key) {
                    keys.remove(place);
                }
                keys.is_empty()
            }
        }
    }
}
