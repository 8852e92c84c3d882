//! Whether a clock can be believed. What leaves, is forgotten or is cut from the feed by a clock that is far
//! ahead does not come back when it is set right.

use std::time::Duration;

use crate::UnixMillis;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// So much may a clock jump ahead: machines sleep, and clocks are set.
pub const AHEAD_MAX: Duration = DAY;

/// So long may a node have been away without a doubt in the clock that it finds when it comes back.
pub const ABSENCE_MAX: Duration = DAY.saturating_mul(90);

/// A time that was believed, and how long ago that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    pub at: UnixMillis,
    pub passed: Passed,
}

impl Witness {
    /// The time that it is at least.
    pub fn earliest(self) -> UnixMillis {
        match self.passed {
            Passed::Measured(passed) => self.at.saturating_add(passed),
            Passed::Unknown => self.at,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// By a clock that nobody sets.
    Measured(Duration),
    /// Nobody was there.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    Plausible,
    /// It is so much later than it can be by what is known.
    Ahead {
        by: Duration,
    },
}

/// Whether it can be that time now. A clock that is behind does no harm: everything waits.
pub fn believe(now: UnixMillis, witness: Option<Witness>) -> Belief {
    let Some(Witness { at, passed }) = witness else { return Belief::Plausible };
    let (passed, ahead_max) = match passed {
        Passed::Measured(passed) => (passed, AHEAD_MAX),
        Passed::Unknown => (Duration::ZERO, ABSENCE_MAX),
    };
    let by = at.until(now).saturating_sub(passed);
    if by > ahead_max { Belief::Ahead { by } } else { Belief::Plausible }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: UnixMillis = UnixMillis(1_700_000_000_000);

    #[test]
    fn a_clock_is_believed_up_to_its_limit() {
        let week = DAY * 7;
        let moment = Duration::from_millis(1);
        for (passed, measured, limit) in [
            (Passed::Measured(Duration::ZERO), Duration::ZERO, AHEAD_MAX),
            (Passed::Measured(week), week, AHEAD_MAX),
            (Passed::Unknown, Duration::ZERO, ABSENCE_MAX),
        ] {
            let witness = Some(Witness { at: AT, passed });
            let last = AT.saturating_add(measured + limit);
            assert_eq!(believe(last, witness), Belief::Plausible, "{passed:?}");
            let ahead = Belief::Ahead { by: limit + moment };
            assert_eq!(believe(last.saturating_add(moment), witness), ahead, "{passed:?}");
        }
        assert_eq!(believe(UnixMillis(i64::MAX), None), Belief::Plausible, "nothing is known");
    }

    proptest! {
        /// A clock that was set back, or goes as it should, is never doubted.
        #[test]
        fn time_that_passes_is_plausible(passed in 0_u64..1 << 50, back in 0_i64..1 << 50) {
            let passed = Duration::from_millis(passed);
            let now = UnixMillis(AT.saturating_add(passed).0 - back);
            let witness = Witness { at: AT, passed: Passed::Measured(passed) };
            prop_assert_eq!(believe(now, Some(witness)), Belief::Plausible);
        }
    }
}
