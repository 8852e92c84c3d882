//! Nodes that gossip, over real endpoints on loopback: what goes where, how often, and what becomes of
//! swarms and neighbours.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gossip/bridge.rs"]
mod bridge;
#[path = "gossip/hostile.rs"]
mod hostile;
#[path = "gossip/purged.rs"]
mod purged;
#[path = "gossip/rig.rs"]
mod rig;
#[path = "gossip/spread.rs"]
mod spread;
#[path = "gossip/streams.rs"]
mod streams;
#[path = "gossip/topics.rs"]
mod topics;
