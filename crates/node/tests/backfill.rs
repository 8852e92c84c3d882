//! Nodes that reconcile with each other, in one process and over real sockets. What the program does is in
//! `cli/backfill.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "backfill/bounds.rs"]
mod bounds;
#[path = "backfill/convergence.rs"]
mod convergence;
#[path = "backfill/crowded.rs"]
mod crowded;
#[path = "backfill/cut_off.rs"]
mod cut_off;
#[path = "backfill/gaps.rs"]
mod gaps;
#[path = "backfill/hostile.rs"]
mod hostile;
#[path = "backfill/memory.rs"]
mod memory;
#[path = "backfill/progress.rs"]
mod progress;
#[path = "backfill/rig.rs"]
mod rig;
#[path = "backfill/stalling.rs"]
mod stalling;
#[path = "backfill/strange.rs"]
mod strange;
#[path = "backfill/turns.rs"]
mod turns;
