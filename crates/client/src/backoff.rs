use std::time::Duration;

/// A number from 0 up to but not including 1, by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dice(pub f64);

/// Pauses that double from attempt to attempt up to a limit. Chance takes away up to half of each,
/// so that clients that lost the same relay do not come back at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
}

impl Backoff {
    pub const STANDARD: Self =
        Self { first: Duration::from_millis(200), max: Duration::from_secs(30) };

    /// The pause after so many attempts in vain.
    pub(crate) fn pause(&self, attempts: u32, dice: Dice) -> Duration {
        let factor = 2_u32.saturating_pow(attempts);
        let whole = self.first.saturating_mul(factor).min(self.max);
        whole.mul_f64(1.0 - dice.0 / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit() {
        let backoff =
            Backoff { first: Duration::from_millis(100), max: Duration::from_millis(500) };
        let pauses = [0, 1, 2, 3, 40].map(|attempts| backoff.pause(attempts, Dice(0.0)));
        assert_eq!(pauses.map(|pause| pause.as_millis()), [100, 200, 400, 500, 500]);
    }

    #[test]
    fn chance_takes_no_more_than_half() {
        let backoff = Backoff::STANDARD;
        assert_eq!(backoff.pause(0, Dice(0.5)), Duration::from_millis(150));
        assert!(backoff.pause(9, Dice(0.999_999)) > backoff.max / 2);
    }
}
