use std::time::Duration;

use crate::backoff::{Backoff, Dice};

use super::{Moment, Output};

/// The connection: whether there is one, and when to try again.
pub(super) struct Link {
    state: LinkState,
    /// Connections that could not be made, or on which nothing was ever said, one after another.
    attempts: u32,
}

enum LinkState {
    Down { retry: Moment },
    Dialing,
    Up { heard: Moment, pinged: Pinged },
}

#[derive(PartialEq, Eq)]
enum Pinged {
    Yes,
    No,
}

impl Link {
    pub fn dialing() -> Self {
        Self { state: LinkState::Dialing, attempts: 0 }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up { .. })
    }

    pub fn opened(&mut self, now: Moment) {
        self.state = LinkState::Up { heard: now, pinged: Pinged::No };
    }

    pub fn lost(&mut self, now: Moment, backoff: Backoff, dice: Dice) {
        let retry = now + backoff.pause(self.attempts, dice);
        self.state = LinkState::Down { retry };
        self.attempts = self.attempts.saturating_add(1);
    }

    pub fn heard(&mut self, now: Moment) {
        if self.is_up() {
            self.opened(now);
        }
    }

    /// A relay that takes connections, and says at most that it is busy, is not back yet; one that
    /// answers is.
    pub fn served(&mut self) {
        self.attempts = 0;
    }

    pub fn wake(&self, ping_interval: Duration) -> Option<Moment> {
        match &self.state {
            LinkState::Down { retry } => Some(*retry),
            LinkState::Dialing => None,
            LinkState::Up { heard, pinged: Pinged::No } => Some(*heard + ping_interval),
            LinkState::Up { heard, pinged: Pinged::Yes } => Some(*heard + ping_interval * 2),
        }
    }

    /// Whether the connection must be given up.
    #[must_use]
    pub fn tick(&mut self, now: Moment, ping_interval: Duration, out: &mut Vec<Output>) -> bool {
        if self.wake(ping_interval).is_none_or(|wake| wake > now) {
            return false;
        }
        match &mut self.state {
            LinkState::Down { .. } => {
                self.state = LinkState::Dialing;
                out.push(Output::Connect);
                false
            }
            LinkState::Up { pinged, .. } if *pinged == Pinged::No => {
                *pinged = Pinged::Yes;
                out.push(Output::Ping);
                false
            }
            LinkState::Up { .. } => true,
            LinkState::Dialing => false,
        }
    }
}
