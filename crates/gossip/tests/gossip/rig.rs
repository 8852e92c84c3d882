//! A node's store and lane with gossip around them, and strangers that keep to no rules.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use iroh::address_lookup::memory::MemoryLookup;
use iroh::endpoint::{PortmapperConfig, QuicTransportConfig, presets};
use iroh::protocol::Router;
use iroh::{Endpoint, EndpointAddr, RelayMode, TransportAddr};
use iroh_gossip::api::{Event, GossipReceiver, GossipSender};
use iroh_gossip::net::Gossip as Library;
use iroh_gossip::proto::TopicId as SwarmId;
use kukuri_core::admission::Topicless;
use kukuri_core::backfill::Why;
use kukuri_core::rate::Allowance;
use kukuri_core::{
    Act, Admitted, Cursor, FeedRow, Limits, Outcome, ReadSet, Seq, TopicId, gossip_topic,
};
use kukuri_event::{Body, EventId};
use kukuri_gossip::{
    Discovery, Gossip, GossipConfig, GossipStats, Ground, Listener, Memory, NodeKey, PeerHint,
    Rates,
};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use kukuri_store_postgres::{Fsync, PostgresStore};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::generate::World;
use kukuri_testkit::postgres::{Cluster, Durability};
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(60);
const WINDOW_BYTES: u32 = 256 * 1024;

#[derive(Default)]
pub struct Told(Mutex<Vec<(TopicId, Why, Option<String>)>>);

impl Listener for Told {
    fn missed(&self, topic: &TopicId, why: Why, from: Option<&str>) {
        self.0.lock().unwrap().push((topic.clone(), why, from.map(str::to_owned)));
    }
}

/// Remembers nothing: everything is verified, and read from the store.
struct Forgetful;

impl Memory for Forgetful {
    fn recall(&self, _: &EventId) -> Option<Arc<Body>> {
        None
    }

    fn remember(&self, _: &Arc<Body>) {}
}

pub struct Node {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub gossip: Gossip,
    pub told: Arc<Told>,
    home: TempDir,
}

impl Node {
    /// Over a store in memory.
    pub async fn start(topics: &[TopicId], peers: &[&Node]) -> Self {
        Self::over(Arc::new(Model::default()), topics, peers).await
    }

    pub async fn over(store: Arc<dyn Store>, topics: &[TopicId], peers: &[&Node]) -> Self {
        let peers: Vec<PeerHint> = peers.iter().map(|node| node.hint()).collect();
        Self::with(store, topics, |config| config.peers = peers).await
    }

    pub async fn with(
        store: Arc<dyn Store>,
        topics: &[TopicId],
        change: impl FnOnce(&mut GossipConfig),
    ) -> Self {
        Self::limited(store, topics, Limits::STANDARD, change).await
    }

    /// One whose operator has chosen other limits of events.
    pub async fn limited(
        store: Arc<dyn Store>,
        topics: &[TopicId],
        limits: Limits,
        change: impl FnOnce(&mut GossipConfig),
    ) -> Self {
        let home = TempDir::new().unwrap();
        let mut config = GossipConfig {
            directory: home.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            peers: Vec::new(),
            relays: Vec::new(),
            discovery: Discovery::Off,
            rates: Rates { each: Allowance::UNBOUNDED, all: Allowance::UNBOUNDED },
            mute: Duration::from_secs(600),
            topics_max: 1000,
            announce: None,
        };
        change(&mut config);
        let lane = Lane::start(Arc::clone(&store), Arc::new(World::now), LaneConfig::STANDARD);
        let (lane, told) = (Arc::new(lane), Arc::new(Told::default()));
        for topic in topics {
            assert_eq!(lane.run(Act::carry(topic.clone(), "")).await, Ok(Outcome::Done));
        }
        let ground = Ground {
            store: Arc::clone(&store),
            lane: Arc::clone(&lane),
            clock: Arc::new(World::now),
            limits,
            topicless: Topicless::Reject,
            memory: Arc::new(Forgetful),
            listener: Arc::clone(&told) as Arc<dyn Listener>,
        };
        let key = NodeKey::in_directory(home.path()).unwrap();
        let gossip = Gossip::start(config, &key, ground).await.unwrap();
        Self { store, lane, gossip, told, home }
    }

    /// How others can name it.
    pub fn hint(&self) -> PeerHint {
        self.gossip.hints().remove(0)
    }

    pub fn directory(&self) -> &std::path::Path {
        self.home.path()
    }

    pub async fn carry(&self, topic: &TopicId, enabled: bool) {
        let Act::SetTopic { topic_id, name, wanted, ingest_policy, .. } =
            Act::carry(topic.clone(), "")
        else {
            unreachable!("it sets a topic");
        };
        let act = Act::SetTopic { topic_id, name, enabled, pinned: enabled, wanted, ingest_policy };
        assert_eq!(self.lane.run(act).await, Ok(Outcome::Done));
    }

    pub async fn publish(&self, event: &Admitted) {
        let answer = self.lane.run(Act::Publish(event.clone())).await;
        assert_eq!(answer, Ok(Outcome::Accepted));
    }

    pub async fn holds(&self, id: EventId) -> bool {
        let needs = ReadSet { events: [id].into(), ..ReadSet::default() };
        let records = self.store.facts(needs).await.unwrap().records;
        records.into_values().flatten().any(|record| record.is_effective())
    }

    pub async fn until_holds(&self, event: &Admitted) {
        let held = async || self.holds(event.event().id()).await.then_some(());
        wait_for_async("an event", LIMIT, held).await.unwrap();
    }

    pub async fn rows(&self) -> Vec<FeedRow> {
        let bounds = self.store.bounds().await.unwrap();
        let start = Cursor { epoch: bounds.epoch, seq: Seq::ZERO };
        self.store.feed(start, 100_000).await.unwrap()
    }

    pub fn stats(&self) -> GossipStats {
        self.gossip.stats()
    }

    pub async fn until_stats(&self, what: &str, reached: impl Fn(&GossipStats) -> bool) {
        let probe = async || reached(&self.stats()).then_some(());
        wait_for_async(what, LIMIT, probe)
            .await
            .unwrap_or_else(|late| panic!("{late}: {:?}", self.stats()));
    }

    pub fn neighbours(&self, topic: &TopicId) -> usize {
        let topics = self.gossip.status().topics;
        let found = topics.iter().find(|status| status.topic_id == topic.as_str());
        found.map_or(0, |status| status.neighbours.len())
    }

    /// How often a topic's swarm has asked in vain.
    pub fn tries(&self, topic: &TopicId) -> u32 {
        let topics = self.gossip.status().topics;
        let found = topics.iter().find(|status| status.topic_id == topic.as_str());
        found.map_or(0, |status| status.tries)
    }

    /// Until it has so many neighbours in a topic's swarm.
    pub async fn until_joined(&self, topic: &TopicId, neighbours: usize) {
        let joined = async || (self.neighbours(topic) >= neighbours).then_some(());
        wait_for_async("neighbours", LIMIT, joined).await.unwrap();
    }

    pub fn told(&self) -> Vec<(TopicId, Why, Option<String>)> {
        self.told.0.lock().unwrap().clone()
    }
}

pub fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

/// One of 65 536.
pub fn numbered(nth: u16) -> TopicId {
    let bytes = [nth.to_be_bytes(); 16].concat();
    TopicId::parse(&format!("kukuri:{}", hex::encode(bytes))).unwrap()
}

/// A client's note on these topics.
pub fn note(topics: &[TopicId], content: &str) -> Admitted {
    Author::numbered(1).admit(&draft(topics, content), World::NOW)
}

pub fn draft(topics: &[TopicId], content: &str) -> Draft {
    let draft = Draft::new(1, World::NOW).content(content);
    topics.iter().fold(draft, |draft, topic| draft.tag("t", topic))
}

/// An endpoint that speaks the protocol and keeps to no rules.
pub struct Stranger {
    endpoint: Endpoint,
    gossip: Library,
    _router: Router,
}

impl Stranger {
    pub async fn new() -> Self {
        Self::on(&tokio::runtime::Handle::current()).await
    }

    /// One that reads and speaks on another runtime than its endpoint, and lets little wait unread.
    pub async fn on(runtime: &tokio::runtime::Handle) -> Self {
        let transport = QuicTransportConfig::builder().stream_receive_window(WINDOW_BYTES.into());
        let endpoint = Endpoint::builder(presets::Minimal)
            .relay_mode(RelayMode::Disabled)
            .portmapper_config(PortmapperConfig::Disabled)
            .clear_ip_transports()
            .bind_addr("127.0.0.1:0")
            .unwrap()
            .address_lookup(MemoryLookup::new())
            .transport_config(transport.build())
            .bind()
            .await
            .unwrap();
        let gossip = {
            let _elsewhere = runtime.enter();
            Library::builder().max_message_size(1024 * 1024).spawn(endpoint.clone())
        };
        let router = Router::builder(endpoint.clone()).accept(iroh_gossip::ALPN, gossip.clone());
        Self { endpoint, gossip, _router: router.spawn() }
    }

    /// Is in a topic's swarm, next to a node.
    pub async fn join(&self, node: &Node, topic: &TopicId) -> (GossipSender, GossipReceiver) {
        self.dial(node).await.unwrap();
        let swarm = SwarmId::from_bytes(gossip_topic(topic));
        let mut link = self.gossip.subscribe(swarm, vec![node.hint().id]).await.unwrap();
        tokio::time::timeout(LIMIT, link.joined()).await.unwrap().unwrap();
        link.split()
    }

    pub async fn dial(&self, node: &Node) -> Result<(), String> {
        let connection = self.endpoint.connect(address(node), iroh_gossip::ALPN).await;
        let connection = connection.map_err(|error| error.to_string())?;
        self.gossip.handle_connection(connection).await.map_err(|error| error.to_string())
    }
}

/// An endpoint without the library, at an address of its own on loopback.
pub async fn bare(address: [u8; 4]) -> Endpoint {
    Endpoint::builder(presets::Minimal)
        .relay_mode(RelayMode::Disabled)
        .portmapper_config(PortmapperConfig::Disabled)
        .clear_ip_transports()
        .bind_addr(SocketAddr::from((address, 0)))
        .unwrap()
        .bind()
        .await
        .unwrap()
}

/// Where a node is.
pub fn address(node: &Node) -> EndpointAddr {
    let hint = node.hint();
    let at = hint.addresses[0].to_string().parse().unwrap();
    EndpointAddr::from_parts(hint.id, [TransportAddr::Ip(at)])
}

pub async fn say(sender: &GossipSender, text: impl Into<Vec<u8>>) {
    sender.broadcast(Bytes::from(text.into())).await.unwrap();
}

/// The next message that a stranger hears.
pub async fn next_message(receiver: &mut GossipReceiver) -> Vec<u8> {
    use futures_util::StreamExt;
    loop {
        let event = tokio::time::timeout(LIMIT, receiver.next()).await.unwrap().unwrap();
        if let Event::Received(message) = event.unwrap() {
            return message.content.to_vec();
        }
    }
}

/// Stores of each sort, three of each.
pub struct Homes {
    pub directory: TempDir,
    cluster: Cluster,
}

impl Homes {
    pub fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            cluster: Cluster::start(Durability::Fast).unwrap(),
        }
    }

    pub async fn three_of_each(&self) -> [[Arc<dyn Store>; 3]; 2] {
        let sqlite = ["one", "two", "three"].map(|name| {
            let options = kukuri_store_sqlite::Options {
                sync: kukuri_store_sqlite::Sync::OffForTests,
                ..kukuri_store_sqlite::Options::standard(1)
            };
            let store = SqliteStore::open(&self.directory.path().join(name), options).unwrap();
            Arc::new(store) as Arc<dyn Store>
        });
        [sqlite, [self.postgres().await, self.postgres().await, self.postgres().await]]
    }

    async fn postgres(&self) -> Arc<dyn Store> {
        let options = kukuri_store_postgres::Options {
            fsync: Fsync::AnyForTests,
            ..kukuri_store_postgres::Options::STANDARD
        };
        let url = self.cluster.create_database();
        Arc::new(PostgresStore::open(&url, options).await.unwrap())
    }
}
