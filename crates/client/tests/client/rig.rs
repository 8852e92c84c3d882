//! A relay on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kukuri_client::{Backoff, Client, ClientConfig, Item, Subscription};
use kukuri_core::admission::Topicless;
use kukuri_core::{Act, Outcome, TopicId};
use kukuri_event::{Event, Filter};
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_relay::{
    About, Allowance, AuthPolicy, OpenGate, Relay, RelayConfig, RelayLimits, serve,
};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
pub use kukuri_testkit::condition::until;
use kukuri_testkit::generate::World;
use tokio::net::TcpListener;
use tokio::time::timeout;

pub const WAIT_MAX: Duration = Duration::from_secs(120);

pub struct Rig {
    pub relay: Arc<Relay>,
    pub fanout: Arc<Fanout>,
    pub address: SocketAddr,
    _serving: tokio::task::JoinSet<()>,
}

impl Rig {
    /// Over a store in memory, with the topic of [`note`].
    pub async fn start(auth: AuthPolicy) -> Self {
        Self::over(Arc::new(Model::default()), &[topic()], auth).await
    }

    pub async fn over(store: Arc<dyn Store>, topics: &[TopicId], auth: AuthPolicy) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock: kukuri_store::Clock = Arc::new(World::now);
        let lane = Lane::start(Arc::clone(&store), Arc::clone(&clock), LaneConfig::STANDARD);
        let lane = Arc::new(lane);
        for topic in topics {
            let carried = lane.run(Act::carry(topic.clone(), String::new())).await;
            assert_eq!(carried, Ok(Outcome::Done));
        }
        let fanout = Fanout::start(Arc::clone(&store), Arc::clone(&clock), FanoutConfig::STANDARD);
        let fanout = Arc::new(fanout.await.unwrap());
        let (shared, gate) = (Arc::clone(&fanout), Arc::new(OpenGate));
        let relay = Relay::start(store, lane, shared, gate, clock, config(address, auth));
        let relay = relay.await.unwrap();
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(serve(Arc::clone(&relay), listener));
        Self { relay, fanout, address, _serving: serving }
    }

    pub fn url(&self) -> String {
        url(self.address)
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.url(), client_config()).await.unwrap()
    }
}

/// Limits that do not get in the way of tests about other things.
fn config(address: SocketAddr, auth: AuthPolicy) -> RelayConfig {
    let limits = RelayLimits {
        events_per_ip: Allowance::UNBOUNDED,
        events_per_pubkey: Allowance::UNBOUNDED,
        requests_per_ip: Allowance::UNBOUNDED,
        connects_per_ip: Allowance::UNBOUNDED,
        connections_per_ip_max: 1000,
        limit_max: 100_000,
        ..RelayLimits::STANDARD
    };
    RelayConfig {
        limits,
        topicless: Topicless::Reject,
        urls: vec![url(address)],
        trusted_proxies: Vec::new(),
        auth,
        about: About::default(),
    }
}

pub fn url(address: SocketAddr) -> String {
    format!("ws://{address}/")
}

/// Comes back soon, and has patience.
pub fn client_config() -> ClientConfig {
    ClientConfig {
        backoff: Backoff { first: Duration::from_millis(1), max: Duration::from_millis(20) },
        publish_wait_max: WAIT_MAX,
        ..ClientConfig::STANDARD
    }
}

pub fn topic() -> TopicId {
    TopicId::parse(&format!("kukuri:{}", "01".repeat(32))).unwrap()
}

/// Everything of the one topic.
pub fn all() -> Vec<Filter> {
    vec![Filter::parse(&format!(r##"{{"#t":["{}"]}}"##, topic())).unwrap()]
}

/// A note of the one topic.
pub fn note(content: &str) -> Event {
    let draft = Draft::new(1, World::NOW).tag("t", topic()).content(content);
    signed(&draft)
}

pub fn signed(draft: &Draft) -> Event {
    Event::parse(&Author::numbered(1).sign(draft)).unwrap()
}

pub async fn next(subscription: &mut Subscription) -> Item {
    let item = timeout(WAIT_MAX, subscription.next()).await.expect("an item in time");
    item.expect("the subscription goes on")
}

/// Nothing more comes, ever.
pub async fn ends(mut subscription: Subscription) {
    let item = timeout(WAIT_MAX, subscription.next()).await.expect("an end in time");
    assert_eq!(item, None);
}

pub fn live(event: &Event) -> Item {
    Item::Live(Box::new(event.clone()))
}

pub fn stored(event: &Event) -> Item {
    Item::Stored(Box::new(event.clone()))
}
