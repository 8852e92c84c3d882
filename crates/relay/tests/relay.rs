//! The relay on real sockets, as clients see it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "relay/auth.rs"]
mod auth;
#[path = "relay/beside.rs"]
mod beside;
#[path = "relay/crowd.rs"]
mod crowd;
#[path = "relay/events.rs"]
mod events;
#[path = "relay/found.rs"]
mod found;
#[path = "relay/frames.rs"]
mod frames;
#[path = "relay/handoff.rs"]
mod handoff;
#[path = "relay/held.rs"]
mod held;
#[path = "relay/limits.rs"]
mod limits;
#[path = "relay/limits_addresses.rs"]
mod limits_addresses;
#[path = "relay/limits_events.rs"]
mod limits_events;
#[path = "relay/limits_flow.rs"]
mod limits_flow;
#[path = "relay/limits_table.rs"]
mod limits_table;
#[path = "relay/malformed.rs"]
mod malformed;
#[path = "relay/neg.rs"]
mod neg;
#[path = "relay/nip11.rs"]
mod nip11;
#[path = "relay/others.rs"]
mod others;
#[path = "relay/resume.rs"]
mod resume;
#[path = "relay/rig.rs"]
mod rig;
#[path = "relay/slow.rs"]
mod slow;
#[path = "relay/subscriptions.rs"]
mod subscriptions;
#[path = "relay/tester.rs"]
mod tester;
#[path = "relay/versions.rs"]
mod versions;
