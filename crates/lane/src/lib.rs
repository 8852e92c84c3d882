//! The single write lane: every change of a store queues here, is committed together with whatever
//! else waits, and is answered once it is durable. Knows no SQL, no sockets and no rules.
//!
//! ```text
//! submit ─room→ queue ─form→ batch ─Store::apply→ Decision ─→ answers, in order
//!                                                        └→ ephemerals, sightings
//! ```
//! One task owns the batch that is being committed, so batches never overlap: what queues during a
//! commit is the next batch. Nothing is answered with an outcome before its commit has returned.

mod batch;
mod config;
mod counters;
mod ephemeral;
mod error;
mod lane;
mod line;
mod retry;
mod room;
mod shared;
mod sightings;
mod ticket;
mod worker;

pub use batch::BatchLimits;
pub use config::LaneConfig;
pub use counters::LaneStats;
pub use ephemeral::Ephemerals;
pub use error::{DrainError, Health, LaneError};
pub use lane::Lane;
pub use ticket::{Answer, Ticket, Tickets};
