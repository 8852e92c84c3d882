//! Reading the feed without skipping, and the runtime of everything that is fed by it. Knows no sockets,
//! no SQL of the event store, and nothing about what consumers keep.
//!
//! ```text
//! feed ─Tail→ rows ─bodies→ Update* ─Consumer::project→ effects ─Consumer::apply→ tables
//!                                                               └ the offset, in the same transaction
//! ```
//!
//! A [`Consumer`] is a pure function from [`Update`]s to effects, and the tables it writes them to. The
//! runtime owns the rest: whose turn it is, what is read when, what happens when something fails, and
//! how far it is.

mod consumer;
mod desk;
mod generation;
mod home;
mod lag;
mod ledger;
mod runner;
mod tail;
mod update;

pub use consumer::{Consumer, ConsumerName, Poison};
pub use desk::{Column, Desk, DeskError, Dialect, Given, Native, Row, Value};
pub use generation::{Digest, Generation, Sample};
pub use home::{Home, Place, Snapshot, Sync, Writing};
pub use kukuri_store::FeedError;
pub use lag::lag;
pub use ledger::{Active, GenerationState, Parked, Role, Wish};
pub use runner::{
    AnyRunner, GenerationReport, Obstacle, OnLoss, OperateError, Probe, Report, Runner,
    RunnerConfig, RunnerError, Step, Wakeup,
};
pub use tail::{POLL_INTERVAL, Tail};
pub use update::{Update, What};
