//! What is done to a relay.

mod fanout;
mod idle;
mod ingest;
mod memory;
mod query;

pub use fanout::{Crowd, fanout};
pub use idle::idle;
pub use ingest::ingest;
pub use memory::memory;
pub use query::query;
