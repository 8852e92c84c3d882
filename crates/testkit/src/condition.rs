//! Waiting for a condition, with a deadline instead of a guess.

use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at. Short enough not to slow a test, long enough not to burn a
/// core.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
#[error("{what} did not happen within {limit:?}")]
pub struct TimedOut {
    what: String,
    limit: Duration,
}

/// Asks `probe` until it has an answer, at most for `limit`.
///
/// # Errors
/// `TimedOut` names `what` was waited for.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if start.elapsed() >= limit {
            return Err(TimedOut { what: what.to_owned(), limit });
        }
        thread::sleep(PROBE_INTERVAL);
    }
}

/// As [`wait_for`], for probes that wait themselves and must not hold up others.
///
/// # Errors
/// `TimedOut` names `what` was waited for.
pub async fn wait_for_async<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe().await {
            return Ok(answer);
        }
        if start.elapsed() >= limit {
            return Err(TimedOut { what: what.to_owned(), limit });
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// How long [`until`] waits: whoever is slower than this on a busy machine never comes.
const UNTIL_WAIT_MAX: Duration = Duration::from_secs(120);

/// Waits for a condition, for as long as it may take and no longer.
///
/// # Panics
/// If it did not come to that, naming `what` was waited for.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let held = wait_for_async(what, UNTIL_WAIT_MAX, async || condition().then_some(()));
    held.await.unwrap_or_else(|late| panic!("{late}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_as_soon_as_the_probe_does() {
        let mut calls = 0;
        let answer = wait_for("the third call", Duration::from_secs(10), || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(answer.unwrap(), 3);
    }

    #[test]
    fn names_what_never_came() {
        let error = wait_for::<()>("rain", Duration::ZERO, || None).unwrap_err();
        assert_eq!(error.to_string(), "rain did not happen within 0ns");
    }
}
