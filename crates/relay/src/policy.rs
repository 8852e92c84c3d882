//! When clients have to prove who they are. Pure: the time is an argument.

use std::time::Duration;

use kukuri_core::UnixMillis;
use kukuri_event::UnixSeconds;
use serde::{Deserialize, Serialize};

/// Whether clients have to prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    #[default]
    Off,
    Required,
}

/// What the operator wants. It may change while clients are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    pub mode: Auth,
    /// From when on; `None` is at once.
    pub enforce_at: Option<UnixSeconds>,
    /// How long after that time who was connected before it may stay without a proof.
    pub grace: Duration,
    /// How long a new connection may stay without a proof.
    pub timeout: Duration,
}

impl AuthPolicy {
    pub const OFF: Self = Self {
        mode: Auth::Off,
        enforce_at: None,
        grace: Duration::from_secs(900),
        timeout: Duration::from_secs(10),
    };

    pub const REQUIRED: Self = Self { mode: Auth::Required, ..Self::OFF };
}

/// A policy, and since when it is the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRule {
    pub policy: AuthPolicy,
    pub since: UnixMillis,
}

/// Until when a connection may stay without a proof, and what it is told then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub at: UnixMillis,
    pub notice: &'static str,
}

impl AuthRule {
    /// From when on a proof is needed, if ever.
    pub fn enforced_from(&self) -> Option<UnixMillis> {
        match self.policy.mode {
            Auth::Off => None,
            Auth::Required => Some(self.policy.enforce_at.map_or(self.since, UnixMillis::from)),
        }
    }

    pub fn enforced(&self, now: UnixMillis) -> bool {
        self.enforced_from().is_some_and(|from| from <= now)
    }

    pub fn deadline(&self, connected_at: UnixMillis) -> Option<Deadline> {
        let from = self.enforced_from()?;
        // Nobody can keep to a rule before it is one, even if it says that it holds since long ago.
        let known = from.max(self.since);
        if connected_at < from && self.policy.enforce_at.is_some() {
            let at = known.saturating_add(self.policy.grace);
            return Some(Deadline { at, notice: "auth-required: deadline reached" });
        }
        let at = connected_at.max(known).saturating_add(self.policy.timeout);
        Some(Deadline { at, notice: "auth-required: timeout" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: AuthRule = AuthRule { policy: AuthPolicy::REQUIRED, since: UnixMillis(100_000) };

    #[test]
    fn without_a_time_everyone_has_as_long_as_a_new_connection() {
        let deadline = |at| RULE.deadline(UnixMillis(at)).map(|d| (d.at.0, d.notice));
        assert_eq!(deadline(5_000), Some((110_000, "auth-required: timeout")));
        assert_eq!(deadline(200_000), Some((210_000, "auth-required: timeout")));
        assert!(!RULE.enforced(UnixMillis(99_999)) && RULE.enforced(UnixMillis(100_000)));
    }

    #[test]
    fn who_was_there_before_the_time_has_the_grace() {
        let policy = AuthPolicy { enforce_at: Some(UnixSeconds(500)), ..AuthPolicy::REQUIRED };
        let rule = AuthRule { policy, ..RULE };
        let deadline = |at| rule.deadline(UnixMillis(at)).map(|d| (d.at.0, d.notice));
        assert_eq!(deadline(499_999), Some((1_400_000, "auth-required: deadline reached")));
        assert_eq!(deadline(500_000), Some((510_000, "auth-required: timeout")));
        assert!(!rule.enforced(UnixMillis(499_999)) && rule.enforced(UnixMillis(500_000)));
    }

    #[test]
    fn a_time_in_the_past_takes_nobody_by_surprise() {
        let policy = AuthPolicy { enforce_at: Some(UnixSeconds(50)), ..AuthPolicy::REQUIRED };
        let rule = AuthRule { policy, ..RULE };
        let deadline = |at| rule.deadline(UnixMillis(at)).map(|d| (d.at.0, d.notice));
        assert_eq!(deadline(5_000), Some((1_000_000, "auth-required: deadline reached")));
        assert_eq!(deadline(60_000), Some((110_000, "auth-required: timeout")));
        assert_eq!(deadline(200_000), Some((210_000, "auth-required: timeout")));
        assert!(rule.enforced(UnixMillis(60_000)));
    }

    #[test]
    fn off_is_off() {
        let rule = AuthRule { policy: AuthPolicy::OFF, ..RULE };
        assert_eq!(
            (rule.deadline(UnixMillis(0)), rule.enforced(UnixMillis(i64::MAX))),
            (None, false)
        );
    }
}
