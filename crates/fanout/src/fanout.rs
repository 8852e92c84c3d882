use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kukuri_core::{Cursor, CursorError, Epoch, Seq, TopicId};
use kukuri_event::{Body, EventId, UnixSeconds};
use kukuri_feed::{FeedError, POLL_INTERVAL};
use kukuri_store::{Clock, Store, StoreError};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};

use crate::bodies::Bodies;
use crate::index::Index;
use crate::late::{LATE_ROWS_MAX, Late, LateRow};
use crate::offer::{Offered, offer};
use crate::post::Post;
use crate::pump::Pump;
use crate::ring::{Entry, Ring};
use crate::{Delivery, Detached, Full, Mailbox, SubKey, Subscription};

/// After so many rows mailboxes are told to send: few enough that they do not fill up meanwhile.
const ROWS_PER_POST: usize = 64;

/// The sizes and waits of a fan-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutConfig {
    /// How many rows a late subscription can be given without reading the feed.
    pub ring_rows_max: usize,
    pub ring_bytes_max: usize,
    /// How many bytes of bodies are remembered for rows to come.
    pub bodies_bytes_max: usize,
    /// How many rows are read at a time.
    pub page_rows_max: usize,
    pub poll_interval: Duration,
}

impl FanoutConfig {
    pub const STANDARD: Self = Self {
        ring_rows_max: 16_384,
        ring_bytes_max: 16 * 1024 * 1024,
        bodies_bytes_max: 16 * 1024 * 1024,
        page_rows_max: 1024,
        poll_interval: POLL_INTERVAL,
    };
}

/// What a fan-out has done and holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutStats {
    pub position: Seq,
    pub subscriptions: usize,
    pub deliveries: u64,
    /// How often a mailbox was full.
    pub overflows: u64,
}

/// How an attempt to attach ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Attached {
    /// Every row up to this one was delivered; those to come will be.
    Live(Seq),
    /// The subscription was closed meanwhile.
    Closed,
    /// The mailbox was full. Try again after this when there is room.
    Behind(Cursor),
}

/// Gives every change of the feed to the subscriptions it is for. Shared by all doors of a process;
/// one task behind it reads the feed.
pub struct Fanout {
    shared: Arc<Shared>,
    pump: JoinHandle<()>,
    /// Closed when the task has ended, however it did.
    pumping: watch::Receiver<()>,
    keys: AtomicU64,
}

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub config: FanoutConfig,
    pub bodies: Bodies,
    clock: Clock,
    state: Mutex<State>,
    /// Why the feed cannot be read now.
    trouble: watch::Sender<Option<String>>,
    deliveries: AtomicU64,
    overflows: AtomicU64,
}

struct State {
    epoch: Epoch,
    ring: Ring,
    index: Index,
    live: HashMap<SubKey, Live>,
}

struct Live {
    subscription: Subscription,
    mailbox: Arc<dyn Mailbox>,
    /// Where it was attached, which may be ahead of us: rows up to here are none of its business.
    after: Seq,
}

/// How a subscription that has missed rows goes on.
enum Next {
    Rows(Vec<LateRow>),
    /// Rows are missing that only the feed has.
    Feed,
    Live(Seq),
    Closed,
}

impl Fanout {
    /// Starts at the head of the feed, on the current runtime.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        config: FanoutConfig,
    ) -> Result<Self, StoreError> {
        let bounds = store.bounds().await?;
        let shared = Arc::new(Shared {
            bodies: Bodies::new(config.bodies_bytes_max),
            state: Mutex::new(State::new(bounds.epoch, bounds.head, &config)),
            store,
            clock,
            config,
            trouble: watch::Sender::new(None),
            deliveries: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
        });
        let start = Cursor { epoch: bounds.epoch, seq: bounds.head };
        let (alive, pumping) = watch::channel(());
        let pump = Pump::new(Arc::clone(&shared), start);
        let pump = tokio::spawn(async move {
            let _alive = alive;
            pump.run().await;
        });
        Ok(Self { shared, pump, pumping, keys: AtomicU64::new(0) })
    }

    /// Waits until nothing is delivered any more, which is never, unless there is a fault in here.
    pub async fn ended(&self) {
        let mut pumping = self.pumping.clone();
        while pumping.changed().await.is_ok() {}
    }

    /// Why nothing is delivered now, if the feed cannot be read. It is tried again and again.
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.shared.trouble.subscribe()
    }

    /// The life of the feed that is delivered now. Asked for before a query, it is the one that the
    /// query's seq belongs to, or an earlier one, all of whose subscriptions will be detached.
    pub fn epoch(&self) -> Epoch {
        self.shared.lock().epoch
    }

    /// A name for a new subscription.
    pub fn new_key(&self) -> SubKey {
        SubKey(self.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// Delivers the rows after a cursor and then those to come. The rows are taken from the ring if it
    /// has them all, otherwise from the feed, in either case page by page and outside of the lock.
    pub async fn attach(
        &self,
        subscription: &Subscription,
        mailbox: &Arc<dyn Mailbox>,
        after: Cursor,
    ) -> Result<Attached, FeedError> {
        let mut late = Late::new(subscription, mailbox, after, self.shared.now());
        let attached = self.catch_up(&mut late).await;
        self.shared.count(late.taken());
        attached
    }

    async fn catch_up(&self, late: &mut Late<'_>) -> Result<Attached, FeedError> {
        while late.is_open() {
            let next = self.shared.lock().attach(late)?;
            let rows = match next {
                Next::Live(seq) => return Ok(Attached::Live(seq)),
                Next::Closed => break,
                Next::Rows(rows) => rows,
                Next::Feed => late.read(&self.shared).await?,
            };
            if let Err(Full) = late.offer(&rows) {
                return Ok(Attached::Behind(late.cursor()));
            }
            late.send();
            // Others get their turn after a full page. After any other there is no pause: the rows
            // that came meanwhile would make one more page, again and again.
            if rows.len() == LATE_ROWS_MAX {
                yield_now().await;
            }
        }
        Ok(Attached::Closed)
    }

    /// Delivers nothing more to the subscription.
    pub fn detach(&self, key: SubKey) {
        self.shared.lock().remove(key);
    }

    /// Keeps the body of an event that may become a row soon.
    pub fn remember(&self, body: &Arc<Body>) {
        self.shared.bodies.put(body);
    }

    /// A body that was kept, if it still is.
    pub fn recall(&self, id: &EventId) -> Option<Arc<Body>> {
        self.shared.bodies.get(id)
    }

    /// Passes on an event that is not stored. Whoever has no room for it misses it; such events come
    /// with no more promise than that.
    pub async fn pass(&self, body: &Arc<Body>, topics: &[TopicId]) {
        self.shared.pass(body, topics).send().await;
    }

    pub fn stats(&self) -> FanoutStats {
        let state = self.shared.lock();
        FanoutStats {
            position: state.ring.position(),
            subscriptions: state.live.len(),
            deliveries: self.shared.deliveries.load(Ordering::Relaxed),
            overflows: self.shared.overflows.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Fanout {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> UnixSeconds {
        (self.clock)().seconds()
    }

    fn count(&self, deliveries: u64) {
        self.deliveries.fetch_add(deliveries, Ordering::Relaxed);
    }

    pub fn note_trouble(&self, error: Option<&FeedError>) {
        let trouble = error.map(FeedError::to_string);
        self.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }

    fn overflowed(&self) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives rows to whom they are for.
    pub async fn dispatch(&self, entries: Vec<Entry>) {
        let now = self.now();
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let mut post = Post::default();
            for entry in entries.by_ref().take(ROWS_PER_POST) {
                self.deliver(entry, now, &mut post);
            }
            post.send().await;
        }
    }

    /// The lock is taken for each row, so that nobody waits long.
    fn deliver(&self, entry: Entry, now: UnixSeconds, post: &mut Post) {
        let mut state = self.lock();
        let before = Cursor { epoch: state.epoch, seq: state.ring.position() };
        for key in state.candidates(&entry) {
            let Some(live) = state.live.get(&key) else { continue };
            match offer(&live.subscription, &live.mailbox, &entry, now) {
                Ok(Offered::PassedOver) => {}
                Ok(Offered::Taken(due)) => {
                    self.count(1);
                    post.add(due, &live.mailbox);
                }
                Err(Full) => {
                    self.overflowed();
                    let live = state.remove(key).expect("it was live a moment ago");
                    live.mailbox.detached(key, Detached::Behind(before));
                }
            }
        }
        state.ring.push(entry);
    }

    fn pass(&self, body: &Arc<Body>, topics: &[TopicId]) -> Post {
        let (state, mut post) = (self.lock(), Post::default());
        for key in state.index.candidates(body.event(), topics) {
            let Some(live) = state.live.get(&key) else { continue };
            if live.subscription.wants(body.event(), topics) {
                let delivery = Delivery { sub: key, seq: None, body: Arc::clone(body) };
                match live.mailbox.deliver(delivery) {
                    Ok(due) => {
                        self.count(1);
                        post.add(due, &live.mailbox);
                    }
                    Err(Full) => self.overflowed(),
                }
            }
        }
        post
    }

    /// Begins anew with another feed, to which none of the subscriptions belongs.
    pub fn diverge(&self, start: Cursor) {
        let mut state = self.lock();
        let fresh = State::new(start.epoch, start.seq, &self.config);
        let old = std::mem::replace(&mut *state, fresh);
        for (key, live) in old.live {
            live.mailbox.detached(key, Detached::Diverged);
        }
    }
}

impl State {
    fn new(epoch: Epoch, position: Seq, config: &FanoutConfig) -> Self {
        Self {
            epoch,
            ring: Ring::new(position, config.ring_rows_max, config.ring_bytes_max),
            index: Index::default(),
            live: HashMap::new(),
        }
    }

    /// The live subscriptions that a row may be for. A filter stands at its topics only if it has no
    /// better place, and then the row's own topic is the one that can make the event new to it.
    fn candidates(&self, entry: &Entry) -> Vec<SubKey> {
        let Some(body) = &entry.body else { return Vec::new() };
        let mut keys = self.index.candidates(body.event(), [&entry.row.topic_id]);
        keys.retain(|key| self.live.get(key).is_some_and(|live| live.after < entry.row.seq));
        keys
    }

    /// Takes the next rows that a subscription has missed. If there are none, it becomes live before
    /// the lock is released, so that no row comes in between.
    fn attach(&mut self, late: &Late<'_>) -> Result<Next, CursorError> {
        let cursor = late.cursor();
        if cursor.epoch != self.epoch {
            return Err(CursorError::Diverged { head: self.ring.position() });
        }
        match self.ring.after(cursor.seq, LATE_ROWS_MAX) {
            None => return Ok(Next::Feed),
            Some(rows) if !rows.is_empty() => return Ok(Next::Rows(rows)),
            Some(_) => {}
        }
        // Asked with the lock held: whoever closes it from now on finds it here to be detached.
        if !late.is_open() {
            return Ok(Next::Closed);
        }
        let (subscription, mailbox) = late.parties();
        let after = cursor.seq.max(self.ring.position());
        self.index.insert(&subscription);
        self.live.insert(subscription.key, Live { subscription, mailbox, after });
        Ok(Next::Live(after))
    }

    fn remove(&mut self, key: SubKey) -> Option<Live> {
        let live = self.live.remove(&key)?;
        self.index.remove(&live.subscription);
        Some(live)
    }
}
