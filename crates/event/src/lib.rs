//! Nostr values: parse, canonical id, verify, kinds, tags, filters and matching. Knows no I/O, no
//! clock, no randomness, no storage, and nothing about topics beyond the `t` tag.
//!
//! An event climbs three steps, and each type can only be built by the step below it:
//! [`Event::parse`] gives an [`Event`] of the right shape, [`Event::identify`] an [`Identified`] one
//! whose id was recomputed, [`Identified::verify`] a [`Verified`] one whose signature holds.

mod body;
mod event;
mod filter;
mod hash;
mod json;
mod kind;
mod tag;
mod time;
mod values;

pub use body::Body;
pub use event::{BadSignature, Event, IdMismatch, Identified, Verified};
pub use filter::{Filter, FilterError, matches, matches_any, tags_match};
pub use hash::{EventId, HexError, Pubkey, Signature};
pub use json::ParseError;
pub use kind::{Class, Kind};
pub use tag::{Address, Tag, TagLetter, Tags};
pub use time::UnixSeconds;
pub use values::{Conditions, Values};
