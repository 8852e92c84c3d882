//! Live subscriptions: which change of the feed goes to whom, exactly once and in order. Consumer
//! zero of the feed. Knows no sockets, no SQL, no accounts, and nothing of how a recipient is reached
//! beyond its [`Mailbox`].
//!
//! ```text
//! feed ─pump→ rows with bodies ─index→ candidates ─matcher→ Mailbox::deliver
//!                          └→ ring ─attach at S→ replay S+1 …, then live
//! ```
//! A subscription is attached at the seq its stored events were read at. It is given every row after
//! that which is new to it and still holds: from the ring if that reaches back so far, from the feed
//! otherwise. A mailbox that is full loses nothing: the subscription is taken out and told where to go
//! on from.

mod bodies;
mod fanout;
mod index;
mod late;
mod mailbox;
mod offer;
mod post;
mod pump;
mod ring;
mod subscription;

pub use fanout::{Attached, Fanout, FanoutConfig, FanoutStats};
pub use index::Index;
pub use mailbox::{Delivery, Detached, Due, Full, Mailbox};
pub use subscription::{SubKey, Subscription};
