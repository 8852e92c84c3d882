//! Reading the feed: in order, without a hole, and loud when that is impossible. Knows no SQL, no
//! sockets and nothing about what its readers do with the rows.

mod tail;

pub use kukuri_store::FeedError;
pub use tail::{POLL_INTERVAL, Tail};
