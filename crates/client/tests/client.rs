//! The client against a relay on real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "client/auth.rs"]
mod auth;
#[path = "client/cuts.rs"]
mod cuts;
#[path = "client/proxy.rs"]
mod proxy;
#[path = "client/publish.rs"]
mod publish;
#[path = "client/rig.rs"]
mod rig;
#[path = "client/slow.rs"]
mod slow;
#[path = "client/subscribe.rs"]
mod subscribe;
