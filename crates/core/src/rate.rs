//! How often someone may do something. Pure: the time is an argument.

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;
use crate::admission::Rate;

const MILLIS_PER_MINUTE: i64 = 60_000;

/// So many at once, and so many a minute in the long run. `per_minute` 0 allows any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowance {
    pub per_minute: u32,
    pub burst: u32,
}

impl Allowance {
    pub const UNBOUNDED: Self = Self { per_minute: 0, burst: 0 };

    /// How many microseconds one takes of the time that is allowed.
    fn cost_micros(self) -> i64 {
        1000 * MILLIS_PER_MINUTE / i64::from(self.per_minute.max(1))
    }
}

/// What everyone of a kind has used of an allowance. Of each only one time is kept: when all that was
/// used will have been given back (the generic cell rate algorithm).
pub struct Meter<K: Hash + Eq> {
    allowance: Allowance,
    free_at_micros: LruCache<K, i64>,
}

impl<K: Hash + Eq> Meter<K> {
    pub fn new(allowance: Allowance, remembered_max: usize) -> Self {
        let remembered_max = NonZeroUsize::new(remembered_max).unwrap_or(NonZeroUsize::MIN);
        Self { allowance, free_at_micros: LruCache::new(remembered_max) }
    }

    /// Takes one, if it is allowed now. What is refused costs nothing.
    pub fn take(&mut self, key: K, now: UnixMillis) -> Rate {
        match self.after_one(&key, now) {
            None => Rate::Within,
            Some(Err(exceeded)) => exceeded,
            Some(Ok(free_at)) => {
                self.free_at_micros.put(key, free_at);
                Rate::Within
            }
        }
    }

    /// Gives back one that was taken and came to nothing.
    pub fn give_back(&mut self, key: &K) {
        let cost = self.allowance.cost_micros();
        if let Some(free_at) = self.free_at_micros.get_mut(key) {
            *free_at = free_at.saturating_sub(cost);
        }
    }

    /// When all will have been given back once one more is taken; `None` if nothing is counted.
    fn after_one(&mut self, key: &K, now: UnixMillis) -> Option<Result<i64, Rate>> {
        if self.allowance.per_minute == 0 {
            return None;
        }
        let (now, cost) = (now.0.saturating_mul(1000), self.allowance.cost_micros());
        let latest = now + cost * i64::from(self.allowance.burst.max(1));
        // A clock that was set back must not hold anyone for longer than a full burst does.
        let mut free_at = now;
        if let Some(kept) = self.free_at_micros.get_mut(key) {
            *kept = (*kept).min(latest);
            free_at = now.max(*kept);
        }
        Some(if free_at + cost > latest { Err(Rate::Exceeded) } else { Ok(free_at + cost) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR_A_MINUTE: Allowance = Allowance { per_minute: 4, burst: 2 };

    #[test]
    fn a_burst_is_allowed_and_comes_back_with_time() {
        let mut meter = Meter::new(FOUR_A_MINUTE, 10);
        let mut at = |seconds: i64| meter.take("one", UnixMillis(seconds * 1000));
        assert_eq!([at(0), at(0), at(0)], [Rate::Within, Rate::Within, Rate::Exceeded]);
        assert_eq!([at(14), at(15), at(15)], [Rate::Exceeded, Rate::Within, Rate::Exceeded]);
        assert_eq!([at(99), at(99), at(99)], [Rate::Within, Rate::Within, Rate::Exceeded]);
        // A clock that goes back holds nobody for longer than a burst.
        assert_eq!([at(50), at(64), at(65)], [Rate::Exceeded, Rate::Exceeded, Rate::Within]);
    }

    #[test]
    fn everyone_has_an_allowance_and_few_are_remembered() {
        let mut meter = Meter::new(Allowance { per_minute: 1, burst: 1 }, 2);
        let mut at = |who| meter.take(who, UnixMillis(0));
        assert_eq!([at("a"), at("b"), at("a")], [Rate::Within, Rate::Within, Rate::Exceeded]);
        assert_eq!([at("c"), at("b")], [Rate::Within, Rate::Within]);
    }

    #[test]
    fn none_is_counted_without_a_bound() {
        let mut meter = Meter::new(Allowance::UNBOUNDED, 1);
        assert!((0..1000).all(|_| meter.take("a", UnixMillis(0)) == Rate::Within));
    }
}
