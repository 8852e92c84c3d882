//! One subscription from its question on: what is stored, the end of it, and what comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, CursorError, Seq, TopicId};
use kukuri_event::{Event, EventId, Filter, UnixSeconds, Values};
use kukuri_fanout::{Attached, Full, Mailbox, Subscription};
use kukuri_store::{FeedError, Query, QueryError, among};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::outbox::Outbox;
use crate::relay::{Relay, add_one};
use crate::reply;
use crate::search::{SearchAnswer, SearchQuestion, SearchRefusal};
use crate::session::Resume;

/// How many bodies are read at a time: enough to fill a write, few enough to wait for the socket
/// between.
const PAGE_EVENTS: usize = 100;
/// How often it is looked how far a subscription without room is behind.
const LAG_LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Request {
    pub relay: Arc<Relay>,
    pub outbox: Arc<Outbox>,
    pub subscription: Subscription,
    /// Bounds how much of the store one connection uses at once.
    pub reads: Arc<Semaphore>,
}

/// Whether an event that was found a while ago has not expired since. Few say when they end.
fn lasts(json: &str, now: UnixSeconds) -> bool {
    let ends = || Event::parse(json).ok()?.tags().expiration();
    !json.contains("\"expiration\"") || ends().is_none_or(|end| end > now)
}

/// Why a subscription ends by itself. The text is what its client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ended {
    #[error("invalid: there is no search here")]
    NoSearch,
    #[error(transparent)]
    Search(#[from] SearchRefusal),
    #[error("error: too slow")]
    TooSlow,
    #[error("error: too broad, narrow the filters")]
    TooBroad,
    #[error("error: cursor diverged")]
    Diverged,
    #[error("error: cursor too old")]
    TooOld,
    #[error("error: storage unavailable")]
    Unavailable,
    #[error("error: internal, please report it")]
    Panicked,
}

/// How far a subscription may be behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// As far as it says itself: it resumes.
    Endless,
    /// As far as a live one may fall.
    Lag,
}

impl Request {
    /// Answers and goes live. Ends when it is live, or cannot go on.
    pub async fn run(self, resume: Option<Resume>) -> Result<(), Ended> {
        match resume {
            None => {
                let after = self.stored().await?;
                self.follow(after, Patience::Endless).await?;
            }
            Some(resume) => {
                let after = self.start(resume).await?;
                if let Some(live) = self.follow(after, Patience::Endless).await? {
                    self.outbox.eose(self.subscription.key, live);
                }
            }
        }
        Ok(())
    }

    /// Sends what is stored, and says as of when.
    async fn stored(&self) -> Result<Cursor, Ended> {
        // Held until everything is queued, and nothing is read while there is no room for it: a client
        // that reads nothing makes us keep a few pages at most.
        let _permit = self.reads.acquire().await;
        self.outbox.room().await;
        let epoch = self.relay.fanout.epoch();
        let query = query(&self.relay, self.subscription.filters.to_vec(), PAGE_EVENTS);
        let found = self.relay.store.query(query).await.map_err(|error| refusal(&error))?;
        let rest: Vec<Seq> = found.hits.iter().skip(found.bodies.len()).map(|h| h.event).collect();
        let (mut bodies, mut pages) = (found.bodies, rest.chunks(PAGE_EVENTS));
        loop {
            let page = pages.next();
            self.send(bodies, page.is_none().then_some(found.head)).await;
            let Some(page) = page else { break };
            self.outbox.room().await;
            let read = self.relay.store.bodies(page.to_vec()).await;
            // What was deleted meanwhile is not sent, nor what has expired.
            let (read, now) = (read.map_err(|error| broken(&error.into()))?, self.relay.now());
            let lasting = read.into_iter().flatten().filter(|json| lasts(json, now.seconds()));
            bodies = lasting.collect();
        }
        Ok(Cursor { epoch, seq: found.head })
    }

    /// Sends what is found by words, the best first, and the end of it. Nothing comes live: what is found
    /// is ranked, and what is new has no place yet.
    pub async fn search(self, text: String) -> Result<(), Ended> {
        let search = self.relay.search.get().ok_or(Ended::NoSearch)?;
        let _permit = self.reads.acquire().await;
        self.outbox.room().await;
        let Some(filter) = self.subscription.filters.first() else { return Ok(()) };
        let topics = filter.topics().into_iter().flat_map(Values::iter);
        let question = SearchQuestion {
            text,
            topics: topics.filter_map(|topic| TopicId::parse(topic).ok()).collect(),
            since: filter.since,
            until: filter.until,
            now: self.relay.now().seconds(),
        };
        let SearchAnswer { ids: found, lag } = search.search(question).await?;
        if let Some(lag) = lag {
            self.outbox.reply(reply::notice(&format!(
                "search: index_lag_seconds {}, what is newer may be missing",
                lag.as_secs()
            )));
        }
        let limit_max = self.relay.config.limits.limit_max;
        let mut left = filter.limit.unwrap_or(limit_max).min(limit_max);
        for page in found.chunks(PAGE_EVENTS) {
            if left == 0 {
                break;
            }
            let mut bodies = self.ranked(filter, page).await?;
            bodies.truncate(left);
            left -= bodies.len();
            self.send(bodies, None).await;
            self.outbox.room().await;
        }
        let bounds = self.relay.store.bounds().await.map_err(|error| broken(&error.into()))?;
        self.send(Vec::new(), Some(bounds.head)).await;
        Ok(())
    }

    /// Those of some events that match a filter now, in the order given.
    async fn ranked(&self, filter: &Filter, ids: &[EventId]) -> Result<Vec<String>, Ended> {
        let query = query(&self.relay, vec![filter.clone()], PAGE_EVENTS);
        let found = among(&*self.relay.store, query, ids).await;
        let found = found.map_err(|error| refusal(&error))?;
        Ok(found.into_iter().map(|(_, body)| body).collect())
    }

    /// Queues events as the socket drains, and the end of them if these are the last.
    async fn send(&self, bodies: Vec<String>, end: Option<Seq>) {
        let mut bodies = VecDeque::from(bodies);
        while let Err(Full) = self.outbox.stored(self.subscription.key, &mut bodies, end) {
            self.outbox.room().await;
        }
    }

    async fn start(&self, resume: Resume) -> Result<Cursor, Ended> {
        let bounds = self.relay.store.bounds().await.map_err(|error| broken(&error.into()))?;
        match resume {
            // Who only wants to know where the feed is need not wait until all of it was read.
            Resume::Floor if self.subscription.filters.iter().all(Filter::matches_nothing) => {
                Ok(Cursor { seq: bounds.head, ..bounds.start() })
            }
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
    async fn follow(&self, after: Cursor, patience: Patience) -> Result<Option<Seq>, Ended> {
        let mailbox: Arc<dyn Mailbox> = Arc::clone(&self.outbox) as Arc<dyn Mailbox>;
        let mut cursor = after;
        loop {
            let permit = self.reads.acquire().await;
            let attached = self.relay.fanout.attach(&self.subscription, &mailbox, cursor).await;
            drop(permit);
            match attached.map_err(|error| broken(&error))? {
                Attached::Live(seq) => return Ok(Some(seq)),
                Attached::Closed => return Ok(None),
                Attached::Behind(further) => {
                    cursor = further;
                    self.room(cursor, patience).await?;
                }
            }
        }
    }

    /// Goes on once the outbox has room again, unless too much has come meanwhile.
    pub async fn catch_up(&self, after: Cursor) -> Result<(), Ended> {
        self.room(after, Patience::Lag).await?;
        self.follow(after, Patience::Lag).await.map(|_| ())
    }

    /// Waits for room. A socket that takes nothing for too long is given up, which ends this too.
    async fn room(&self, cursor: Cursor, patience: Patience) -> Result<(), Ended> {
        loop {
            if patience == Patience::Lag {
                self.check_lag(cursor)?;
            }
            if timeout(LAG_LOOK_INTERVAL, self.outbox.room()).await.is_ok() {
                return Ok(());
            }
        }
    }

    fn check_lag(&self, cursor: Cursor) -> Result<(), Ended> {
        let lag_rows = self.relay.fanout.stats().position.0 - cursor.seq.0;
        if lag_rows <= self.relay.config.limits.lag_rows_max {
            return Ok(());
        }
        add_one(&self.relay.counters.subscriptions_too_slow);
        Err(Ended::TooSlow)
    }
}

/// A query within the limits, as of now.
pub(crate) fn query(relay: &Relay, filters: Vec<Filter>, bodies_max: usize) -> Query {
    let limits = &relay.config.limits;
    Query {
        filters,
        after: None,
        now: relay.now().seconds(),
        limit_max: limits.limit_max,
        rows_max: limits.scan_rows_max,
        bodies_max,
    }
}

pub(crate) fn refusal(error: &QueryError) -> Ended {
    match error {
        QueryError::TooBroad { .. } => Ended::TooBroad,
        QueryError::Store(_) => Ended::Unavailable,
    }
}

fn broken(error: &FeedError) -> Ended {
    match error {
        FeedError::Cursor(CursorError::Diverged { .. }) => Ended::Diverged,
        FeedError::Cursor(CursorError::Truncated { .. }) => Ended::TooOld,
        FeedError::Hole { .. } | FeedError::Store(_) => Ended::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use kukuri_store::conformance::signing::{Author, Draft};

    use super::*;

    #[test]
    fn what_expires_while_a_client_pauses_is_not_sent() {
        let now = UnixSeconds(1_700_000_000);
        let note = |end: i64| {
            let draft = Draft::new(1, now).tag("expiration", end.to_string());
            Author::numbered(1).sign(&draft.content("\"expiration\" is a word"))
        };
        assert!(lasts(&note(now.0 + 1), now));
        assert!(!lasts(&note(now.0), now));
        let plain = Author::numbered(1).sign(&Draft::new(1, now).content("\"expiration\""));
        assert!(lasts(&plain, now));
    }
}
