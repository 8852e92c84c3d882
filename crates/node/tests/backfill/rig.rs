//! A node's store, lane and relay on loopback.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use kukuri_client::sync::{FETCH_IDS_MAX, IDS_MAX, PeerConfig};
use kukuri_core::admission::Topicless;
use kukuri_core::{Act, Admitted, NodeTopic, Outcome, TopicId};
use kukuri_event::EventId;
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_node::backfill::{Allowed, Bounds, Fault, Pulled, Puller, Watch};
use kukuri_relay::{
    About, Allowance, AuthPolicy, OpenGate, Relay, RelayConfig, RelayLimits, serve,
};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Clock, Model, Store};
use kukuri_store_postgres::{Fsync, PostgresStore};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::convergence::view;
use kukuri_testkit::generate::World;
use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::spec::Effective;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub const ANY: Allowed =
    Allowed { window_days: 1000, per_second: 0, events_max: u64::MAX, time_max: Duration::MAX };

pub fn limits() -> RelayLimits {
    RelayLimits {
        events_per_ip: Allowance::UNBOUNDED,
        events_per_pubkey: Allowance::UNBOUNDED,
        requests_per_ip: Allowance::UNBOUNDED,
        connects_per_ip: Allowance::UNBOUNDED,
        connections_per_ip_max: 1000,
        ..RelayLimits::STANDARD
    }
}

pub struct Node {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    _relay: Arc<Relay>,
    pub url: String,
    pub puller: Puller,
    _serving: JoinSet<()>,
}

impl Node {
    /// Over a store in memory, carrying these topics.
    pub async fn start(topics: &[TopicId]) -> Self {
        Self::over(Arc::new(Model::default()), topics, limits()).await
    }

    pub async fn over(store: Arc<dyn Store>, topics: &[TopicId], limits: RelayLimits) -> Self {
        Self::at(Arc::new(World::now), store, topics, limits).await
    }

    pub async fn at(
        clock: Clock,
        store: Arc<dyn Store>,
        topics: &[TopicId],
        limits: RelayLimits,
    ) -> Self {
        let lane = Lane::start(Arc::clone(&store), Arc::clone(&clock), LaneConfig::STANDARD);
        let lane = Arc::new(lane);
        for topic in topics {
            let carried = lane.run(Act::carry(topic.clone(), String::new())).await;
            assert_eq!(carried, Ok(Outcome::Done));
        }
        let fanout = Fanout::start(Arc::clone(&store), Arc::clone(&clock), FanoutConfig::STANDARD);
        let fanout = Arc::new(fanout.await.unwrap());
        let config = RelayConfig {
            limits,
            topicless: Topicless::Reject,
            urls: vec!["ws://relay.example".to_owned()],
            trusted_proxies: Vec::new(),
            auth: AuthPolicy::OFF,
            about: About::default(),
        };
        let puller = Puller {
            store: Arc::clone(&store),
            lane: Arc::clone(&lane),
            clock: Arc::clone(&clock),
            limits: config.limits.events.clone(),
            topicless: config.topicless,
            own: Bounds { rows_max: config.limits.scan_rows_max, ids_max: IDS_MAX },
            chunks_in_lane_max: 2,
            question_ids_max: FETCH_IDS_MAX,
            waits: PeerConfig::STANDARD,
            allowed: ANY,
            memory: Arc::default(),
        };
        let (gate, kept) = (Arc::new(OpenGate), Arc::clone(&store));
        let relay = Relay::start(kept, Arc::clone(&lane), fanout, gate, clock, config);
        let relay = relay.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(serve(Arc::clone(&relay), listener));
        Self { store, lane, _relay: relay, url, puller, _serving: serving }
    }

    pub async fn publish(&self, events: impl IntoIterator<Item = Admitted>) {
        for event in events {
            let _outcome = self.lane.run(Act::Publish(event)).await.unwrap();
        }
    }

    pub async fn topic(&self, topic: &TopicId) -> NodeTopic {
        let topics = self.store.topics().await.unwrap().into_iter().map(|(topic, _)| topic);
        topics.into_iter().find(|found| found.topic_id == *topic).unwrap()
    }

    /// Reconciles one topic with what is at an address.
    pub async fn try_pull(&self, topic: &TopicId, url: &str) -> (Pulled, Result<(), Fault>) {
        let mut pulled = Pulled::default();
        let topic = self.topic(topic).await;
        let done = self.puller.pull(&topic, url, &watch(), &mut pulled).await;
        (pulled, done)
    }

    pub async fn pull(&self, topic: &TopicId, from: &Node) -> Pulled {
        let (pulled, done) = self.try_pull(topic, &from.url).await;
        done.unwrap();
        pulled
    }

    pub async fn view(&self, topics: &[TopicId]) -> Effective {
        view(&*self.store, World::NOW, topics).await
    }
}

pub async fn node(topic: &TopicId) -> Node {
    Node::start(std::slice::from_ref(topic)).await
}

pub fn watch() -> Watch {
    Watch { bar: ProgressBar::hidden(), stop: Default::default() }
}

/// A store of each sort, and what has to live as long as they do.
pub struct Homes {
    directory: TempDir,
    cluster: Cluster,
    made: u32,
}

impl Homes {
    pub fn new() -> Self {
        let cluster = Cluster::start(Durability::Fast).unwrap();
        Self { directory: TempDir::new().unwrap(), cluster, made: 0 }
    }

    pub fn sqlite(&mut self) -> Arc<dyn Store> {
        self.made += 1;
        open_sqlite(&self.directory.path().join(self.made.to_string()))
    }

    pub async fn postgres(&self) -> Arc<dyn Store> {
        open_postgres(&self.cluster.create_database()).await
    }

    /// One store of each sort, opened as two processes would.
    pub async fn shared(&mut self) -> [[Arc<dyn Store>; 2]; 2] {
        let (directory, url) =
            (self.directory.path().join("shared"), self.cluster.create_database());
        let sqlite = [open_sqlite(&directory), open_sqlite(&directory)];
        [sqlite, [open_postgres(&url).await, open_postgres(&url).await]]
    }
}

/// Part of what is in it is in the tables, and part in the tail.
fn open_sqlite(directory: &Path) -> Arc<dyn Store> {
    let options = kukuri_store_sqlite::Options {
        sync: kukuri_store_sqlite::Sync::OffForTests,
        run_events: 50,
        ..kukuri_store_sqlite::Options::standard(1)
    };
    Arc::new(SqliteStore::open(directory, options).unwrap())
}

async fn open_postgres(url: &str) -> Arc<dyn Store> {
    let options = kukuri_store_postgres::Options {
        fsync: Fsync::AnyForTests,
        ..kukuri_store_postgres::Options::STANDARD
    };
    Arc::new(PostgresStore::open(url, options).await.unwrap())
}

pub fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

/// A note of a topic, so many seconds old.
pub fn note(topic: &TopicId, age: i64) -> Admitted {
    note_with(topic, age, &[])
}

pub fn note_with(topic: &TopicId, age: i64, tags: &[(&str, &str)]) -> Admitted {
    let draft = Draft::new(1, World::NOW.saturating_sub(age)).tag("t", topic);
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).admit(&draft.content(age.to_string()), World::NOW)
}

pub fn id(event: &Admitted) -> EventId {
    event.event().id()
}
