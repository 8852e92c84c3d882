//! How much fits into one batch. Pure.

use kukuri_core::{Act, Admitted};
use kukuri_event::{Class, EventId, Kind};

/// The bounds of one batch. A command that is larger than any of them makes a batch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    pub commands_max: usize,
    pub bytes_max: usize,
    /// Keys that have to be loaded before the batch can be decided.
    pub keys_max: usize,
}

impl BatchLimits {
    pub const STANDARD: Self =
        Self { commands_max: 1024, bytes_max: 4 * 1024 * 1024, keys_max: 16_384 };
}

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Load {
    limits: BatchLimits,
    commands: usize,
    bytes: usize,
    keys: usize,
}

impl Load {
    pub fn new(limits: BatchLimits) -> Self {
        Self { limits, commands: 0, bytes: 0, keys: 0 }
    }

    /// Adds the act if the batch has room for it; the first one always fits.
    pub fn take(&mut self, act: &Act) -> bool {
        let bytes = self.bytes + bytes(act);
        let keys = self.keys + keys(act);
        let fits = self.commands < self.limits.commands_max
            && bytes <= self.limits.bytes_max
            && keys <= self.limits.keys_max;
        if self.commands > 0 && !fits {
            return false;
        }
        self.commands += 1;
        self.bytes = bytes;
        self.keys = keys;
        true
    }
}

/// What an act weighs while it waits.
pub(crate) fn bytes(act: &Act) -> usize {
    let ids = |count: usize| count * size_of::<EventId>();
    match act {
        Act::Publish(admitted) => admitted.body().json().len(),
        Act::SetTopic { name, .. } => name.len(),
        Act::RemoveTopic(_) => 0,
        Act::Unlink { events, .. } => ids(events.len()),
        Act::Expire(events) => ids(events.len()),
        Act::Sightings(sightings) => ids(sightings.len()),
        Act::Evict { events, .. } => ids(events.len()),
        Act::Forget { events, tombstones, .. } => ids(events.len() + 2 * tombstones.len()),
        Act::Trim(_) | Act::Allow(_) | Act::Climb(_) | Act::SetStorage(_) => 0,
        Act::Hold { .. } | Act::Release { .. } => 0,
        Act::Fenced { act, .. } => bytes(act),
    }
}

/// At least as many keys as `ReadSet` will name. Counting is enough here: building the set would
/// cost more than the rest of the lane, and a batch that is cut a little early harms nobody.
fn keys(act: &Act) -> usize {
    match act {
        Act::Publish(admitted) => publish_keys(admitted),
        Act::SetTopic { .. } | Act::RemoveTopic(_) => 1,
        // The topic and the node.
        Act::Unlink { events, .. } => 2 + events.len(),
        Act::Expire(events) => events.len(),
        Act::Sightings(sightings) => sightings.len(),
        Act::Evict { events, .. } => 1 + events.len(),
        Act::Forget { events, tombstones, .. } => 1 + events.len() + tombstones.len(),
        Act::Trim(_) => 0,
        Act::Allow(_) | Act::Climb(_) | Act::SetStorage(_) => 1,
        Act::Hold { .. } | Act::Release { .. } => 1,
        Act::Fenced { act, .. } => 1 + keys(act),
    }
}

fn publish_keys(admitted: &Admitted) -> usize {
    let event = admitted.event();
    let topics = admitted.topics().len();
    if event.kind().class() == Class::Ephemeral {
        return topics;
    }
    // The event, its tombstone, its version and the node.
    let lookup = 4;
    // Each target is an event and a tombstone, or a version.
    let targets = match event.kind() {
        Kind::DELETION => 2 * event.tags().len(),
        _ => 0,
    };
    topics + lookup + targets
}
