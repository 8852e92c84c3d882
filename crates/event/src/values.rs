//! The values a condition of a filter names. There are many subscriptions and most name one value, so
//! they are kept as a sorted list with no room to spare.

use std::borrow::Borrow;

use serde::{Deserialize, Deserializer};

/// Different values, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values<T>(Box<[T]>);

impl<T> Values<T> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|one| one.borrow().cmp(value)).is_ok()
    }
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: Ord> From<Vec<T>> for Values<T> {
    fn from(mut values: Vec<T>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self(values.into_boxed_slice())
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for Values<T> {
    fn from(values: [T; N]) -> Self {
        Vec::from(values).into()
    }
}

impl<T: Ord> FromIterator<T> for Values<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl<'a, T> IntoIterator for &'a Values<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'de, T: Ord + Deserialize<'de>> Deserialize<'de> for Values<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// Values by what they are about. A filter has few conditions, so they are looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions<K, T>(Vec<(K, Values<T>)>);

impl<K, T> Default for Conditions<K, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + Ord, T> Conditions<K, T> {
    pub fn get(&self, key: K) -> Option<&Values<T>> {
        let place = self.0.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(&self.0[place].1)
    }

    /// Sets a condition; returns the one it had.
    pub fn insert(&mut self, key: K, values: Values<T>) -> Option<Values<T>> {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, values)),
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (key, values));
                None
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &Values<T>)> {
        self.0.iter().map(|(key, values)| (*key, values))
    }
}

impl<K: Copy + Ord, T> FromIterator<(K, Values<T>)> for Conditions<K, T> {
    fn from_iter<I: IntoIterator<Item = (K, Values<T>)>>(conditions: I) -> Self {
        let mut all = Self::default();
        for (key, values) in conditions {
            all.insert(key, values);
        }
        all
    }
}
