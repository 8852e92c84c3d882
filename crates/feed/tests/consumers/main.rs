//! Consumers lose nothing: whatever fails at whatever step, what is written and how far it was read agree;
//! on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checkers;
mod crash;
mod doubt;
mod fence;
mod looking;
mod loss;
mod notes;
mod outage;
mod poison;
mod processes;
mod rebuild;
mod rig;
mod wakeup;
