//! The interface as programs use it: over a store in memory, an index on files, and a house whose rules a
//! test chooses. That both databases find the same, and the relay as well, is told by the node's stories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "api/asking.rs"]
mod asking;
#[path = "api/described.rs"]
mod described;
#[path = "api/rig.rs"]
mod rig;
#[path = "api/rules.rs"]
mod rules;
