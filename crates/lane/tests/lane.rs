//! The lane against a store that is slow, fails, and forgets to say that it committed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "lane/batches.rs"]
mod batches;
#[path = "lane/ending.rs"]
mod ending;
#[path = "lane/faults.rs"]
mod faults;
#[path = "lane/rig.rs"]
mod rig;
#[path = "lane/side.rs"]
mod side;
