use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kukuri_core::UnixMillis;
use kukuri_event::UnixSeconds;
use kukuri_store::Clock;

/// The system's clock, or one that stands still for tests.
pub fn clock(now: Option<i64>) -> Clock {
    match now {
        Some(seconds) => {
            let at = UnixMillis::from(UnixSeconds(seconds));
            Arc::new(move || at)
        }
        None => Arc::new(system_time),
    }
}

/// A clock before 1970 is no clock: it counts as 1970.
fn system_time() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Time that passes whatever the system's clock is set to, and however the machine sleeps.
pub type Steady = Arc<dyn Fn() -> Duration + Send + Sync>;

#[cfg(target_os = "linux")]
pub fn steady() -> Steady {
    use rustix::time::{ClockId, clock_gettime};
    Arc::new(|| {
        let since_boot = clock_gettime(ClockId::Boottime);
        let nanos = u32::try_from(since_boot.tv_nsec).unwrap_or_default();
        Duration::new(u64::try_from(since_boot.tv_sec).unwrap_or_default(), nanos)
    })
}

/// Elsewhere the time that a machine sleeps may be missing: it is taken for a jump of the clock.
#[cfg(not(target_os = "linux"))]
pub fn steady() -> Steady {
    let start = std::time::Instant::now();
    Arc::new(move || start.elapsed())
}

/// Names one life of a feed: a new store made a microsecond later is another one, whatever `--now`.
pub fn new_epoch() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
