//! Where random choices come from.

use std::fmt;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

/// Nodes that a test starts inherit it, and take what begins with `KUKURI_` for a setting.
const VARIABLE: &str = "TESTKIT_SEED";

/// What a whole run of random input follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of this run: the one in `TESTKIT_SEED`, or else a new one. Printed with what has to be
    /// typed to run `test` with it again.
    ///
    /// # Panics
    /// When the variable is set to something else than a number: a replay of anything else would
    /// mislead.
    pub fn of_run(test: &str) -> Seed {
        let given = std::env::var(VARIABLE).ok();
        let seed = match &given {
            Some(text) => match text.parse() {
                Ok(number) => Seed(number),
                Err(error) => panic!("{VARIABLE}={text}: {error}"),
            },
            None => Seed(rand::random()),
        };
        println!("seed {seed}: run it again with {VARIABLE}={seed} cargo nextest run {test}");
        seed
    }

    /// The seed of the nth part of the run; parts do not depend on each other.
    #[must_use]
    pub fn part(self, nth: u64) -> Seed {
        // The constant is odd, so distinct parts of one run have distinct seeds.
        Seed(self.0 ^ nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The seeds of whole runs: this one, and with `KUKURI_TORTURE=long` more.
    pub fn rounds(self) -> impl Iterator<Item = Seed> {
        let long = std::env::var("KUKURI_TORTURE").is_ok_and(|value| value == "long");
        (0..if long { 20 } else { 1 }).map(move |nth| if nth == 0 { self } else { self.part(nth) })
    }

    #[must_use]
    pub fn dice(self) -> Dice {
        Dice(StdRng::seed_from_u64(self.0))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random choices.
pub struct Dice(StdRng);

impl Dice {
    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    pub fn range(&mut self, range: std::ops::Range<i64>) -> i64 {
        self.0.random_range(range)
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.random_ratio(percent, 100)
    }

    pub fn float(&mut self) -> f64 {
        self.0.random()
    }

    pub fn bytes(&mut self) -> [u8; 32] {
        self.0.random()
    }

    /// # Panics
    /// When there is nothing to pick from.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        from.choose(&mut self.0).expect("there is something to pick")
    }

    /// Picks one of the values by their weights.
    ///
    /// # Panics
    /// When there is nothing to pick from.
    pub fn weigh<T: Copy>(&mut self, from: &[(T, u32)]) -> T {
        let picked = from.choose_weighted(&mut self.0, |(_, weight)| *weight);
        picked.expect("there is something to pick").0
    }

    /// Up to `most` of the values, in a random order, at least one if there is one.
    pub fn some<T: Clone>(&mut self, from: &[T], most: usize) -> Vec<T> {
        let count = 1 + self.below(most);
        let mut picked: Vec<T> = from.iter().cloned().sample(&mut self.0, count);
        self.shuffle(&mut picked);
        picked
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        values.shuffle(&mut self.0);
    }
}
