//! A running node with one client that publishes and one that listens, both over WebSocket. What was
//! sent, what was answered and what was delivered is known at any moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, Stream, StreamExt};
use kukuri_event::{Class, Event, EventId, UnixSeconds};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::checker::{Answer, History};
use crate::import::SILENCE_MAX;
use crate::load::{Load, NOW};
use crate::rig::{Place, Program};

/// A test sends more than any client would.
const WITHOUT_RATES: [&str; 3] = [
    "KUKURI_LIMITS_EVENTS_PER_IP_PER_MINUTE",
    "KUKURI_LIMITS_EVENTS_PER_PUBKEY_PER_MINUTE",
    "KUKURI_LIMITS_REQUESTS_PER_IP_PER_MINUTE",
];

const START_WAIT_MAX: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub struct Node {
    pub process: Process,
    pub url: String,
}

impl Node {
    pub fn start(place: &Place) -> Node {
        Node::start_at(place, NOW)
    }

    pub fn start_at(place: &Place, now: UnixSeconds) -> Node {
        Node::start_with(place, now, &[])
    }

    /// With these variables set.
    pub fn start_with(place: &Place, now: UnixSeconds, settings: &[(&str, &str)]) -> Node {
        let mut command = place.command_at(Program::Node, now);
        command.envs(settings.iter().copied()).args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ]);
        command.envs(WITHOUT_RATES.map(|name| (name, "0")));
        let mut process = Process::spawn(&mut command).expect("the node can be started");
        let ready = wait_for("the banner", START_WAIT_MAX, || {
            let told = process.stderr();
            let ended = !process.running().unwrap_or(false);
            (told.contains("ready;") || ended).then_some(told)
        });
        let told = ready.expect("the node says that it is ready");
        let url = told.split_whitespace().find(|word| word.starts_with("ws://"));
        let url = url.unwrap_or_else(|| panic!("no address: {told}")).to_owned();
        Node { process, url }
    }

    /// A connection that is there, whatever becomes of the node.
    pub async fn connect(&self) -> Socket {
        connect(&self.url).await
    }

    /// Ends it in good order.
    pub fn end(mut self) {
        self.process.terminate().expect("it runs");
        let ended = self.process.wait(SILENCE_MAX).expect("it ends");
        assert_eq!(ended.code(), Some(0), "{}", self.process.stderr());
    }
}

async fn connect(url: &str) -> Socket {
    connect_async(url).await.expect("the node takes connections").0
}

/// Asks and publishes, one thing after the other.
pub struct Client(Socket);

impl Client {
    pub async fn connect(node: &Node) -> Client {
        Client(node.connect().await)
    }

    /// What is said to an event.
    pub async fn publish(&mut self, text: &str) -> String {
        let answer = self.ask(&format!("[\"EVENT\",{text}]")).await;
        assert_eq!(answer[0], "OK", "{answer}");
        answer[3].as_str().expect("a text").to_owned()
    }

    /// How many events match.
    pub async fn count(&mut self, filter: &Value) -> u64 {
        let answer = self.ask(&json!(["COUNT", "all", filter]).to_string()).await;
        answer[2]["count"].as_u64().unwrap_or_else(|| panic!("no count: {answer}"))
    }

    async fn ask(&mut self, message: &str) -> Value {
        self.0.send(Message::text(message)).await.expect("the node listens");
        next(&mut self.0).await.expect("the node answers")
    }
}

/// Publishes lines of a load, as many at once as the node takes.
pub struct Publisher {
    load: Arc<Load>,
    from: usize,
    /// Lines before this may have reached the node.
    offered: Arc<AtomicUsize>,
    answers: SplitStream<Socket>,
    sending: JoinHandle<()>,
    positions: HashMap<String, usize>,
    taken: Vec<(usize, Answer)>,
}

impl Publisher {
    pub async fn start(node: &Node, load: &Arc<Load>, lines: Vec<usize>) -> Publisher {
        let (sink, answers) = node.connect().await.split();
        let from = lines.first().copied().unwrap_or(0);
        let positions = lines.iter().map(|nth| (load.lines[*nth].id.to_hex(), *nth)).collect();
        let offered = Arc::new(AtomicUsize::new(0));
        let sending = tokio::spawn(send(sink, Arc::clone(load), lines, Arc::clone(&offered)));
        let load = Arc::clone(load);
        Publisher { load, from, offered, answers, sending, positions, taken: Vec::new() }
    }

    pub fn answered(&self) -> usize {
        self.taken.len()
    }

    pub fn is_in_flight(&self) -> bool {
        self.offered.load(Ordering::Acquire) > self.taken.len()
    }

    /// Takes answers until there are so many; `false` when the node is gone before.
    pub async fn wait_for_answers(&mut self, count: usize) -> bool {
        while self.taken.len() < count {
            match next(&mut self.answers).await {
                Some(message) if message[0] == "OK" => self.take(&message),
                Some(other) => panic!("a publisher was told {other}"),
                None => return false,
            }
        }
        true
    }

    fn take(&mut self, message: &Value) {
        let id = message[1].as_str().expect("an id").to_owned();
        let nth = *self.positions.get(&id).expect("an answer to what was sent");
        let (ok, text) = (message[2].as_bool(), message[3].as_str());
        let answer = Answer {
            line: 1,
            id: Some(id),
            ok: ok.expect("true or false"),
            message: text.expect("a text").to_owned(),
        };
        self.taken.push((nth, answer));
    }

    /// After the node has ended or has answered everything: takes what it said before, and tells the
    /// history. Returns the lines that have no answer, or only an error.
    pub async fn end(mut self, history: &mut History<'_>) -> Vec<usize> {
        self.sending.abort();
        while let Some(message) = next(&mut self.answers).await {
            self.take(&message);
        }
        let offered = self.offered.load(Ordering::Acquire);
        history.offer(&self.load.lines[self.from..self.from + offered]);
        self.tell(history)
    }

    fn tell(&self, history: &mut History<'_>) -> Vec<usize> {
        for (nth, answer) in &self.taken {
            history
                .answer(std::slice::from_ref(&self.load.lines[*nth]), std::slice::from_ref(answer));
        }
        let errors = self.taken.iter().filter(|(_, answer)| answer.message.starts_with("error:"));
        errors.map(|(nth, _)| *nth).collect()
    }

    /// As [`Publisher::end`], while the node goes on.
    pub async fn leave(self, history: &mut History<'_>) -> Vec<usize> {
        self.sending.abort();
        let offered: Vec<usize> = self.positions.values().copied().collect();
        offered.iter().for_each(|nth| history.offer(std::slice::from_ref(&self.load.lines[*nth])));
        self.tell(history)
    }
}

async fn send(
    mut sink: SplitSink<Socket, Message>,
    load: Arc<Load>,
    lines: Vec<usize>,
    offered: Arc<AtomicUsize>,
) {
    for nth in lines {
        offered.fetch_add(1, Ordering::AcqRel);
        let message = format!("[\"EVENT\",{}]", load.lines[nth].text);
        if sink.send(Message::text(message)).await.is_err() {
            return;
        }
    }
    // The connection stays open: answers are to come.
    std::future::pending::<()>().await;
}

/// What a listener was given over all its connections, and where it goes on.
#[derive(Default)]
pub struct Heard {
    pub events: Vec<EventId>,
    cursor: String,
}

impl Heard {
    /// Listens until the connection ends, or until everything stored was given if `to_the_end`.
    pub async fn listen(mut self, socket: Socket, load: Arc<Load>, to_the_end: bool) -> Heard {
        let (mut sink, mut stream) = socket.split();
        let topics: Vec<String> = load.topics.iter().map(ToString::to_string).collect();
        let request = json!(["REQ", "all", { "#t": topics, "after": self.cursor }]);
        if sink.send(Message::text(request.to_string())).await.is_err() {
            return self;
        }
        while let Some(message) = next(&mut stream).await {
            let told = match message[0].as_str() {
                Some("EVENT") => {
                    let event = Event::parse(&message[2].to_string()).expect("an event");
                    // Ephemeral ones may be given as often as they are sent.
                    if event.kind().class() != Class::Ephemeral {
                        self.events.push(event.id());
                    }
                    &message[3]
                }
                Some("EOSE") => &message[2],
                // A farewell.
                Some("NOTICE") if message[1] == "error: shutting down" => continue,
                _ => panic!("a listener was told {message}"),
            };
            if let Some(cursor) = told["cursor"].as_str() {
                self.cursor = cursor.to_owned();
            }
            if to_the_end && message[0] == "EOSE" {
                break;
            }
        }
        self
    }
}

/// The next message; `None` when the connection is gone.
async fn next(
    stream: &mut (impl Stream<Item = Result<Message, WsError>> + Unpin),
) -> Option<Value> {
    loop {
        let message = timeout(SILENCE_MAX, stream.next()).await.expect("the node is not silent");
        match message? {
            Ok(Message::Text(text)) => {
                return Some(serde_json::from_str(text.as_str()).expect("messages are JSON"));
            }
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
