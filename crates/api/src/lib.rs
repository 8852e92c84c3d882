//! The user interface over HTTP (`/v1/…`): questions about what the node holds. Knows no sockets, no SQL
//! and no accounts: who may ask what it asks of a [`Host`], and what is found of a [`Finder`], the same one
//! that clients of the relay are answered from.
//!
//! ```text
//! request ─charge→ parameters ─may_read→ question ─Finder, store→ answer, or a Refusal
//! ```

mod answer;
mod document;
mod finder;
mod host;
mod parameters;
mod refusal;
mod router;
mod search;
mod topics;

pub use document::document;
pub use finder::{Finder, Found, Unavailable};
pub use host::Host;
pub use refusal::{Code, Refusal};
pub use router::{Api, ApiConfig, ApiStats};
pub use search::{SEARCH_ITEMS_DEFAULT, SEARCH_ITEMS_MAX};
pub use topics::{TOPICS_DEFAULT, TOPICS_MAX};
