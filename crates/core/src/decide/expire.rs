//! The sweep of NIP-40: events whose time has come are hidden, and the feed says so.

use kukuri_event::EventId;

use super::step::{Cause, Step};
use crate::{MarkState, Outcome, Reason, Removed, State, UnixMillis, VersionKey};

pub(super) fn expire(step: &mut Step, at: UnixMillis, events: &[EventId]) -> Outcome {
    let mut hidden = Removed::default();
    for id in events {
        let Some(record) = step.view.records.get(id) else {
            continue;
        };
        let due = record.expires_at().is_some_and(|end| end <= at.seconds());
        if !due || !record.is_effective() {
            continue;
        }
        hidden.add_one(record.bytes());
        let key = VersionKey::of(record.event());
        step.hide(id, State::Expired, Reason::Expiration, Cause::node(at));
        if let Some(key) = key {
            step.retire_mark(&key, id, MarkState::Expired);
        }
    }
    Outcome::Removed(hidden)
}
