//! What waits to be sent on one connection: bounded, in order, and without what belongs to
//! subscriptions that are closed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kukuri_core::{Cursor, Epoch, Seq};
use kukuri_event::Body;
use kukuri_fanout::{Delivery, Detached, Full, Mailbox, SubKey};
use tokio::sync::Notify;

use crate::reply;

/// What a frame costs besides its text.
const FRAME_BYTES: usize = 64;

pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Something waits to be sent, or nothing more will.
    filled: Notify,
    /// There is room again.
    drained: Notify,
    /// A subscription fell behind.
    fell_behind: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The most that ever waited.
    bytes_peak: usize,
    open: HashMap<SubKey, Open>,
    behind: Vec<(SubKey, Detached)>,
    ending: bool,
}

struct Open {
    sub: Arc<str>,
    /// What each of its events begins with.
    head: Box<str>,
    /// For a client that resumes: the life of the feed its cursors belong to, and the last one sent.
    resumes: Option<Cursor>,
}

enum Frame {
    Text(String),
    Ping,
    OfSub(SubKey, String),
    Event { key: SubKey, json: Json, cursor: Option<Cursor> },
}

enum Json {
    Stored(String),
    Live(Arc<Body>),
}

impl Json {
    fn as_str(&self) -> &str {
        match self {
            Self::Stored(json) => json,
            Self::Live(body) => body.json(),
        }
    }
}

impl Frame {
    fn bytes(&self) -> usize {
        FRAME_BYTES
            + match self {
                Self::Text(text) | Self::OfSub(_, text) => text.len(),
                Self::Ping => 0,
                Self::Event { json, .. } => json.as_str().len(),
            }
    }
}

/// What goes out on the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Text(String),
    Ping,
}

impl Outbox {
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
            filled: Notify::new(),
            drained: Notify::new(),
            fell_behind: Notify::new(),
            bytes_max,
        })
    }

    pub fn bytes_peak(&self) -> usize {
        self.lock().bytes_peak
    }

    /// Answers a message. Always taken: whoever reads messages waits for room before the next one.
    pub fn reply(&self, text: String) {
        self.push(Frame::Text(text));
    }

    pub fn ping(&self) {
        self.push(Frame::Ping);
    }

    /// Begins a subscription. One that resumes gets cursors of this life of the feed.
    pub fn open(&self, key: SubKey, sub: &str, resumes: Option<Epoch>) {
        let resumes = resumes.map(|epoch| Cursor { epoch, seq: Seq::ZERO });
        let head = reply::event_head(sub).into();
        self.lock().open.insert(key, Open { sub: sub.into(), head, resumes });
    }

    /// Ends a subscription: what still waits for it is not sent.
    pub fn close(&self, key: SubKey) {
        self.lock().open.remove(&key);
    }

    /// Ends a subscription with a word about why, unless it was closed before.
    pub fn close_with(&self, key: SubKey, why: &str) {
        let mut state = self.lock();
        if let Some(open) = state.open.remove(&key) {
            state.push(Frame::Text(reply::closed(&open.sub, why)));
            self.tell_writer(state);
        }
    }

    /// Stored events, as many as there is room for, and the end of them at `end` if these are the
    /// last. The writer finds them all at once.
    pub fn stored(
        &self,
        key: SubKey,
        events: &mut VecDeque<String>,
        end: Option<Seq>,
    ) -> Result<(), Full> {
        let mut state = self.lock();
        while (state.ending || state.bytes < self.bytes_max)
            && let Some(json) = events.pop_front()
        {
            state.push(Frame::Event { key, json: Json::Stored(json), cursor: None });
        }
        let all = events.is_empty();
        if let Some(seq) = end.filter(|_| all) {
            state.push_eose(key, seq);
        }
        self.tell_writer(state);
        if all { Ok(()) } else { Err(Full) }
    }

    /// The end of what a client missed. It can go on from the last event it was sent or from `seq`,
    /// whichever is later.
    pub fn eose(&self, key: SubKey, seq: Seq) {
        let mut state = self.lock();
        state.push_eose(key, seq);
        self.tell_writer(state);
    }

    /// Takes nothing more, and ends once what waits has been sent.
    pub fn end(&self) {
        self.lock().ending = true;
        self.filled.notify_waiters();
        self.drained.notify_waiters();
    }

    /// Nothing can be sent any more: what waits is thrown away.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.frames.clear();
        state.bytes = 0;
        drop(state);
        self.end();
    }

    /// Waits until nothing more is taken.
    pub async fn ended(&self) {
        self.wait(&self.drained, |state| state.ending.then_some(())).await;
    }

    pub fn has_room(&self) -> bool {
        self.lock().bytes < self.bytes_max
    }

    /// Waits until half of the room is free, or nothing matters any more.
    pub async fn room(&self) {
        self.wait(&self.drained, |state| {
            (state.ending || state.bytes <= self.bytes_max / 2).then_some(())
        })
        .await;
    }

    /// The next subscription that fell behind.
    pub async fn behind(&self) -> (SubKey, Detached) {
        self.wait(&self.fell_behind, |state| state.behind.pop()).await
    }

    /// What is to be sent next, about so many bytes of it; `None` when that was all.
    pub async fn next(&self, bytes: usize) -> Option<Vec<Outgoing>> {
        let half = self.bytes_max / 2;
        let next = self.wait(&self.filled, |state| {
            let before = state.bytes;
            let outgoing = state.take(bytes);
            // Also when all that was taken belonged to subscriptions that are closed. Nobody waits for
            // room while there is some, and waking them for every frame would cost as much as it.
            if before > half && state.bytes <= half {
                self.drained.notify_waiters();
            }
            (!outgoing.is_empty()).then_some(Some(outgoing)).or(state.ending.then_some(None))
        });
        next.await
    }

    fn push(&self, frame: Frame) {
        let mut state = self.lock();
        state.push(frame);
        self.tell_writer(state);
    }

    /// After the lock is given back: the writer needs it at once.
    fn tell_writer(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.filled.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait<T>(&self, notify: &Notify, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let notified = notify.notified();
            tokio::pin!(notified);
            // Listening begins before looking: what comes in between is not missed.
            notified.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            notified.await;
        }
    }
}

impl State {
    fn push(&mut self, frame: Frame) {
        if self.ending {
            return;
        }
        self.bytes += frame.bytes();
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.frames.push_back(frame);
    }

    fn push_eose(&mut self, key: SubKey, seq: Seq) {
        let Some(open) = self.open.get(&key) else { return };
        let cursor = open.resumes.map(|last| Cursor { seq: last.seq.max(seq), ..last });
        let text = reply::eose(&open.sub, cursor);
        self.push(Frame::OfSub(key, text));
    }

    /// About so many bytes of what is to be sent; nothing only if nothing is.
    fn take(&mut self, bytes: usize) -> Vec<Outgoing> {
        let (mut outgoing, mut taken) = (Vec::new(), 0);
        while taken < bytes
            && let Some(frame) = self.frames.pop_front()
        {
            let size = frame.bytes();
            self.bytes -= size;
            if let Some(written) = self.write(frame) {
                taken += size;
                outgoing.push(written);
            }
        }
        outgoing
    }

    /// The text of a frame, unless its subscription is closed.
    fn write(&self, frame: Frame) -> Option<Outgoing> {
        Some(match frame {
            Frame::Text(text) => Outgoing::Text(text),
            Frame::Ping => Outgoing::Ping,
            Frame::OfSub(key, text) => {
                self.open.get(&key)?;
                Outgoing::Text(text)
            }
            Frame::Event { key, json, cursor } => {
                let open = self.open.get(&key)?;
                Outgoing::Text(reply::event(&open.head, json.as_str(), cursor))
            }
        })
    }
}

impl Mailbox for Outbox {
    fn is_open(&self, sub: SubKey) -> bool {
        let state = self.lock();
        !state.ending && state.open.contains_key(&sub)
    }

    fn deliver(&self, delivery: Delivery) -> Result<(), Full> {
        let mut state = self.lock();
        if !state.ending && state.bytes >= self.bytes_max {
            return Err(Full);
        }
        let (key, seq) = (delivery.sub, delivery.seq);
        let Some(open) = state.open.get_mut(&key) else { return Ok(()) };
        if let (Some(last), Some(seq)) = (&mut open.resumes, seq) {
            last.seq = seq;
        }
        let cursor = open.resumes.filter(|_| seq.is_some());
        state.push(Frame::Event { key, json: Json::Live(delivery.body), cursor });
        self.tell_writer(state);
        Ok(())
    }

    fn detached(&self, sub: SubKey, why: Detached) {
        self.lock().behind.push((sub, why));
        self.fell_behind.notify_waiters();
    }
}
