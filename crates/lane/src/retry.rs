//! What to do when a batch fails. Pure.

use std::time::Duration;

use kukuri_store::StoreError;

use crate::{LaneConfig, LaneError};

/// The next step after a failed try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The same batch again: it is idempotent, so an unknown outcome does no harm.
    RunAgain { after: Duration },
    /// Give up on this batch.
    Answer(LaneError),
}

/// The tries of one batch so far.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    pub conflicts: u32,
    pub retries: u32,
}

impl Tries {
    /// `elapsed` is the time since the first try began.
    pub fn next(&mut self, error: StoreError, elapsed: Duration, config: &LaneConfig) -> Next {
        match error {
            StoreError::Conflict { .. } if self.conflicts < config.conflicts_max => {
                self.conflicts += 1;
                let after = Duration::ZERO;
                Next::RunAgain { after }
            }
            StoreError::Conflict { .. } => Next::Answer(LaneError::Unavailable(error)),
            StoreError::Unavailable(_) => {
                let after = backoff(config, self.retries);
                if elapsed + after > config.unavailable_wait_max {
                    return Next::Answer(LaneError::Unavailable(error));
                }
                self.retries += 1;
                Next::RunAgain { after }
            }
            StoreError::Full(_) => Next::Answer(LaneError::Full(error)),
            StoreError::Io(_) => Next::Answer(LaneError::Failed(error)),
            StoreError::Corrupt(_) => Next::Answer(LaneError::Corrupt(error)),
        }
    }
}

/// The pause after the try number `nth`, counted from nought: doubling, and bounded.
pub(crate) fn backoff(config: &LaneConfig, nth: u32) -> Duration {
    let doubled = config.backoff_min.saturating_mul(1_u32.checked_shl(nth).unwrap_or(u32::MAX));
    doubled.min(config.backoff_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kukuri_core::Seq;

    const CONFIG: LaneConfig = LaneConfig::STANDARD;

    #[test]
    fn a_conflict_is_run_again_at_once_and_not_for_ever() {
        let conflict = StoreError::Conflict { head: Seq(7) };
        let mut tries = Tries::default();
        for _ in 0..CONFIG.conflicts_max {
            let next = tries.next(conflict.clone(), Duration::ZERO, &CONFIG);
            let after = Duration::ZERO;
            assert_eq!(next, Next::RunAgain { after });
        }
        let next = tries.next(conflict.clone(), Duration::ZERO, &CONFIG);
        assert_eq!(next, Next::Answer(LaneError::Unavailable(conflict)));
    }

    #[test]
    fn an_unavailable_store_is_tried_with_growing_pauses_until_the_deadline() {
        let away = StoreError::Unavailable("away".into());
        let mut tries = Tries::default();
        let mut elapsed = Duration::ZERO;
        let mut pauses = Vec::new();
        while let Next::RunAgain { after } = tries.next(away.clone(), elapsed, &CONFIG) {
            elapsed += after;
            pauses.push(after.as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        assert!(elapsed <= CONFIG.unavailable_wait_max);
    }

    #[test]
    fn what_trying_again_cannot_help_is_answered() {
        let io = StoreError::Io("disk".into());
        let full = StoreError::Full("disk".into());
        let corrupt = StoreError::Corrupt("page".into());
        let cases = [
            (io.clone(), LaneError::Failed(io)),
            (full.clone(), LaneError::Full(full)),
            (corrupt.clone(), LaneError::Corrupt(corrupt)),
        ];
        for (error, answer) in cases {
            let next = Tries::default().next(error, Duration::ZERO, &CONFIG);
            assert_eq!(next, Next::Answer(answer));
        }
    }

    #[test]
    fn pauses_stay_bounded() {
        assert_eq!(backoff(&CONFIG, 500), CONFIG.backoff_max);
    }
}
