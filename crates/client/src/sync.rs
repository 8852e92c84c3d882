//! Reconciling with a relay (NIP-77): which events it has that we have not, and the reverse, in messages
//! whose size follows the differences; and fetching what is missing.
//!
//! ```text
//! own ids ─Reconciler→ NEG-OPEN, NEG-MSG … ─→ ids we need ─fetch→ REQ by ids … ─→ events as they came
//! ```
//! The [`Reconciler`] decides and does no I/O; a [`Peer`] is one connection, which is not made again by
//! itself: whoever reconciles begins anew, and finds less to do.

mod error;
mod fetch;
mod first;
mod group;
mod peer;
mod reconciler;

pub use error::{ReconcileError, SyncError};
pub use fetch::{FETCH_IDS_MAX, Fetch};
pub use group::{GROUP_BYTES_MAX, GROUP_EVENTS_MAX, Group};
pub use peer::{Differences, Peer, PeerConfig, Traffic};
pub use reconciler::{Dated, IDS_MAX, Reconciler, Step};
