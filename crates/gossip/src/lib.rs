//! The door to other nodes: one iroh-gossip swarm for each topic that is carried. What comes in passes
//! the same admission as a client's event; what clients publish goes out once it is durable. The only
//! crate that names iroh. Knows no SQL, no WebSockets and no accounts.
//!
//! ```text
//! swarm ─size, rate, decode→ text ─screen→ Screened ─verify, admit→ Admitted ─lane→ …
//! feed ─from head on→ rows ─outgoing→ bodies ─size→ swarms of their topics
//! ```
//!
//! What decides does no I/O: [`peer`], [`envelope`], [`message`], [`outgoing`], [`conduct`], [`nudges`],
//! [`room`], [`streams`], [`supervision`] and [`wanted`]. Gossip is a hint that comes at once, and may be lost: history is the
//! business of backfill, which is told of every gap by [`Listener`].

mod book;
pub mod conduct;
mod config;
mod counters;
mod dialler;
mod door;
mod endpoint;
pub mod envelope;
mod gossip;
mod hello;
mod inlet;
mod key;
pub mod message;
pub mod nudges;
pub mod outgoing;
mod outlet;
mod pace;
pub mod peer;
pub mod room;
mod slow;
mod status;
pub mod streams;
pub mod supervision;
mod swarm;
mod time;
pub mod wanted;
mod watchdog;

pub use config::{Discovery, GossipConfig, Rates};
pub use counters::GossipStats;
pub use endpoint::BindError;
pub use gossip::{Gossip, Ground, Listener, Memory, StartError};
pub use iroh::{EndpointId, RelayUrl};
pub use key::{KeyError, NodeKey};
pub use peer::{PeerHint, PeerHintError};
pub use status::{GossipStatus, NeighbourStatus, TopicStatus};
