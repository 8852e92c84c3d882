use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Cutoffs, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq,
    TopicId, UnixMillis, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::{
    Dated, Entry, Extent, FeedError, Forgettable, Hits, Place, Query, QueryError, Recent, Scope,
    Space, Store, StoreError, Tidied,
};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::check::check;
use crate::error::Fault;
use crate::facts::Loaded;
use crate::lane::foresight::{EVENTS_MAX, Foresight};
use crate::lane::{APPLY_LIMIT, Session};
use crate::migrate;
use crate::notify::{self, Watched, publish};
use crate::query::{Budget, Moment};
use crate::readers::{Read, Readers};
use crate::session::{Role, Server, within};
use crate::subscriptions::Topics;
use crate::upkeep::Found;
use crate::{Options, Wakeup, bounds, facts, feed, list, page, query, tidy, upkeep};

/// No read lasts longer. The server ends a single statement before that.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(60);

/// Connecting and looking around; changes of the schema have a limit of their own.
const OPEN_LIMIT: Duration = Duration::from_secs(120);

/// The event store of a database. Several processes may have one open on the same database.
pub struct PostgresStore {
    server: Server,
    options: Options,
    warnings: Vec<String>,
    epoch: kukuri_core::Epoch,
    topics: Topics,
    readers: Readers,
    lane: Mutex<Lane>,
    foresight: Arc<Foresight>,
    heads: watch::Sender<Seq>,
    recent: Recent,
    /// This process's own commits, for the notifier.
    commits: watch::Sender<Seq>,
    /// End with the store.
    _tasks: JoinSet<()>,
}

/// The lane's connection between two batches.
enum Lane {
    Open(Box<Session>),
    /// It went with an error; the next batch opens another.
    Lost,
    /// The server's disk failed: nothing is applied before [`Store::reopen`].
    Failed(String),
}

impl PostgresStore {
    /// Connects, checks the server, and brings the schema up to date.
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let server = Server::parse(url)?;
        let (mut connection, warnings) = within(OPEN_LIMIT, "opening", async {
            let mut connection = server.connect(Role::Setup).await?;
            let warnings = check(&mut connection, options.fsync).await?;
            Ok((connection, warnings))
        })
        .await?;
        migrate::migrate(&mut connection).await?;
        let first = within(OPEN_LIMIT, "opening", bounds::first(&mut connection)).await?;
        let bounds = first.feed;

        let heads = watch::Sender::new(bounds.head);
        let commits = watch::Sender::new(bounds.head);
        let watched = Watched {
            server: server.clone(),
            epoch: bounds.epoch,
            heads: heads.clone(),
            poll_interval: options.poll_interval,
        };
        let mut tasks = JoinSet::new();
        match options.wakeup {
            Wakeup::Notify => {
                tasks.spawn(notify::tell(server.clone(), commits.subscribe()));
                tasks.spawn(notify::listen(watched));
            }
            Wakeup::PollOnly => drop(tasks.spawn(notify::poll(watched))),
        }
        let readers = Readers::new(&server, &options, bounds.epoch, heads.subscribe());
        let store = Self {
            readers,
            warnings,
            epoch: bounds.epoch,
            topics: Topics::default(),
            lane: Mutex::new(Lane::Lost),
            foresight: Arc::default(),
            server,
            options,
            heads,
            recent: Recent::new(bounds.epoch),
            commits,
            _tasks: tasks,
        };
        store.reopen().await?;
        Ok(store)
    }

    /// Whether the database holds a store. [`PostgresStore::open`] would make one.
    pub async fn exists(url: &str) -> Result<bool, StoreError> {
        let server = Server::parse(url)?;
        let made = within(OPEN_LIMIT, "opening", async {
            let mut connection = server.connect(Role::Setup).await?;
            migrate::is_made(&mut connection).await
        });
        Ok(made.await?)
    }

    /// What is wrong with the server and not wrong enough to refuse it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Ends all work and closes all connections.
    pub async fn close(mut self) {
        self._tasks.shutdown().await;
        self.readers.close().await;
        *self.lane.lock().await = Lane::Lost;
    }

    async fn open_lane(&self) -> Result<Box<Session>, Fault> {
        let Options { fsync, partition_rows_min, .. } = self.options;
        let foresight = Arc::clone(&self.foresight);
        foresight.clear();
        let session = Session::open(&self.server, fsync, self.epoch, partition_rows_min, foresight);
        session.await.map(Box::new)
    }

    /// What there is of some keys, and at which revision.
    async fn load(&self, read: Read, needs: ReadSet) -> Result<Loaded, StoreError> {
        limited(async {
            let (topics, expected) = (&self.topics, self.readers.expected());
            let mut at = self.readers.snapshot(read).await?;
            let loaded = facts::load(at.connection(), topics, expected, &needs).await?;
            at.end(loaded).await
        })
        .await
    }

    /// Events that were found because they are to leave. Where they lie is remembered for when they do.
    fn noted(&self, found: Vec<Found>) -> Vec<Dated> {
        let numbers = found.iter().filter_map(|found| Some((found.event.1, found.seq?)));
        self.foresight.note_numbers(numbers);
        found.into_iter().map(|found| found.event).collect()
    }

    /// Runs a batch on the lane's connection, which survives only success.
    async fn run(&self, batch: &Arc<[Command]>) -> Result<Decision, Fault> {
        let mut lane = self.lane.lock().await;
        let mut session = match std::mem::replace(&mut *lane, Lane::Lost) {
            Lane::Open(session) => session,
            Lane::Lost => self.open_lane().await?,
            Lane::Failed(why) => {
                *lane = Lane::Failed(why.clone());
                return Err(StoreError::Io(why).into());
            }
        };
        match session.run(batch, &self.topics).await {
            Ok(decision) => {
                self.recent.add(&decision);
                publish(&self.heads, decision.head());
                publish(&self.commits, decision.head());
                *lane = Lane::Open(session);
                Ok(decision)
            }
            Err(fault) => {
                if let Fault::Store(StoreError::Io(why)) = &fault {
                    *lane = Lane::Failed(why.clone());
                }
                Err(fault)
            }
        }
    }
}

/// No read is without an end.
async fn limited<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, StoreError> {
    Ok(within(READ_LIMIT, "a read", work).await?)
}

#[async_trait]
impl Store for PostgresStore {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let decision = within(APPLY_LIMIT, "a batch", async {
            let outcome = match self.run(&batch).await {
                // A new session counts the partitions again.
                Err(Fault::NoPartition) => self.run(&batch).await,
                outcome => outcome,
            };
            match outcome {
                Err(Fault::Fenced) => {
                    Err(StoreError::Conflict { head: self.bounds().await?.head }.into())
                }
                outcome => outcome,
            }
        });
        Ok(decision.await?)
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        Ok(self.load(Read::Glance, needs).await?.facts)
    }

    async fn foresee(&self, events: BTreeSet<EventId>) {
        if events.is_empty() || events.len() > EVENTS_MAX {
            return;
        }
        let places = self.foresight.places(&events);
        let foreseen = limited(async {
            // Live delivery waits for no purge.
            let mut reader = self.readers.reader(Read::Question).await?;
            let (connection, numbers) = (reader.connection(), &self.topics.numbers);
            let foreseen = facts::foresee(connection, numbers, &events, places).await?;
            Ok(reader.end(foreseen))
        });
        match foreseen.await {
            Ok(foreseen) => self.foresight.keep(foreseen),
            Err(error) => tracing::debug!(%error, "events are looked up in their turn"),
        }
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        let numbers = &self.topics.numbers;
        let known = Moment { epoch: self.epoch, head: *self.heads.borrow() };
        let mut budget = Budget::of(&query);
        let answer = limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let connection = reader.connection();
            let answer =
                query::answer_at_once(connection, numbers, &query, known, &mut budget).await?;
            if let Some(hits) = reader.end(answer) {
                return Ok(Ok(hits));
            }
            let mut at = self.readers.snapshot(Read::Question).await?;
            let answer = query::answer(&mut at, numbers, &query, budget).await?;
            at.end(answer).await
        });
        let rows_max = query.rows_max;
        answer.await?.map_err(|query::TooBroad| QueryError::TooBroad { rows_max })
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let bodies = list::bodies(reader.connection(), &events).await?;
            Ok(reader.end(bodies))
        })
        .await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        let known = *self.heads.borrow();
        limited(async {
            let mut reader = self.readers.reader(Read::Glance).await?;
            let (connection, numbers) = (reader.connection(), &self.topics.numbers);
            let rows = feed::after(connection, numbers, after, rows_max, known).await?;
            Ok(reader.end(rows))
        })
        .await?
    }

    fn recent(&self, after: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        self.recent.after(after, rows_max)
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        limited(async {
            let at = self.readers.snapshot(Read::Glance).await?;
            let bounds = at.bounds.feed;
            at.end(bounds).await
        })
        .await
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.heads.subscribe()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Glance).await?;
            let topics = list::topics(reader.connection()).await?;
            Ok(reader.end(topics))
        })
        .await
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Glance).await?;
            let connection = reader.connection();
            let linked = list::linked(connection, &self.topics.numbers, &topic, events_max).await?;
            Ok(reader.end(linked))
        })
        .await
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let (connection, numbers) = (reader.connection(), &self.topics.numbers);
            let aged = upkeep::aged(connection, numbers, &topic, &cutoffs, events_max).await?;
            Ok(reader.end(self.noted(aged)))
        })
        .await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let (connection, numbers) = (reader.connection(), &self.topics.numbers);
            let oldest = upkeep::oldest(connection, numbers, &of, events_max).await?;
            let oldest = self.noted(oldest).into_iter().map(|(_, id)| id).collect();
            Ok(reader.end(oldest))
        })
        .await
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let forgettable = upkeep::forgettable(reader.connection(), before, max).await?;
            Ok(reader.end(forgettable))
        })
        .await
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        let tidied = within(READ_LIMIT, "tidying up", async {
            let mut connection = self.server.connect(Role::Tidy).await?;
            tidy::step(&mut connection).await
        });
        Ok(tidied.await?)
    }

    async fn extents(&self) -> Result<Vec<Extent>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let extents = tidy::extents(reader.connection()).await?;
            Ok(reader.end(extents))
        })
        .await
    }

    async fn space(&self) -> Result<Space, StoreError> {
        // Who tidies up waits for locks of others for a moment only, and so does who asks what there is to tidy.
        let space = within(READ_LIMIT, "measuring partitions", async {
            let mut connection = self.server.connect(Role::Tidy).await?;
            tidy::space(&mut connection).await
        });
        Ok(space.await?)
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Glance).await?;
            let expired = list::expired(reader.connection(), now, events_max).await?;
            Ok(reader.end(expired))
        })
        .await
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        let opened = within(APPLY_LIMIT, "opening the lane", async {
            let mut lane = self.lane.lock().await;
            *lane = Lane::Open(self.open_lane().await?);
            Ok(())
        });
        Ok(opened.await?)
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        limited(async {
            let mut reader = self.readers.reader(Read::Question).await?;
            let connection = reader.connection();
            let page = page::page(connection, &self.topics.numbers, after, entries_max).await?;
            Ok(reader.end(page))
        })
        .await
    }
}
