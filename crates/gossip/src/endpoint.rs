//! The endpoint: what it listens on, whom it asks, and how large a message may be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iroh::address_lookup::memory::MemoryLookup;
use iroh::address_lookup::{DnsAddressLookup, PkarrPublisher};
use iroh::endpoint::{PortmapperConfig, QuicTransportConfig, presets};
use iroh::protocol::Router;
use iroh::{Endpoint, RelayMode};
use iroh_gossip::net::Gossip;
use iroh_gossip::proto::PlumtreeConfig;

use crate::NodeKey;
use crate::config::{Discovery, GossipConfig};
use crate::door::{Door, Hook};
use crate::message::WRAPPING_BYTES_MAX;
use crate::outgoing::EVENT_BYTES_MAX;
use crate::streams::{STREAMS_START, WINDOW_BYTES};

/// What the library may read and write at once: a little more than is ever sent, so that what is a little too
/// large is noticed and blamed, and does not end a neighbour's stream. It makes room for so much as soon as a
/// neighbour says how long its message will be.
pub(crate) const MESSAGE_BYTES_MAX: usize = EVENT_BYTES_MAX + 4 * WRAPPING_BYTES_MAX;
/// How long the library keeps messages for neighbours that ask for them. It has no bound in bytes, so the
/// time is short; round trips are shorter.
const CACHE_TIME: Duration = Duration::from_secs(10);

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "cannot listen for other nodes on {address} (UDP): {error}; choose another gossip.listen"
    )]
    Bind { address: SocketAddr, error: String },
}

pub(crate) struct Bound {
    pub endpoint: Endpoint,
    pub gossip: Gossip,
    pub lookup: MemoryLookup,
    pub router: Router,
}

/// Only what the library uses: a stream for each topic, in one direction. What nobody reads would wait here, so
/// nothing else is taken. [`Door`] lends more streams than these.
fn transport() -> QuicTransportConfig {
    QuicTransportConfig::builder()
        .max_concurrent_uni_streams(STREAMS_START.into())
        .max_concurrent_bidi_streams(0_u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into())
        .build()
}

pub(crate) async fn bind(
    config: &GossipConfig,
    key: &NodeKey,
    door: &Arc<Door>,
) -> Result<Bound, BindError> {
    let address = config.listen;
    let wrong = |error: String| BindError::Bind { address, error };
    let lookup = MemoryLookup::new();
    let relays = match config.relays.is_empty() {
        true => RelayMode::Disabled,
        false => RelayMode::custom(config.relays.iter().cloned()),
    };
    let builder = Endpoint::builder(presets::Minimal)
        .relay_mode(relays)
        .portmapper_config(PortmapperConfig::Disabled)
        .clear_ip_transports()
        .bind_addr(address)
        .map_err(|error| wrong(error.to_string()))?
        .address_lookup(lookup.clone())
        .transport_config(transport())
        .hooks(Hook(Arc::clone(door)))
        .secret_key(key.secret());
    let builder = match config.discovery {
        Discovery::Off => builder,
        Discovery::Dns => builder
            .address_lookup(PkarrPublisher::n0_dns())
            .address_lookup(DnsAddressLookup::n0_dns()),
    };
    let endpoint = builder.bind().await.map_err(|error| wrong(format!("{error:#}")))?;
    let plumtree = PlumtreeConfig { message_cache_retention: CACHE_TIME, ..Default::default() };
    let gossip = Gossip::builder()
        .max_message_size(MESSAGE_BYTES_MAX)
        .broadcast_config(plumtree)
        .spawn(endpoint.clone());
    let router =
        Router::builder(endpoint.clone()).accept(iroh_gossip::ALPN, gossip.clone()).spawn();
    Ok(Bound { endpoint, gossip, lookup, router })
}
