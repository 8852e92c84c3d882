//! The event store on PostgreSQL. Knows no rules: what to write is decided in `core`; knows no
//! sockets, no clock, and nothing of who asks.
//!
//! A batch runs on one connection of its own ([`lane`]), fenced by a row that every batch changes; readers
//! share bounded pools ([`readers`]) and read snapshots. After a commit the new head goes to the process at once
//! (`heads`) and to other processes by a notifier beside the transaction ([`notify`]).

pub mod backup;
mod bounds;
mod check;
mod dense;
mod error;
mod facts;
mod feed;
mod lane;
mod list;
mod migrate;
mod notify;
mod numbers;
mod options;
mod packed;
mod page;
mod partition;
mod pool;
mod query;
mod readers;
mod rows;
mod session;
mod store;
mod subscriptions;
mod tidy;
mod upkeep;
mod write;

pub use options::{Fsync, Options, Wakeup};
pub use store::PostgresStore;
