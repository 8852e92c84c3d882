//! Connections that are really made, at a time that is not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iroh::endpoint::{Builder, presets};
use iroh::{Endpoint, RelayMode};
use kukuri_core::rate::Allowance;
use kukuri_testkit::condition::until;

use super::*;
use crate::room::GRACE;
use crate::streams::NETWORK_LINKS_MAX;
use crate::{Discovery, Rates};

const ALPN: &[u8] = b"door";

fn endpoint(address: [u8; 4]) -> Builder {
    Endpoint::builder(presets::Minimal)
        .relay_mode(RelayMode::Disabled)
        .clear_ip_transports()
        .bind_addr(SocketAddr::from((address, 0)))
        .unwrap()
}

fn door(clock: Clock, counters: &Arc<Counters>) -> Arc<Door> {
    let each = Allowance::UNBOUNDED;
    let config = GossipConfig {
        directory: "/nowhere".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        peers: Vec::new(),
        relays: Vec::new(),
        discovery: Discovery::Off,
        rates: Rates { each, all: each },
        mute: Duration::from_secs(1),
        topics_max: 1,
        announce: None,
    };
    Door::new(&config, clock, Arc::clone(counters))
}

/// An address has all the connections it may have. Within the grace one more is refused; after it, the oldest that
/// is no neighbour's ends for it.
#[tokio::test]
async fn who_is_idle_makes_room_for_another() {
    let (passed, counters) = (Arc::new(AtomicU64::new(0)), Arc::<Counters>::default());
    let clock = Arc::clone(&passed);
    let start = UnixMillis(1_000_000);
    let clock: Clock = Arc::new(move || {
        start.saturating_add(Duration::from_millis(clock.load(Ordering::Relaxed)))
    });
    let door = door(clock, &counters);
    let hook = Hook(Arc::clone(&door));
    let server = endpoint([127, 0, 0, 1]).alpns(vec![ALPN.to_vec()]).hooks(hook);
    let server = server.bind().await.unwrap();
    let (address, accepting) = (server.addr(), server.clone());
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    connection.closed().await;
                }
            });
        }
    });
    let mut strangers = Vec::new();
    for _ in 0..NETWORK_LINKS_MAX + 2 {
        strangers.push(endpoint([127, 0, 0, 2]).bind().await.unwrap());
    }
    let mut connections = Vec::new();
    for stranger in &strangers[..NETWORK_LINKS_MAX] {
        connections.push(stranger.connect(address.clone(), ALPN).await.unwrap());
        until("a connection", || door.is_connected(&stranger.id())).await;
        passed.fetch_add(1, Ordering::Relaxed);
    }
    let [early, late] = &strangers[NETWORK_LINKS_MAX..] else { unreachable!("there are two") };
    let _refused = early.connect(address.clone(), ALPN).await;
    until("a refusal", || counters.stats().connections_refused == 1).await;
    passed.fetch_add(GRACE.as_millis() as u64, Ordering::Relaxed);
    door.lend(&HashMap::from([(strangers[0].id(), 1)]), 1);
    let _taken = late.connect(address, ALPN).await.unwrap();
    until("another connection", || door.is_connected(&late.id())).await;
    until("the end of one", || connections[1].close_reason().is_some()).await;
    assert!(!door.is_connected(&strangers[1].id()));
    for stranger in strangers[..NETWORK_LINKS_MAX].iter().filter(|s| s.id() != strangers[1].id()) {
        assert!(door.is_connected(&stranger.id()), "a neighbour, or younger");
    }
    assert_eq!(counters.stats().connections_refused, 1);
}
