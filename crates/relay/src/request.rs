//! One subscription from its question on: what is stored, the end of it, and what comes.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, CursorError, Seq};
use kukuri_event::Filter;
use kukuri_fanout::{Attached, Full, Mailbox, Subscription};
use kukuri_store::{FeedError, Query, QueryError};
use tokio::time::timeout;

use crate::outbox::Outbox;
use crate::relay::{Relay, add_one};
use crate::session::Resume;

/// How many bodies are read at a time: enough to fill a write, few enough to wait for the socket
/// between.
const PAGE_EVENTS: usize = 100;
/// How often it is looked how far a subscription without room is behind.
const LAG_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What a client is told whose subscription is too far behind.
pub(crate) const TOO_SLOW: &str = "error: too slow";

pub(crate) struct Request {
    pub relay: Arc<Relay>,
    pub outbox: Arc<Outbox>,
    pub subscription: Subscription,
}

/// Why a subscription ends by itself; what its client is told.
pub(crate) type Ended = String;

impl Request {
    /// Answers and goes live. Ends when it is live, or cannot go on.
    pub async fn run(self, resume: Option<Resume>) -> Result<(), Ended> {
        match resume {
            None => {
                let after = self.stored().await?;
                self.follow(after).await?;
            }
            Some(resume) => {
                let after = self.start(resume).await?;
                if let Some(live) = self.follow(after).await? {
                    self.outbox.eose(self.subscription.key, live);
                }
            }
        }
        Ok(())
    }

    /// Sends what is stored, and says as of when.
    async fn stored(&self) -> Result<Cursor, Ended> {
        let key = self.subscription.key;
        let epoch = self.relay.fanout.epoch();
        let query = query(&self.relay, self.subscription.filters.to_vec(), PAGE_EVENTS);
        let found = self.relay.store.query(query).await.map_err(|error| refusal(&error))?;
        let rest: Vec<Seq> = found.hits.iter().skip(found.bodies.len()).map(|h| h.event).collect();
        self.send(found.bodies).await;
        for page in rest.chunks(PAGE_EVENTS) {
            let bodies = self.relay.store.bodies(page.to_vec()).await;
            let bodies = bodies.map_err(|error| broken(&error.into()))?;
            // What was deleted meanwhile is not sent.
            self.send(bodies.into_iter().flatten().collect()).await;
        }
        self.outbox.eose(key, found.head);
        Ok(Cursor { epoch, seq: found.head })
    }

    /// Queues events as the socket drains.
    async fn send(&self, bodies: Vec<String>) {
        for mut json in bodies {
            while let Err((Full, back)) = self.outbox.stored(self.subscription.key, json) {
                self.outbox.room().await;
                json = back;
            }
        }
    }

    async fn start(&self, resume: Resume) -> Result<Cursor, Ended> {
        let bounds = self.relay.store.bounds().await.map_err(|error| broken(&error.into()))?;
        match resume {
            Resume::Floor => Ok(bounds.start()),
            // A cursor beyond the head would be taken for one that is ahead of the fan-out.
            Resume::After(cursor) => {
                bounds.check(cursor).map_err(|error| broken(&error.into()))?;
                Ok(cursor)
            }
        }
    }

    /// Gives the subscription all rows after a cursor, as the socket drains, until it is live; says
    /// from where on, or nothing if it was closed.
    pub async fn follow(&self, after: Cursor) -> Result<Option<Seq>, Ended> {
        let mailbox: Arc<dyn Mailbox> = Arc::clone(&self.outbox) as Arc<dyn Mailbox>;
        let mut cursor = after;
        loop {
            let attached = self.relay.fanout.attach(&self.subscription, &mailbox, cursor).await;
            match attached.map_err(|error| broken(&error))? {
                Attached::Live(seq) => return Ok(Some(seq)),
                Attached::Closed => return Ok(None),
                Attached::Behind(seq) => {
                    cursor.seq = seq;
                    self.outbox.room().await;
                }
            }
        }
    }

    /// Goes on once the outbox has room again, unless too much has come meanwhile.
    pub async fn catch_up(&self, after: Seq) -> Result<Option<Seq>, Ended> {
        while timeout(LAG_LOOK_INTERVAL, self.outbox.room()).await.is_err() {
            let lag_rows = self.relay.fanout.stats().position.0 - after.0;
            if lag_rows > self.relay.config.limits.lag_rows_max {
                add_one(&self.relay.counters.subscriptions_too_slow);
                return Err(TOO_SLOW.into());
            }
        }
        self.follow(Cursor { epoch: self.relay.fanout.epoch(), seq: after }).await
    }
}

/// A query within the limits, as of now.
pub(crate) fn query(relay: &Relay, filters: Vec<Filter>, bodies_max: usize) -> Query {
    let limits = &relay.config.limits;
    Query {
        filters,
        now: relay.now().seconds(),
        limit_max: limits.limit_max,
        rows_max: limits.scan_rows_max,
        bodies_max,
    }
}

pub(crate) fn refusal(error: &QueryError) -> Ended {
    match error {
        QueryError::TooBroad { .. } => "error: too broad, narrow the filters".into(),
        QueryError::Store(_) => "error: storage unavailable".into(),
    }
}

fn broken(error: &FeedError) -> Ended {
    match error {
        FeedError::Cursor(CursorError::Diverged { .. }) => "error: cursor diverged",
        FeedError::Cursor(CursorError::Truncated { .. }) => "error: cursor too old",
        FeedError::Hole { .. } | FeedError::Store(_) => "error: storage unavailable",
    }
    .into()
}
