//! Random input from a seed: signed events, commands, filters, and events in bulk.
//!
//! The same seed always gives the same input, so a seed in a message is all that is needed to see a
//! failure again.

pub mod bulk;
mod dice;
mod draft;
mod filter;
mod script;
mod upkeep;
mod world;

pub use dice::{Dice, Seed};
pub use filter::{group, group_in_topics, query};
pub use script::{arrivals, batches, script, untrimmed};
pub use world::World;
