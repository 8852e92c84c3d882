//! Who gets what: the index against the matcher, and the hand-off from stored to live.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "fanout/agreement.rs"]
mod agreement;
#[path = "fanout/handoff.rs"]
mod handoff;
#[path = "fanout/index.rs"]
mod index;
#[path = "fanout/letterbox.rs"]
mod letterbox;
#[path = "fanout/long.rs"]
mod long;
#[path = "fanout/replay.rs"]
mod replay;
#[path = "fanout/slow.rs"]
mod slow;
#[path = "fanout/trouble.rs"]
mod trouble;
