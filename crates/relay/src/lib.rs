//! The WebSocket door of the node: NIP-01 and its companions over the write lane and the fan-out.
//! Knows no SQL, no accounts and no words: who may do what it asks of a [`Gate`], and what is found by
//! words of a [`Search`].
//!
//! ```text
//! socket ─reader→ Session::handle ─→ Output ─┬→ lane, whose answer is an OK
//!                                            ├→ request: stored events, EOSE, then the fan-out
//!                                            └→ outbox ─writer→ socket
//! ```
//! The session decides and does no I/O. Reader and writer are tasks of their own: a client that does
//! not read holds up nobody but itself.

mod address;
mod auth;
mod census;
mod connection;
mod ear;
mod gate;
mod limits;
mod message;
mod neg;
mod nip11;
mod outbox;
mod policy;
mod relay;
mod reply;
mod request;
mod search;
mod server;
mod session;
mod topics;
mod upgrade;
mod visit;

pub use address::{Network, NetworkError, Sender};
pub use auth::AuthError;
pub use gate::{Authed, Gate, OpenGate};
pub use kukuri_core::rate::{Allowance, Meter};
pub use limits::RelayLimits;
pub use message::{ClientMessage, NegMessage, Question, SubId, Unreadable};
pub use nip11::About;
pub use policy::{Auth, AuthPolicy, AuthRule, Deadline};
pub use relay::{Relay, RelayConfig, RelayStats};
pub use search::{Search, SearchAnswer, SearchQuestion, SearchRefusal};
pub use server::{serve, serve_with};
pub use session::{Ask, Charge, Output, Reconcile, Resume, Session, Surroundings};
pub use topics::CarriedTopics;
