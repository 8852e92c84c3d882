//! One WebSocket: a task that reads and does what the session says, and a task that writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use kukuri_core::Act;
use kukuri_event::EventId;
use kukuri_fanout::{Detached, SubKey, Subscription};
use kukuri_lane::Answer;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::outbox::{Outbox, Outgoing};
use crate::relay::{Presence, Relay, add_one};
use crate::reply;
use crate::request::{Ended, Request, TOO_SLOW, query, refusal};
use crate::session::{Ask, Output, Session};

/// Frames are written together up to about this size.
const WRITE_BYTES: usize = 64 * 1024;
/// A client that does not answer a farewell is left without one.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(1);
/// Verifying takes its time: others get their turn after so many messages.
const MESSAGES_PER_TURN: usize = 8;
/// Pings without a sign of life before a connection counts as dead.
const PINGS_UNANSWERED_MAX: u32 = 2;

pub(crate) async fn run(
    socket: WebSocket,
    relay: Arc<Relay>,
    presence: Presence,
    challenge: String,
) {
    let (sink, stream) = socket.split();
    let outbox = Outbox::new(relay.config.limits.outbound_bytes_max);
    let stall_wait_max = relay.config.limits.stall_wait_max;
    let writer = relay.tasks.spawn(write(sink, Arc::clone(&outbox), stall_wait_max));
    let mut connection = Connection {
        session: Session::new(challenge),
        presence,
        outbox: Arc::clone(&outbox),
        names: HashMap::new(),
        subs: HashMap::new(),
        answers: FuturesUnordered::new(),
        work: JoinSet::new(),
        relay,
    };
    connection.read(stream).await;
    connection.forget_all();
    outbox.end();
    // The writer ends by itself: it sends what is left, or gives up.
    drop(connection);
    let _ = writer.await;
}

/// Why the reading side ends.
enum End {
    Now,
}

struct Connection {
    relay: Arc<Relay>,
    presence: Presence,
    session: Session,
    outbox: Arc<Outbox>,
    names: HashMap<String, SubKey>,
    subs: HashMap<SubKey, Running>,
    answers: FuturesUnordered<InFlight>,
    work: JoinSet<Done>,
}

struct Running {
    name: String,
    subscription: Subscription,
    task: AbortHandle,
}

/// An event that waits for its answer.
type InFlight = BoxFuture<'static, (EventId, Answer)>;

/// What a task of the connection came to.
enum Done {
    Subscription(SubKey, Result<(), Ended>),
    Count,
}

impl Connection {
    async fn read(&mut self, mut stream: SplitStream<WebSocket>) {
        let limits = &self.relay.config.limits;
        let (events_max, mut unheard, mut turn) = (limits.in_flight_events_max, 0, 0);
        let mut pings = interval(limits.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let (relay, outbox) = (Arc::clone(&self.relay), Arc::clone(&self.outbox));
        let mut carried = relay.carried.clone();
        let greeting = relay.around(self.presence.sender, |around| self.session.greet(around));
        self.carry_out(greeting).await;
        loop {
            let in_flight = self.answers.len();
            let ready = in_flight < events_max && outbox.has_room();
            let ended = tokio::select! {
                message = stream.next(), if ready => {
                    unheard = 0;
                    turn += 1;
                    if turn % MESSAGES_PER_TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                    self.message(message).await
                }
                () = outbox.room(), if !ready && in_flight < events_max => None,
                Some((id, answer)) = self.answers.next(), if in_flight > 0 => {
                    outbox.reply(Session::answered(id, &answer));
                    None
                }
                Some(done) = self.work.join_next(), if !self.work.is_empty() => {
                    done.ok().and_then(|done| self.done(done))
                }
                (key, why) = outbox.behind() => {
                    self.behind(key, why);
                    None
                }
                changed = carried.changed() => match changed {
                    Err(_) => Some(End::Now),
                    Ok(()) => {
                        let sender = self.presence.sender;
                        let outputs = relay.around(sender, |a| self.session.topics_changed(a));
                        self.carry_out(outputs).await
                    }
                },
                _ = pings.tick() => {
                    unheard += 1;
                    outbox.ping();
                    (unheard > PINGS_UNANSWERED_MAX).then_some(End::Now)
                }
                () = outbox.ended() => Some(End::Now),
                () = relay.closing.cancelled() => {
                    outbox.reply(reply::notice("error: shutting down"));
                    Some(End::Now)
                }
            };
            if let Some(End::Now) = ended {
                return;
            }
        }
    }

    async fn message(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<End> {
        let Some(Ok(message)) = message else { return Some(End::Now) };
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => {
                self.outbox.reply(reply::notice("invalid: messages are text"));
                return None;
            }
            // Pings are answered by the library.
            Message::Ping(_) | Message::Pong(_) => return None,
            Message::Close(_) => return Some(End::Now),
        };
        add_one(&self.relay.counters.messages);
        let (relay, sender) = (Arc::clone(&self.relay), self.presence.sender);
        let outputs = relay.around(sender, |around| self.session.handle(text.as_str(), around));
        self.carry_out(outputs).await
    }

    async fn carry_out(&mut self, outputs: Vec<Output>) -> Option<End> {
        for output in outputs {
            match output {
                Output::Send(text) => self.outbox.reply(text),
                Output::Publish(admitted) => {
                    let id = admitted.event().id();
                    add_one(&self.relay.counters.events_published);
                    self.relay.fanout.remember(admitted.body());
                    // Waits for room in the lane; nothing is read meanwhile.
                    match self.relay.lane.submit(Act::Publish(admitted)).await {
                        Ok(ticket) => self.answers.push(async move { (id, ticket.await) }.boxed()),
                        Err(error) => self.outbox.reply(Session::answered(id, &Err(error))),
                    }
                }
                Output::Ask(ask) => self.ask(ask),
                Output::Count(ask) => self.count(ask),
                Output::Forget(name) => self.forget(&name),
                Output::Close(name, why) => {
                    if let Some(key) = self.names.get(&name) {
                        self.outbox.close_with(*key, why);
                    }
                    self.forget(&name);
                }
            }
        }
        None
    }

    fn ask(&mut self, ask: Ask) {
        add_one(&self.relay.counters.requests);
        let key = self.relay.fanout.new_key();
        let resumes = ask.resume.map(|_| self.relay.fanout.epoch());
        self.outbox.open(key, &ask.sub, resumes);
        let subscription = Subscription { key, filters: ask.filters.into() };
        let request = self.request(subscription.clone());
        let resume = ask.resume;
        let task =
            self.work.spawn(async move { Done::Subscription(key, request.run(resume).await) });
        self.names.insert(ask.sub.clone(), key);
        self.subs.insert(key, Running { name: ask.sub, subscription, task });
    }

    fn request(&self, subscription: Subscription) -> Request {
        let (relay, outbox) = (Arc::clone(&self.relay), Arc::clone(&self.outbox));
        Request { relay, outbox, subscription }
    }

    fn count(&mut self, ask: Ask) {
        if self.work.len() > 2 * self.relay.config.limits.subscriptions_max {
            return self.outbox.reply(reply::closed(&ask.sub, "error: too many at once"));
        }
        add_one(&self.relay.counters.requests);
        let (relay, outbox) = (Arc::clone(&self.relay), Arc::clone(&self.outbox));
        self.work.spawn(async move {
            let mut query = query(&relay, ask.filters, 0);
            query.limit_max = query.rows_max;
            outbox.reply(match relay.store.query(query).await {
                Ok(found) => reply::count(&ask.sub, found.hits.len()),
                Err(error) => reply::closed(&ask.sub, &refusal(&error)),
            });
            Done::Count
        });
    }

    fn done(&mut self, done: Done) -> Option<End> {
        let Done::Subscription(key, Err(why)) = done else { return None };
        let too_slow = why == TOO_SLOW;
        self.outbox.close_with(key, &why);
        if let Some(name) = self.subs.get(&key).map(|running| running.name.clone()) {
            self.session.ended(&name);
            self.forget(&name);
        }
        too_slow.then_some(End::Now)
    }

    /// A live subscription found no room: it catches up when there is some.
    fn behind(&mut self, key: SubKey, why: Detached) {
        let Some(running) = self.subs.get(&key) else { return };
        let request = self.request(running.subscription.clone());
        let task = self.work.spawn(async move {
            let caught_up = match why {
                Detached::Behind(seq) => request.catch_up(seq).await.map(|_| ()),
                Detached::Diverged => Err("error: cursor diverged".into()),
            };
            Done::Subscription(key, caught_up)
        });
        if let Some(running) = self.subs.get_mut(&key) {
            running.task = task;
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(running) = self.names.remove(name).and_then(|key| self.subs.remove(&key)) else {
            return;
        };
        let key = running.subscription.key;
        running.task.abort();
        self.outbox.close(key);
        self.relay.fanout.detach(key);
    }

    fn forget_all(&mut self) {
        let names: Vec<String> = self.names.keys().cloned().collect();
        for name in names {
            // What is queued may still be sent; nothing new comes.
            if let Some(running) = self.names.remove(&name).and_then(|key| self.subs.remove(&key)) {
                running.task.abort();
                self.relay.fanout.detach(running.subscription.key);
            }
        }
    }
}

/// Sends what is queued, many frames at a time, until that was all or the socket takes nothing more.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    outbox: Arc<Outbox>,
    stall_wait_max: Duration,
) {
    while let Some(outgoing) = outbox.next(WRITE_BYTES).await {
        let sent = timeout(stall_wait_max, send(&mut sink, outgoing)).await;
        if !matches!(sent, Ok(Ok(()))) {
            outbox.abandon();
            return;
        }
    }
    let _ = timeout(FAREWELL_WAIT_MAX, sink.close()).await;
}

async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    outgoing: Vec<Outgoing>,
) -> Result<(), axum::Error> {
    for one in outgoing {
        sink.feed(match one {
            Outgoing::Text(text) => Message::Text(text.into()),
            Outgoing::Ping => Message::Ping(Vec::new().into()),
        })
        .await?;
    }
    sink.flush().await
}
