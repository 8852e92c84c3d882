//! A relay on loopback over a store in memory, and a client that waits for what it expects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use kukuri_core::admission::Topicless;
use kukuri_core::{Act, Outcome, TopicId, UnixMillis};
use kukuri_event::Kind;
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_relay::{
    About, Allowance, AuthPolicy, Gate, OpenGate, Relay, RelayConfig, RelayLimits, serve,
};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
pub use kukuri_testkit::condition::until;
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

pub const URL: &str = "ws://relay.example";
/// The kernel grows what it keeps with the size of a segment, which is large on loopback.
const NARROW_BYTES: u32 = 4 * 1024;
const NARROW_SEGMENT_BYTES: u32 = 536;
const WAIT_MAX: Duration = Duration::from_secs(60);

pub struct Rig {
    pub relay: Arc<Relay>,
    pub lane: Arc<Lane>,
    pub fanout: Arc<Fanout>,
    pub address: SocketAddr,
    _serving: tokio::task::JoinSet<()>,
}

/// Limits that do not get in the way of tests about other things.
pub fn config() -> RelayConfig {
    let limits = RelayLimits {
        events_per_ip: Allowance::UNBOUNDED,
        events_per_pubkey: Allowance::UNBOUNDED,
        requests_per_ip: Allowance::UNBOUNDED,
        connects_per_ip: Allowance::UNBOUNDED,
        connections_per_ip_max: 1000,
        ..RelayLimits::STANDARD
    };
    RelayConfig {
        limits,
        topicless: Topicless::Reject,
        urls: vec![URL.to_owned()],
        trusted_proxies: Vec::new(),
        auth: AuthPolicy::OFF,
        about: About { name: "<b>rig</b>".to_owned(), ..About::default() },
    }
}

/// The same, but for the limits that a test is about.
pub fn limited(limits: impl FnOnce(RelayLimits) -> RelayLimits) -> RelayConfig {
    let config = config();
    RelayConfig { limits: limits(config.limits.clone()), ..config }
}

/// A clock that goes on when it is told to.
#[derive(Clone)]
pub struct Time(Arc<AtomicI64>);

impl Time {
    pub fn stopped() -> Self {
        Self(Arc::new(AtomicI64::new(World::now().0)))
    }

    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub fn clock(&self) -> kukuri_store::Clock {
        let time = Arc::clone(&self.0);
        Arc::new(move || UnixMillis(time.load(Ordering::SeqCst)))
    }
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(config(), OpenGate).await
    }

    /// A relay that takes events without topics, which is how most of Nostr writes them.
    pub async fn general() -> Self {
        let config = RelayConfig { topicless: Topicless::Global, ..config() };
        Self::with(config, OpenGate).await
    }

    pub async fn with(config: RelayConfig, gate: impl Gate) -> Self {
        Self::over(Arc::new(Model::default()), config, gate).await
    }

    pub async fn over(store: Arc<dyn Store>, config: RelayConfig, gate: impl Gate) -> Self {
        Self::at(Arc::new(World::now), store, config, gate).await
    }

    pub async fn at(
        clock: kukuri_store::Clock,
        store: Arc<dyn Store>,
        config: RelayConfig,
        gate: impl Gate,
    ) -> Self {
        let lane = Lane::start(Arc::clone(&store), Arc::clone(&clock), LaneConfig::STANDARD);
        let lane = Arc::new(lane);
        for topic in [TopicId::global(), topic_id(1)] {
            assert_eq!(lane.run(Act::carry(topic, String::new())).await, Ok(Outcome::Done));
        }
        let fanout = Fanout::start(Arc::clone(&store), Arc::clone(&clock), FanoutConfig::STANDARD);
        let fanout = Arc::new(fanout.await.unwrap());
        let relay = Relay::start(
            store,
            Arc::clone(&lane),
            Arc::clone(&fanout),
            Arc::new(gate),
            clock,
            config,
        );
        let relay = relay.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(serve(Arc::clone(&relay), listener));
        Self { relay, lane, fanout, address, _serving: serving }
    }

    pub async fn client(&self) -> Client {
        let (socket, _) = connect_async_with_config(self.url(), None, true).await.unwrap();
        Client { socket }
    }

    /// A client for which the kernel keeps little of what it does not read.
    pub async fn narrow_client(&self) -> Client {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(NARROW_BYTES).unwrap();
        socket2::SockRef::from(&socket).set_tcp_mss(NARROW_SEGMENT_BYTES).unwrap();
        let stream = MaybeTlsStream::Plain(socket.connect(self.address).await.unwrap());
        let (socket, _) = tokio_tungstenite::client_async(self.url(), stream).await.unwrap();
        Client { socket }
    }

    /// A connection from an address of this machine that has not said yet what it wants.
    pub async fn stream_from(&self, from: [u8; 4]) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// A client from such an address that says for whom it speaks, or the status it is refused
    /// with.
    pub async fn client_from(
        &self,
        from: [u8; 4],
        forwarded_for: Option<&str>,
    ) -> Result<Client, u16> {
        let mut request = self.url().into_client_request().unwrap();
        if let Some(addresses) = forwarded_for {
            request.headers_mut().insert("x-forwarded-for", addresses.parse().unwrap());
        }
        let stream = MaybeTlsStream::Plain(self.stream_from(from).await);
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Client { socket }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }
}

/// A topic of the tests; the first is carried.
pub fn topic(number: u8) -> String {
    format!("kukuri:{}", format!("{number:02x}").repeat(32))
}

pub fn topic_id(number: u8) -> TopicId {
    TopicId::parse(&topic(number)).unwrap()
}

/// A note of the first topic.
pub fn note(content: &str) -> Draft {
    draft(1, content, &[&["t", topic(1).as_str()]])
}

pub fn draft(kind: u16, content: &str, tags: &[&[&str]]) -> Draft {
    let tags = tags.iter().map(|tag| tag.iter().map(|&field| field.to_owned()).collect());
    Draft {
        kind: Kind(kind),
        created_at: World::NOW,
        tags: tags.collect(),
        content: content.to_owned(),
    }
}

/// The draft, as if it had been written so many seconds ago.
pub fn ago(seconds: i64, mut draft: Draft) -> Draft {
    draft.created_at.0 -= seconds;
    draft
}

/// A note whose JSON has so many bytes.
pub fn note_of(bytes: usize) -> Draft {
    let empty = author(1).sign(&note("")).len();
    note(&"x".repeat(bytes - empty))
}

pub fn author(number: u32) -> Author {
    Author::numbered(number)
}

/// The event as JSON, signed by the first author.
pub fn signed(draft: &Draft) -> Value {
    signed_by(1, draft)
}

pub fn signed_by(number: u32, draft: &Draft) -> Value {
    serde_json::from_str(&author(number).sign(draft)).unwrap()
}

pub fn id(event: &Value) -> String {
    event["id"].as_str().unwrap().to_owned()
}

pub struct Client {
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub async fn send(&mut self, message: Value) {
        self.send_text(message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next message; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let message = timeout(WAIT_MAX, self.socket.next()).await.expect("an answer in time");
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    pub async fn expect(&mut self) -> Value {
        self.next().await.expect("the connection is open")
    }

    /// Publishes an event; the two halves of the OK.
    pub async fn publish(&mut self, event: &Value) -> (bool, String) {
        self.send(json!(["EVENT", event])).await;
        let answer = self.expect().await;
        assert_eq!((&answer[0], &answer[1]), (&json!("OK"), &event["id"]), "{answer}");
        (answer[2].as_bool().unwrap(), answer[3].as_str().unwrap().to_owned())
    }

    /// Publishes an event that is refused, for this reason.
    pub async fn refused(&mut self, event: &Value, why: &str) {
        assert_eq!(self.publish(event).await, (false, why.to_owned()), "{event}");
    }

    pub async fn publish_ok(&mut self, event: &Value) {
        let answer = self.publish(event).await;
        assert_eq!(answer, (true, String::new()));
    }

    /// Asks, and collects what is stored.
    pub async fn request(&mut self, sub: &str, filter: Value) -> Vec<Value> {
        self.send(json!(["REQ", sub, filter])).await;
        self.until_eose(sub).await
    }

    /// What is stored now, and nothing of what comes.
    pub async fn stored(&mut self, filter: Value) -> Vec<Value> {
        let events = self.request("stored", filter).await;
        self.send(json!(["CLOSE", "stored"])).await;
        events
    }

    /// Asks something that is refused, and hears why.
    pub async fn refused_request(&mut self, sub: &str, filter: Value) -> String {
        self.send(json!(["REQ", sub, filter])).await;
        self.closed(sub).await
    }

    pub async fn until_eose(&mut self, sub: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let message = self.expect().await;
            match message[0].as_str() {
                Some("EVENT") if message[1] == sub => events.push(message[2].clone()),
                Some("EOSE") if message[1] == sub => return events,
                _ => panic!("{message}"),
            }
        }
    }

    /// The reason of the CLOSED that comes next.
    pub async fn closed(&mut self, sub: &str) -> String {
        let message = self.expect().await;
        assert_eq!((&message[0], &message[1]), (&json!("CLOSED"), &json!(sub)), "{message}");
        message[2].as_str().unwrap().to_owned()
    }

    /// Nothing more is said before the answer to this.
    pub async fn nothing_more(&mut self) {
        self.send(json!(["CLOSE"])).await;
        let message = self.expect().await;
        assert_eq!(message, json!(["NOTICE", "invalid: CLOSE has the wrong number of parts"]));
    }
}
