//! The Rust client of a relay: publish events and follow subscriptions over a WebSocket that mends
//! itself. Knows the wire protocol and `kukuri-event`; must not know stores, lanes or the relay's
//! insides.
//!
//! ```text
//! Client ─Command→ task ─Input→ State::handle ─Output→ task ─┬→ socket
//!                                                            ├→ the answer of a publish
//!                                                            └→ Item → Subscription::next
//! ```
//! The state decides and does no I/O; time and randomness are arguments. The task around it owns
//! the socket, and ends when the [`Client`] is dropped. There is no TLS yet: addresses begin with
//! `ws://`.
//!
//! # After a lost connection
//!
//! The client connects again, after pauses that grow to a limit and are jittered. Publishes that
//! have no answer are sent again until their deadline: a relay knows an event by its id.
//! Subscriptions go on where they were, and their reader notices nothing but a pause.
//!
//! *On a relay with cursors* (this project's), nothing is missed, and nothing comes twice unless more
//! than [`SEEN_IDS_MAX`] stored events come at once, which its standard limits do not allow. A
//! subscription asks for a cursor C first, with a question that matches nothing; then for what is
//! stored, with the filters as they are; then for everything after C, leaving out what it has
//! shown. From there on each event brings its cursor, and whatever interrupts it, it goes on after
//! the last one it has shown. Events that relays do not store (kinds 20000 to 29999) are as live as
//! the connection is: what is said during an interruption is not said again.
//!
//! *On other relays*, and where a cursor has become too old, it asks again with `since` set
//! [`OVERLAP_SECONDS`] before the newest event it knows, without `limit`, and leaves out what is
//! among the last [`SEEN_IDS_MAX`] it has shown. That finds what came late by no more than the
//! overlap, and no more than the relay is willing to answer at once.
//!
//! # Slow readers
//!
//! Each subscription has a queue of `items_max` events. When it is full, the subscription is closed
//! on the wire, and asked again after the last event that went in when half of the queue is free:
//! memory is bounded, nothing is lost, and other subscriptions and publishes do not wait. Only who
//! asks for more stored events than the client can remember ([`SEEN_IDS_MAX`]) and does not read
//! them gets [`Closing::TooManyStored`].
//!
//! [`sync`] finds out what a relay has that somebody else has not, and fetches it.

mod backoff;
mod client;
mod config;
mod error;
mod item;
mod message;
mod reason;
mod socket;
mod state;
pub mod sync;
mod task;

pub use backoff::Backoff;
pub use client::{Client, Subscription};
pub use config::{
    Challenge, Check, ClientConfig, MESSAGE_BYTES_MAX, OVERLAP_SECONDS, PUBLISHES_MAX,
    SEEN_IDS_MAX, SUBSCRIPTIONS_MAX, Signer,
};
pub use error::{ConnectError, PublishError, SubscribeError};
pub use item::{Closing, Item, Published};
pub use reason::{Prefix, Reason};
