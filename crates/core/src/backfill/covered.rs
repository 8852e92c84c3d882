//! What a reconciliation that had to end early has gone through. The next one spares it: where a topic is
//! larger than one reconciliation gets through, its end would never be reached otherwise.

use kukuri_event::UnixSeconds;

use super::{Part, Window};

/// Events are dated a little before they come, and those of the last hour are asked for again.
const AGAIN_SECONDS: i64 = 60 * 60;

/// Everything before a place, in the order in which it is asked for, as of the time when that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    began_at: UnixSeconds,
    part: Part,
    /// The newest time of this part that is left.
    until: UnixSeconds,
}

impl Covered {
    /// What a reconciliation has gone through that began at this time, with what it had spared and what it has
    /// left; nothing if nothing is left.
    pub fn by<'a>(
        began_at: UnixSeconds,
        spared: Option<Self>,
        left: impl IntoIterator<Item = &'a Window>,
    ) -> Option<Self> {
        let newest = |window: &&Window| (std::cmp::Reverse(window.part), window.until);
        let next = left.into_iter().max_by_key(newest)?;
        let covered = Self { began_at, part: next.part, until: next.until };
        // Who has not come to what was spared knows no better than before.
        Some(spared.filter(|spared| spared.left() < covered.left()).unwrap_or(covered))
    }

    /// What is left of windows.
    pub fn spare(&self, windows: Vec<Window>, now: UnixSeconds) -> Vec<Window> {
        // By a clock that was set back, nobody knows what has been asked for.
        if self.began_at > now {
            return windows;
        }
        let again = self.began_at.saturating_sub(AGAIN_SECONDS);
        let parts = windows.into_iter().flat_map(|window| {
            let until = match window.part {
                part if part > self.part => window.until,
                part if part == self.part => self.until.min(window.until),
                _ => window.since.saturating_sub(1),
            };
            let since = again.max(until.saturating_add(1)).max(window.since);
            [Window { since, ..window.clone() }, Window { until, ..window }]
        });
        parts.filter(Window::has_time).collect()
    }

    /// Grows with what is left.
    fn left(&self) -> (std::cmp::Reverse<Part>, UnixSeconds) {
        (std::cmp::Reverse(self.part), self.until)
    }
}
