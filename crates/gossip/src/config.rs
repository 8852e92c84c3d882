use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use iroh::RelayUrl;
use kukuri_core::rate::Allowance;

use crate::PeerHint;

/// Where and with whom a node gossips.
#[derive(Clone, Debug)]
pub struct GossipConfig {
    /// Where the neighbours that were met are remembered.
    pub directory: PathBuf,
    pub listen: SocketAddr,
    pub peers: Vec<PeerHint>,
    /// Relay servers of iroh, for nodes that cannot be reached directly.
    pub relays: Vec<RelayUrl>,
    pub discovery: Discovery,
    pub rates: Rates,
    /// How long a neighbour is not listened to the first time.
    pub mute: Duration,
    /// Swarms the node is in at once.
    pub topics_max: usize,
    /// The address of our own WebSocket relay, told to peers that the operator has named, so that they can
    /// ask it for what they have missed.
    pub announce: Option<String>,
}

/// Messages that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub each: Allowance,
    pub all: Allowance,
}

/// How nodes are found of which only the id is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Not at all: nobody else is asked.
    Off,
    /// By the name servers of n0, the makers of iroh, which also learn our address.
    Dns,
}
