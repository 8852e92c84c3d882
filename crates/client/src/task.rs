//! The task behind a client: it owns the socket and does what the state says.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, pending};
use futures_util::stream::FuturesUnordered;
use kukuri_event::{EventId, Filter, UnixSeconds};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::backoff::Dice;
use crate::socket::{Connection, Frame, Socket, dial};
use crate::state::{
    ITEMS_RESERVED, Input, Moment, Output, Publication, Settings, Signs, State, SubKey,
    Surroundings, Ticket,
};
use crate::{Challenge, ClientConfig, ConnectError, Item, PublishError, Published};

/// What handles ask of the task.
pub(crate) enum Command {
    Publish {
        id: EventId,
        json: String,
        begun: Instant,
        answer: oneshot::Sender<Result<Published, PublishError>>,
        permit: OwnedSemaphorePermit,
    },
    Subscribe {
        filters: Vec<Filter>,
        sender: mpsc::Sender<Item>,
        permit: OwnedSemaphorePermit,
    },
    Close {
        done: oneshot::Sender<()>,
    },
}

/// The connection, or how far it is.
enum Wire {
    Down,
    Dialing(BoxFuture<'static, Result<Socket, ConnectError>>),
    Open(Connection),
}

/// What the wire has to say.
enum Word {
    Dialed(Result<Box<Socket>, ConnectError>),
    Text(Utf8Bytes),
    Heard,
    Ended,
}

/// What queues of subscriptions have to say.
enum Signal {
    Room(SubKey),
    /// Nobody reads the subscription any more.
    Unread(SubKey),
}

/// A caller of `publish`. The permit counts it for as long as it waits.
struct Waiter {
    answer: oneshot::Sender<Result<Published, PublishError>>,
    _permit: OwnedSemaphorePermit,
}

struct Reader {
    sender: mpsc::Sender<Item>,
    _permit: OwnedSemaphorePermit,
}

pub(crate) struct Task {
    url: String,
    config: ClientConfig,
    began: Instant,
    state: State,
    commands: mpsc::Receiver<Command>,
    wire: Wire,
    signals: FuturesUnordered<BoxFuture<'static, Signal>>,
    waiters: HashMap<Ticket, Waiter>,
    readers: HashMap<SubKey, Reader>,
    next: u64,
}

impl Task {
    pub fn new(url: String, config: ClientConfig, commands: mpsc::Receiver<Command>) -> Self {
        let settings = Settings {
            backoff: config.backoff,
            ping_interval: config.ping_interval,
            check: config.check,
            signs: if config.signer.is_some() { Signs::Yes } else { Signs::No },
        };
        Self {
            url,
            config,
            began: Instant::now(),
            state: State::new(settings),
            commands,
            wire: Wire::Down,
            signals: FuturesUnordered::new(),
            waiters: HashMap::new(),
            readers: HashMap::new(),
            next: 0,
        }
    }

    /// Runs until the client is closed or dropped.
    pub async fn run(mut self, first: Socket) {
        self.word(Word::Dialed(Ok(Box::new(first))));
        loop {
            let wake = self.state.wake().map(|Moment(wake)| self.began + wake);
            tokio::select! {
                command = self.commands.recv() => match command {
                    None => return,
                    Some(Command::Close { done }) => return self.close(done).await,
                    Some(command) => self.command(command),
                },
                word = self.wire.next() => self.word(word),
                Some(signal) = self.signals.next(), if !self.signals.is_empty() => {
                    self.handle(match signal {
                        Signal::Room(key) => Input::Room(key),
                        Signal::Unread(key) => Input::Unsubscribe(key),
                    });
                }
                () = sleep_until(wake.unwrap_or(self.began)), if wake.is_some() => {
                    self.handle(Input::Tick);
                }
            }
        }
    }

    async fn close(mut self, done: oneshot::Sender<()>) {
        let wire = std::mem::replace(&mut self.wire, Wire::Down);
        // Callers and readers need not wait for the farewell.
        drop(self);
        if let Wire::Open(connection) = wire {
            connection.close().await;
        }
        let _ = done.send(());
    }

    fn command(&mut self, command: Command) {
        self.next += 1;
        match command {
            Command::Publish { id, json, begun, answer, permit } => {
                let ticket = Ticket(self.next);
                self.waiters.insert(ticket, Waiter { answer, _permit: permit });
                let begun = Moment(begun.saturating_duration_since(self.began));
                let wait_max = self.config.publish_wait_max;
                self.handle(Input::Publish(ticket, Publication { id, json, begun, wait_max }));
            }
            Command::Subscribe { filters, sender, permit } => {
                let key = SubKey(self.next);
                let closed = sender.clone();
                self.signals.push(Box::pin(async move {
                    closed.closed().await;
                    Signal::Unread(key)
                }));
                self.readers.insert(key, Reader { sender, _permit: permit });
                self.handle(Input::Subscribe(key, filters));
            }
            Command::Close { .. } => {}
        }
    }

    fn word(&mut self, word: Word) {
        match word {
            Word::Dialed(Ok(socket)) => {
                self.wire = Wire::Open(Connection::new(*socket));
                self.handle(Input::Opened);
            }
            Word::Dialed(Err(error)) => {
                tracing::debug!(url = self.url, %error, "the relay cannot be reached");
                self.wire = Wire::Down;
                self.handle(Input::Lost);
            }
            Word::Text(text) => self.handle(Input::Text(&text)),
            Word::Heard => self.handle(Input::Heard),
            Word::Ended => {
                tracing::debug!(url = self.url, "the connection ended");
                self.wire = Wire::Down;
                self.handle(Input::Lost);
            }
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        let readers = &self.readers;
        let around = Surroundings {
            now: Moment(self.began.elapsed()),
            clock: clock(),
            dice: Dice(rand::random()),
            room: &|key| readers.get(&key).map_or(0, |reader| reader.sender.capacity()),
        };
        let outputs = self.state.handle(input, &around);
        let mut stalled = false;
        for output in outputs {
            stalled |= !self.carry_out(output);
        }
        if stalled {
            self.word(Word::Ended);
        }
    }

    /// False if the relay does not read what it is sent.
    #[must_use]
    fn carry_out(&mut self, output: Output) -> bool {
        match output {
            Output::Connect => {
                let dialing = dial(self.url.clone(), self.config.connect_wait_max);
                self.wire = Wire::Dialing(Box::pin(dialing));
            }
            Output::Disconnect => self.wire = Wire::Down,
            Output::Send(text) => return self.wire.send(Message::text(text)),
            Output::Ping => return self.wire.send(Message::Ping(Vec::new().into())),
            Output::Sign(challenge) => {
                let challenge = Challenge { text: &challenge, url: &self.url };
                let proof = self.config.signer.as_ref().and_then(|signer| signer(challenge));
                self.handle(Input::Signed(proof));
            }
            Output::Answer(ticket, answer) => {
                if let Some(waiter) = self.waiters.remove(&ticket) {
                    // Whoever asked may have gone.
                    let _ = waiter.answer.send(answer);
                }
            }
            Output::Show(key, item) => {
                if let Some(reader) = self.readers.get(&key) {
                    // There was room when the state was asked; a reader who has gone is a signal.
                    let _ = reader.sender.try_send(item);
                }
            }
            Output::AwaitRoom(key) => self.await_room(key),
            Output::Forget(key) => drop(self.readers.remove(&key)),
            Output::Note(note) => tracing::warn!(url = self.url, note, "about the relay"),
        }
        true
    }

    fn await_room(&mut self, key: SubKey) {
        let Some(reader) = self.readers.get(&key) else { return };
        let sender = reader.sender.clone();
        let half = ITEMS_RESERVED + (self.config.items_max / 2).max(1);
        self.signals.push(Box::pin(async move {
            match sender.reserve_many(half).await {
                Ok(_) => Signal::Room(key),
                Err(_) => Signal::Unread(key),
            }
        }));
    }
}

impl Wire {
    /// Cancelling it loses nothing.
    async fn next(&mut self) -> Word {
        match self {
            Self::Down => pending().await,
            Self::Dialing(dialing) => Word::Dialed(dialing.await.map(Box::new)),
            Self::Open(connection) => match connection.next().await {
                Frame::Text(text) => Word::Text(text),
                Frame::Other => Word::Heard,
                Frame::End => Word::Ended,
            },
        }
    }

    fn send(&self, message: Message) -> bool {
        match self {
            Self::Open(connection) => connection.send(message).is_ok(),
            // What cannot be said is said anew on the next connection.
            Self::Down | Self::Dialing(_) => true,
        }
    }
}

fn clock() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    UnixSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
