//! One WebSocket: a task that reads and does what the session says, and a task that writes.

mod neg;
mod news;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use kukuri_core::{Act, Admitted};
use kukuri_event::{EventId, Pubkey};
use kukuri_fanout::{Detached, SubKey, Subscription};
use kukuri_lane::Answer;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::address::Sender;
use crate::census::Presence;
use crate::ear::{self, Ear};
use crate::outbox::Outbox;
use crate::relay::{Relay, add_one};
use crate::reply;
use crate::request::{Ended, Request, query, refusal};
use crate::session::{Ask, Output, Session};
use crate::upgrade::Opened;
use neg::{Compared, NegKey, RunningNeg};
use news::{Listener, News};

/// How long answers to events in flight are waited for when a connection is to end.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a client is heard, and not listened to, after the farewell: closing a socket with unread
/// data would take back what was sent.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(1);
/// Verifying takes its time: others get their turn after so many messages.
const MESSAGES_PER_TURN: usize = 8;
/// Pings without a sign of life before a connection counts as dead.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// A clock that stands still must not keep a connection busy.
const WAKE_WAIT_MIN: Duration = Duration::from_millis(100);
/// Clocks are set forward: no time is missed by more than this, or by more than the second one if it
/// was more than an hour away.
const WAKE_WAIT_MAX: Duration = Duration::from_secs(1);
const WAKE_WAIT_FAR_MAX: Duration = Duration::from_secs(60);
const FAR: Duration = Duration::from_secs(3600);
/// How many queries of one connection run at once.
const READS_MAX: usize = 4;

pub(crate) async fn run(opened: Opened, relay: Arc<Relay>, presence: Presence, challenge: String) {
    let limits = &relay.config.limits;
    let (socket, sink) = opened.stream.into_split();
    let outbox = Outbox::new(sink, limits.outbound_bytes_max);
    let mut stream = ear::listen(socket, opened.first, &outbox, limits.message_bytes_max).await;
    let (writing, stall_wait_max) = (Arc::clone(&outbox), limits.stall_wait_max);
    let mut writer = relay.tasks.spawn(async move { writing.drain(stall_wait_max).await });
    let mut connection = Connection {
        session: Session::new(challenge, relay.now()),
        sender: presence.sender,
        outbox: Arc::clone(&outbox),
        subs: HashMap::new(),
        negs: HashMap::new(),
        negs_begun: 0,
        answers: FuturesUnordered::new(),
        work: FuturesUnordered::new(),
        done: Vec::new(),
        submitted: false,
        reads: Arc::new(Semaphore::new(READS_MAX)),
        relay: Arc::clone(&relay),
    };
    if let End::Told = connection.read(&mut stream).await {
        let _ = timeout(ANSWERS_WAIT_MAX, connection.answer_all()).await;
    }
    connection.settle();
    drop(connection);
    let hear_out = timeout(FAREWELL_WAIT_MAX, stream.get_mut().hear_out());
    let farewell = async { tokio::join!(&mut writer, hear_out) };
    if timeout(stall_wait_max, farewell).await.is_err() {
        writer.abort();
    }
    let bytes_peak = u64::try_from(outbox.bytes_peak()).unwrap_or(u64::MAX);
    relay.counters.outbound_bytes_peak.fetch_max(bytes_peak, Ordering::Relaxed);
    // Until here the socket was open, and counted.
    drop(presence);
}

/// How the reading side ends.
enum End {
    /// The client is gone.
    Gone,
    /// The client was told, and may have answers to come.
    Told,
}

/// Dropping it ends its subscriptions, and the writer once everything is sent.
struct Connection {
    relay: Arc<Relay>,
    sender: Sender,
    session: Session,
    outbox: Arc<Outbox>,
    /// By their names. They are few enough to look through for a key.
    subs: HashMap<Box<str>, Running>,
    /// Reconciliations, by their names.
    negs: HashMap<Box<str>, RunningNeg>,
    negs_begun: u64,
    answers: FuturesUnordered<InFlight>,
    /// Part of this task, since waking another one would cost as much as most questions do.
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What was done while an event waited for the lane.
    done: Vec<Done>,
    /// Whether the lane was given something since it was last let run.
    submitted: bool,
    reads: Arc<Semaphore>,
}

struct Running {
    subscription: Subscription,
    task: AbortHandle,
}

/// An event that waits for its answer.
type InFlight = BoxFuture<'static, (EventId, Pubkey, Answer)>;

/// What a piece of work came to.
enum Done {
    Subscription(SubKey, Result<(), Ended>),
    Reconciled(Box<str>, NegKey, Compared),
    /// Nothing is left to do about it.
    Settled,
}

impl Connection {
    async fn read(&mut self, stream: &mut Ear) -> End {
        let (relay, outbox) = (Arc::clone(&self.relay), Arc::clone(&self.outbox));
        let limits = &relay.config.limits;
        let (events_max, mut unheard, mut turn) = (limits.in_flight_events_max, 0, 0);
        let mut awake = false;
        // Polled only when there is some.
        let mut news = FuturesUnordered::new();
        news.push(Listener::new(&relay, &outbox).next());
        loop {
            while let Some(done) = self.done.pop() {
                match done {
                    Done::Subscription(key, Err(why)) => {
                        if let Some(end) = self.ended(key, why) {
                            return end;
                        }
                    }
                    Done::Reconciled(name, key, answer) => self.reconciled(&name, key, answer),
                    Done::Subscription(_, Ok(())) | Done::Settled => {}
                }
            }
            // The lane that was just woken may have to wait for this thread: it goes before what is
            // read here, however long that takes.
            if std::mem::take(&mut self.submitted) && !self.work.is_empty() {
                tokio::task::yield_now().await;
            }
            // Proofs may be due now, or at some time from now on.
            if !std::mem::replace(&mut awake, true) {
                let outputs = relay.around(self.sender, |around| self.session.wake(around));
                if let Some(end) = self.carry_out(outputs).await {
                    return end;
                }
            }
            let wake_in = relay.around(self.sender, |around| {
                let at = self.session.wake_at(around)?;
                let left = around.now.until(at);
                let max = if left > FAR { WAKE_WAIT_FAR_MAX } else { WAKE_WAIT_MAX };
                Some(left.clamp(WAKE_WAIT_MIN, max))
            });
            let in_flight = self.answers.len();
            let ready = in_flight < events_max && outbox.has_room();
            tokio::select! {
                message = stream.next(), if ready => {
                    unheard = 0;
                    turn += 1;
                    if turn % MESSAGES_PER_TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                    if let Some(end) = self.message(message).await {
                        return end;
                    }
                }
                () = outbox.room(), if !ready && in_flight < events_max => {}
                Some(answer) = self.answers.next(), if in_flight > 0 => self.answered(answer),
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done.push(done),
                () = sleep(wake_in.unwrap_or_default()), if wake_in.is_some() => awake = false,
                Some((heard, listener)) = news.next() => {
                    news.push(listener.next());
                    match heard {
                        News::Proofs => awake = false,
                        News::Behind(key, why) => self.behind(key, why),
                        News::Ping => {
                            // Who is not listened to cannot be heard; that the socket takes nothing any
                            // more is for the writer to notice.
                            unheard += u32::from(ready);
                            outbox.ping();
                            if unheard > PINGS_UNANSWERED_MAX {
                                return End::Gone;
                            }
                        }
                        News::Topics(Ok(())) => {
                            let outputs = relay.around(self.sender, |a| self.session.topics_changed(a));
                            if let Some(end) = self.carry_out(outputs).await {
                                return end;
                            }
                        }
                        News::Topics(Err(_)) => return End::Told,
                        News::Ended => return End::Gone,
                        News::Closing => {
                            outbox.reply(reply::notice("error: shutting down"));
                            return End::Told;
                        }
                    }
                }
            }
        }
    }

    async fn message(&mut self, message: Option<tungstenite::Result<Message>>) -> Option<End> {
        let text = match message {
            None => return Some(End::Gone),
            Some(Ok(Message::Close(farewell))) => {
                self.outbox.end(farewell.map(|farewell| farewell.code.into()));
                return Some(End::Gone);
            }
            Some(Err(_)) => {
                // Too large, or no WebSocket frame; if the socket broke, nobody will hear it.
                self.outbox.reply(reply::notice("invalid: a message that cannot be received"));
                return Some(End::Told);
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return None,
            Some(Ok(Message::Binary(_))) => {
                let relay = Arc::clone(&self.relay);
                let outputs = relay.around(self.sender, |a| self.session.binary(a));
                return self.carry_out(outputs).await;
            }
            Some(Ok(Message::Text(text))) => text,
        };
        add_one(&self.relay.counters.messages);
        let relay = Arc::clone(&self.relay);
        let outputs = relay.around(self.sender, |a| self.session.handle(text.as_str(), a));
        self.carry_out(outputs).await
    }

    async fn carry_out(&mut self, outputs: Vec<Output>) -> Option<End> {
        for output in outputs {
            match output {
                Output::Send(text) => self.outbox.reply(text),
                Output::Publish(admitted) => self.publish(admitted).await,
                Output::Ask(ask) => self.ask(ask),
                Output::Count(ask) => self.count(ask),
                Output::Reconcile(work) => self.reconcile(work),
                Output::Forget(name) => self.forget(&name),
                Output::Close(name, why) => {
                    if let Some(running) = self.subs.get(name.as_str()) {
                        self.outbox.close_with(running.subscription.key, &why);
                    }
                    self.forget(&name);
                }
                Output::End => return Some(End::Told),
            }
        }
        None
    }

    /// Waits for room in the lane; nothing is read meanwhile, but questions go on, since one that holds
    /// a part of the store must not wait for those who write, and so do answers.
    async fn publish(&mut self, admitted: Admitted) {
        let (id, author) = (admitted.event().id(), admitted.event().pubkey());
        add_one(&self.relay.counters.events_submitted);
        self.relay.fanout.remember(admitted.body());
        let submit = self.relay.lane.submit(Act::Publish(admitted));
        tokio::pin!(submit);
        let submitted = loop {
            tokio::select! {
                biased;
                submitted = &mut submit => break submitted,
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => {
                    self.answered(answer);
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done.push(done),
            }
        };
        self.submitted = true;
        match submitted {
            Ok(ticket) => self.answers.push(async move { (id, author, ticket.await) }.boxed()),
            Err(error) => self.answered((id, author, Err(error))),
        }
    }

    fn answered(&self, (id, author, answer): (EventId, Pubkey, Answer)) {
        self.relay.settle(&author, &answer);
        self.outbox.reply(Session::answered(id, &answer));
    }

    /// Leaves nobody charged for what was not taken because its sender left before the answer: anyone
    /// could use up the rate of someone else's key.
    fn settle(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        if !answers.is_empty() {
            let relay = Arc::clone(&self.relay);
            self.relay.tasks.spawn(async move {
                while let Some((_, author, answer)) = answers.next().await {
                    relay.settle(&author, &answer);
                }
            });
        }
    }

    async fn answer_all(&mut self) {
        while let Some(answer) = self.answers.next().await {
            self.answered(answer);
        }
    }

    fn ask(&mut self, ask: Ask) {
        add_one(&self.relay.counters.requests);
        let key = self.relay.fanout.new_key();
        let resumes = ask.resume.map(|_| self.relay.fanout.epoch());
        self.outbox.open(key, &ask.sub, resumes);
        let subscription = Subscription { key, filters: ask.filters.into() };
        let request = self.request(subscription.clone());
        let (resume, search) = (ask.resume, ask.search);
        let task = self.spawn(key, async move {
            match search {
                Some(text) => request.search(text).await,
                None => request.run(resume).await,
            }
        });
        self.subs.insert(ask.sub.into(), Running { subscription, task });
    }

    fn request(&self, subscription: Subscription) -> Request {
        Request {
            relay: Arc::clone(&self.relay),
            outbox: Arc::clone(&self.outbox),
            reads: Arc::clone(&self.reads),
            subscription,
        }
    }

    /// Works for a subscription. However it ends, the client hears of it.
    fn spawn(
        &mut self,
        key: SubKey,
        work: impl Future<Output = Result<(), Ended>> + Send + 'static,
    ) -> AbortHandle {
        let (work, task) = abortable(AssertUnwindSafe(work).catch_unwind());
        let done = work.map(move |ended| match ended {
            Ok(ended) => Done::Subscription(key, ended.unwrap_or(Err(Ended::Panicked))),
            Err(_aborted) => Done::Settled,
        });
        self.work.push(done.boxed());
        task
    }

    fn count(&mut self, ask: Ask) {
        if self.work.len() >= self.relay.config.limits.subscriptions_max {
            return self.outbox.reply(reply::closed(&ask.sub, "error: too many at once"));
        }
        add_one(&self.relay.counters.requests);
        let (relay, outbox) = (Arc::clone(&self.relay), Arc::clone(&self.outbox));
        let reads = Arc::clone(&self.reads);
        let count = async move {
            let _permit = reads.acquire().await;
            let mut query = query(&relay, ask.filters, 0);
            query.limit_max = query.rows_max;
            let found = AssertUnwindSafe(relay.store.query(query)).catch_unwind().await;
            let found = found.map(|found| found.map_err(|error| refusal(&error)));
            outbox.reply(match found.unwrap_or(Err(Ended::Panicked)) {
                Ok(found) => reply::count(&ask.sub, found.hits.len()),
                Err(why) => reply::closed(&ask.sub, &why.to_string()),
            });
            Done::Settled
        };
        self.work.push(count.boxed());
    }

    /// A subscription cannot go on.
    fn ended(&mut self, key: SubKey, why: Ended) -> Option<End> {
        self.outbox.close_with(key, &why.to_string());
        if let Some(name) = self.running(key).map(|(name, _)| name.to_owned()) {
            self.session.ended(&name);
            self.forget(&name);
        }
        (why == Ended::TooSlow).then_some(End::Told)
    }

    /// A live subscription found no room: it catches up when there is some.
    fn behind(&mut self, key: SubKey, why: Detached) {
        let Some((_, running)) = self.running(key) else { return };
        let subscription = running.subscription.clone();
        let request = self.request(subscription);
        let task = self.spawn(key, async move {
            match why {
                Detached::Behind(cursor) => request.catch_up(cursor).await,
                Detached::Diverged => Err(Ended::Diverged),
            }
        });
        if let Some((_, running)) = self.running(key) {
            running.task = task;
        }
    }

    fn running(&mut self, key: SubKey) -> Option<(&str, &mut Running)> {
        let mut subs = self.subs.iter_mut().map(|(name, running)| (&**name, running));
        subs.find(|(_, running)| running.subscription.key == key)
    }

    fn forget(&mut self, name: &str) {
        if let Some(running) = self.subs.remove(name) {
            let key = running.subscription.key;
            running.task.abort();
            // In this order: a task that is just attaching sees that it is closed, or is detached.
            self.outbox.close(key);
            self.relay.fanout.detach(key);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What is queued is still sent; nothing is attached from here on.
        self.outbox.end(None);
        self.negs.values().for_each(|running| running.task.abort());
        for running in self.subs.values() {
            running.task.abort();
            self.relay.fanout.detach(running.subscription.key);
        }
    }
}
