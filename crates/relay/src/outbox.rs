//! What waits to be sent on one connection: bounded, in order, and without what belongs to
//! subscriptions that are closed.
//!
//! Whoever queues something also writes it, as long as the socket takes it at once: waking the writer
//! would cost as much as writing. The writer goes on where the socket was full.

mod queue;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kukuri_core::{Cursor, Epoch, Seq};
use kukuri_fanout::{Delivery, Detached, Due, Full, Mailbox, SubKey};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::reply;
use queue::{Batch, Frame, Json, Open, Queue, Turn};

/// Frames are written together up to about this size.
const WRITE_BYTES: usize = 64 * 1024;
/// How many writes are made before the writer has to go on with them: others wait to be served.
const WRITES_AT_ONCE_MAX: usize = 8;

pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    socket: OwnedWriteHalf,
    /// It is the writer's turn, or everything was sent.
    writer: Notify,
    /// There is room again, or nothing matters any more.
    drained: Notify,
    /// A subscription fell behind.
    fell_behind: Notify,
    bytes_max: usize,
}

/// How a write ended.
enum Wrote {
    All,
    /// The socket takes no more now.
    Part,
    Broken,
}

impl Outbox {
    pub fn new(socket: OwnedWriteHalf, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue::default()),
            socket,
            writer: Notify::new(),
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

    /// A frame that the library made.
    pub fn whole(&self, frame: Vec<u8>) {
        self.push(Frame::Whole(frame));
    }

    /// Begins a subscription. One that resumes gets cursors of this life of the feed.
    pub fn open(&self, key: SubKey, sub: &str, resumes: Option<Epoch>) {
        let resumes = resumes.map(|epoch| Cursor { epoch, seq: Seq::ZERO });
        let sub = reply::quoted(sub).into();
        self.lock().open.insert(key, Open { sub, resumes });
    }

    /// Ends a subscription: what still waits for it is not sent.
    pub fn close(&self, key: SubKey) {
        self.lock().open.remove(&key);
    }

    /// Ends a subscription with a word about why, unless it was closed before.
    pub fn close_with(&self, key: SubKey, why: &str) {
        let mut queue = self.lock();
        if let Some(open) = queue.open.remove(&key) {
            queue.push(Frame::Text(reply::closed_of(&open.sub, why)));
            self.write(queue);
        }
    }

    /// Stored events, as many as there is room for, and the end of them at `end` if these are the
    /// last.
    pub fn stored(
        &self,
        key: SubKey,
        events: &mut VecDeque<String>,
        end: Option<Seq>,
    ) -> Result<(), Full> {
        let mut queue = self.lock();
        while (queue.ending || queue.bytes < self.bytes_max)
            && let Some(json) = events.pop_front()
        {
            queue.push(Frame::Event { key, json: Json::Stored(json), cursor: None });
        }
        let all = events.is_empty();
        if let Some(seq) = end.filter(|_| all) {
            queue.push_eose(key, seq);
        }
        self.write(queue);
        if all { Ok(()) } else { Err(Full) }
    }

    /// The end of what a client missed.
    pub fn eose(&self, key: SubKey, seq: Seq) {
        let mut queue = self.lock();
        queue.push_eose(key, seq);
        self.write(queue);
    }

    /// Takes nothing more, and says goodbye once what waits has been sent: with the code that the
    /// client said it with, if it did.
    pub fn end(&self, code: Option<u16>) {
        let mut queue = self.lock();
        queue.push(Frame::Close(code));
        queue.ending = true;
        self.drained.notify_waiters();
        self.write(queue);
    }

    /// Nothing can be sent any more: what waits is thrown away.
    fn abandon(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.clear();
        queue.ending = true;
        queue.turn = Turn::Free;
        drop(queue);
        self.writer.notify_waiters();
        self.drained.notify_waiters();
    }

    /// Waits until nothing more is taken.
    pub async fn ended(&self) {
        self.wait(&self.drained, |queue| queue.ending.then_some(())).await;
    }

    pub fn has_room(&self) -> bool {
        self.lock().bytes < self.bytes_max
    }

    /// Waits until half of the room is free, or nothing matters any more.
    pub async fn room(&self) {
        self.wait(&self.drained, |queue| {
            (queue.ending || queue.bytes <= self.bytes_max / 2).then_some(())
        })
        .await;
    }

    /// The next subscription that fell behind.
    pub async fn behind(&self) -> (SubKey, Detached) {
        self.wait(&self.fell_behind, |queue| queue.behind.pop()).await
    }

    /// Goes on whenever the socket was full, until everything was sent or it takes nothing for so
    /// long.
    pub async fn drain(&self, stall_wait_max: Duration) {
        while let Some(batch) = self.wait(&self.writer, Queue::for_writer).await {
            match timeout(stall_wait_max, self.socket.writable()).await {
                Ok(Ok(())) => self.write_on(batch),
                Ok(Err(_)) | Err(_) => return self.abandon(self.lock()),
            }
        }
    }

    fn push(&self, frame: Frame) {
        let mut queue = self.lock();
        queue.push(frame);
        self.write(queue);
    }

    /// Writes what waits, unless somebody is at it.
    fn write(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.promised = false;
        if matches!(queue.turn, Turn::Free) {
            queue.turn = Turn::Taken;
            drop(queue);
            self.write_on(Batch::default());
        }
    }

    /// Writes as much as the socket takes, and leaves the rest to the writer. The lock is not held
    /// meanwhile.
    fn write_on(&self, mut batch: Batch) {
        for _ in 0..WRITES_AT_ONCE_MAX {
            let wrote = self.try_write(&mut batch);
            let mut queue = self.lock();
            match wrote {
                Wrote::All => batch = self.take(&mut queue),
                Wrote::Part => break,
                Wrote::Broken => return self.abandon(queue),
            }
            if batch.rest().is_empty() {
                queue.turn = Turn::Free;
                if queue.ending {
                    self.writer.notify_waiters();
                }
                return;
            }
        }
        self.lock().turn = Turn::Writer(batch);
        self.writer.notify_waiters();
    }

    fn try_write(&self, batch: &mut Batch) -> Wrote {
        while !batch.rest().is_empty() {
            match self.socket.try_write(batch.rest()) {
                Ok(0) => return Wrote::Broken,
                Ok(bytes) => batch.advance(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Wrote::Part,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Wrote::Broken,
            }
        }
        Wrote::All
    }

    fn take(&self, queue: &mut Queue) -> Batch {
        let (half, before) = (self.bytes_max / 2, queue.bytes);
        let batch = queue.take(WRITE_BYTES);
        // Also when all that was taken belonged to subscriptions that are closed. Nobody waits for
        // room while there is some, and waking them for every frame would cost as much as it.
        if before > half && queue.bytes <= half {
            self.drained.notify_waiters();
        }
        batch
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait<T>(&self, notify: &Notify, mut look: impl FnMut(&mut Queue) -> Option<T>) -> T {
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

impl Mailbox for Outbox {
    fn is_open(&self, sub: SubKey) -> bool {
        let queue = self.lock();
        !queue.ending && queue.open.contains_key(&sub)
    }

    fn deliver(&self, delivery: Delivery) -> Result<Due, Full> {
        let mut queue = self.lock();
        if !queue.ending && queue.bytes >= self.bytes_max {
            return Err(Full);
        }
        let (key, seq) = (delivery.sub, delivery.seq);
        let Some(open) = queue.open.get_mut(&key) else { return Ok(Due::Nothing) };
        if let (Some(last), Some(seq)) = (&mut open.resumes, seq) {
            last.seq = seq;
        }
        let cursor = open.resumes.filter(|_| seq.is_some());
        queue.push(Frame::Event { key, json: Json::Live(delivery.body), cursor });
        match std::mem::replace(&mut queue.promised, true) {
            false => Ok(Due::Send),
            true => Ok(Due::Nothing),
        }
    }

    fn send(&self) {
        self.write(self.lock());
    }

    fn detached(&self, sub: SubKey, why: Detached) {
        self.lock().behind.push((sub, why));
        self.fell_behind.notify_waiters();
    }
}
