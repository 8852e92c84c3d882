//! What to make of two generations that differ at the same row. While rows come in, one of them may only have
//! seen more: a row is handled by what its event is like when the row is read, and the state is read as it is
//! then, whatever rows are still to come. Pure.

use std::time::Duration;

use kukuri_core::Seq;

use crate::Sample;

/// Up to so many rows of the feed, all of what was made from them is hashed, and a sample beyond.
const HASHED_SEQ_MAX: Seq = Seq(20_000);
/// How long after one look the next one comes, at the least.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Nobody can write to the consumer's tables during a look, so each difference doubles the pause, up to 1.6 s.
const DOUBLINGS_MAX: u32 = 3;

/// Since how many looks a generation that is built differs from the active one, and what it differs in.
#[derive(Default)]
pub(super) struct Doubt {
    differences: u32,
    sample: Option<Sample>,
}

impl Doubt {
    /// What is compared at a row: at random, but what differed is compared until it agrees.
    pub fn sample(&self, at: Seq, random: u8) -> Sample {
        let fresh = if at <= HASHED_SEQ_MAX { Sample::All } else { Sample::FirstByte(random) };
        self.sample.unwrap_or(fresh)
    }

    /// Takes note of a difference, and says how many there were in a row.
    pub fn differs(&mut self, sample: Sample) -> u32 {
        self.sample = Some(sample);
        self.differences += 1;
        self.differences
    }

    /// How many there were so far.
    pub fn differences(&self) -> u32 {
        self.differences
    }

    /// How long nobody looks after a difference.
    pub fn pause(&self) -> Duration {
        LOOK_INTERVAL * 2_u32.pow(self.differences.saturating_sub(1).min(DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Sample = Sample::FirstByte(7);

    #[test]
    fn what_differed_is_compared_until_it_agrees() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.sample(HASHED_SEQ_MAX, 7), Sample::All);
        let beyond = Seq(HASHED_SEQ_MAX.0 + 1);
        assert_eq!(doubt.sample(beyond, 7), SOME);
        assert_eq!(doubt.differs(SOME), 1);
        assert_eq!(doubt.sample(beyond, 8), SOME, "another one may happen to agree");
        assert_eq!(doubt.differs(SOME), 2);
    }

    #[test]
    fn looks_become_seldom() {
        let mut doubt = Doubt::default();
        let pauses: Vec<u128> = (0..12)
            .map(|_| {
                let pause = doubt.pause().as_millis();
                doubt.differs(SOME);
                pause
            })
            .collect();
        assert_eq!(
            pauses,
            [200, 200, 400, 800, 1_600, 1_600, 1_600, 1_600, 1_600, 1_600, 1_600, 1_600]
        );
    }
}
