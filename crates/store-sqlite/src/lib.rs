//! The embedded back end: events and feed in one SQLite file. The only crate that names rusqlite.
//! Knows no rules: it loads what `core` asks for, writes what `core` decided, and answers queries as
//! the matcher would. Several processes may open one data directory; each batch is one immediate
//! transaction that decides on the head it finds.

mod apply;
pub mod backup;
mod connection;
mod dedupe;
mod departed;
mod desk;
mod error;
mod facts;
mod feed;
mod indexes;
mod page;
mod query;
mod readers;
mod rows;
mod run;
mod schema;
mod tail;
mod tidy;
mod upkeep;
mod watch;
mod worker;
mod write;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Cutoffs, Decision, Facts, FeedBounds, FeedRow, NodeTopic, ReadSet, Seq,
    TopicId, UnixMillis, Usage,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::backup::{Directory, new_file};
use kukuri_store::{
    Dated, Entry, Extent, FeedError, Forgettable, Hits, Place, Query, QueryError, Recent, Scope,
    Space, Store, StoreError, Tidied, node_state,
};
use tokio::sync::watch as channel;

use apply::Writer;
use desk::{Desk, Snapshot};
use readers::Readers;
use tail::{Tail, TailAt};
use watch::Watcher;
use worker::Worker;

/// The file in the data directory that holds events and feed.
pub const FILE: &str = "events.db";

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Full,
    /// Loses acknowledged events in a power cut. It is the negative control of the power-cut test,
    /// and makes tests of logic quick.
    OffForTests,
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sync: Sync,
    /// How many questions may be answered at once: those of clients, exports and audits, of any
    /// length. Short reads have connections beside these.
    pub readers: usize,
    /// New events whose index rows are written together, in one sorted run.
    pub run_events: usize,
    /// Names this life of the feed if the file is new.
    pub epoch: i64,
}

/// How many reads a node runs at once.
pub const READS_MAX: usize = QUESTIONS_MAX + GLANCES_MAX;

const QUESTIONS_MAX: usize = 4;

/// Glances are short reads of bounded size, those that live delivery waits for among them. They have
/// connections of their own, so that they wait for each other only, however much is asked.
const GLANCES_MAX: usize = 2;

impl Options {
    /// What a node runs with.
    pub fn standard(epoch: i64) -> Self {
        Self { sync: Sync::Full, readers: QUESTIONS_MAX, run_events: 64 * 1024, epoch }
    }
}

/// Events and feed in `events.db`.
pub struct SqliteStore {
    watcher: Option<Watcher>,
    writer: Arc<Worker>,
    write_state: Arc<Writer>,
    questions: Readers,
    glances: Readers,
    heads: channel::Sender<Seq>,
    recent: Arc<Recent>,
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The watcher may hold the writer for a moment; once it has ended, the writer is ours alone
        // and finishes its queue, this last job included.
        self.watcher = None;
        settle(Arc::downgrade(&self.writer), &self.write_state)();
    }
}

/// Asks the writing thread to write a run when it comes to it.
fn settle(writer: Weak<Worker>, state: &Arc<Writer>) -> impl Fn() + Send + 'static {
    let state = Arc::clone(state);
    move || {
        if let Some(writer) = writer.upgrade() {
            let state = Arc::clone(&state);
            writer.leave(move |desk| state.settle(desk));
        }
    }
}

impl SqliteStore {
    /// Opens the file in `directory`, and makes it if it is not there. Blocks while it recovers.
    pub fn open(directory: &Path, options: Options) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        // What people wrote is for the node to read, and for nobody else on the machine.
        Directory::make(directory).map_err(|error| {
            StoreError::Io(format!("the data directory cannot be used: {error}"))
        })?;
        match new_file(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                let file = path.display();
                return Err(StoreError::Io(format!("cannot make {file}: {error}")));
            }
            _ => {}
        }
        let named = |error: StoreError| name_file(&path, error);
        let mut conn = connection::open_writer(&path, options.sync).map_err(named)?;
        schema::migrate(&mut conn, options.epoch).map_err(named)?;
        let bounds = desk::bounds(&conn).map_err(named)?;
        let heads = channel::Sender::new(bounds.head);
        let recent = Arc::new(Recent::new(bounds.epoch));
        let tail = Arc::new(Tail::new());
        let reader = || connection::open_reader(&path, options.sync).map_err(named);
        let desk = |conn| Desk::new(conn, Arc::clone(&tail));
        let questions_max = options.readers.max(1);
        let readers = |count| {
            let desks = (0..count).map(|_| reader().map(desk)).collect::<Result<_, StoreError>>();
            Ok::<_, StoreError>(Readers::new(desks?, questions_max + GLANCES_MAX))
        };
        let (questions, glances) = (readers(questions_max)?, readers(GLANCES_MAX)?);
        let writer = Arc::new(Worker::start("sqlite-write", desk(conn)));
        let write_state = Arc::new(Writer::new(path.clone(), options));
        let settle = settle(Arc::downgrade(&writer), &write_state);
        let watcher = Watcher::start(reader()?, heads.clone(), settle);
        Ok(Self { watcher: Some(watcher), writer, write_state, questions, glances, heads, recent })
    }
}

fn name_file(path: &Path, error: StoreError) -> StoreError {
    let named = |text: String| format!("{}: {text}", path.display());
    match error {
        StoreError::Full(text) => StoreError::Full(named(text)),
        StoreError::Unavailable(text) => StoreError::Unavailable(named(text)),
        StoreError::Corrupt(text) => StoreError::Corrupt(named(text)),
        StoreError::Io(text) => StoreError::Io(named(text)),
        conflict @ StoreError::Conflict { .. } => conflict,
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let (state, heads) = (Arc::clone(&self.write_state), self.heads.clone());
        let recent = Arc::clone(&self.recent);
        self.writer
            .run(move |desk| {
                let decision = state.apply(desk, &batch)?;
                recent.add(&decision);
                watch::raise(&heads, decision.head());
                Ok(decision)
            })
            .await?
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        let state = Arc::clone(&self.write_state);
        self.writer.run(move |desk| state.reopen(desk)).await?
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        self.glances
            .read(move |desk| {
                let Snapshot { conn, numbers, segment, bounds } = desk.snapshot()?;
                let tail = TailAt { segment: &segment, head: bounds.head };
                facts::load(&conn, numbers, tail, &needs)
            })
            .await
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        self.questions.read(move |desk| query::run(desk, &query)).await
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        self.questions.read(move |desk| page::bodies(&desk.conn, &events)).await
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        self.glances.read(move |desk| feed::read(desk, after, rows_max)).await
    }

    fn recent(&self, after: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        self.recent.after(after, rows_max)
    }

    async fn bounds(&self) -> Result<FeedBounds, StoreError> {
        self.glances.read(|desk| desk::moment(&desk.conn)).await
    }

    fn heads(&self) -> channel::Receiver<Seq> {
        self.heads.subscribe()
    }

    async fn topics(&self) -> Result<Vec<(NodeTopic, Usage)>, StoreError> {
        let all = |desk: &mut Desk| page::page(desk, &Place::Topics(None), usize::MAX);
        let entries = self.glances.read(all).await?;
        let topic = |entry| match entry {
            Entry::Topic(topic, usage) => Some((topic, usage)),
            _ => None,
        };
        Ok(entries.into_iter().filter_map(topic).collect())
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.glances.read(move |desk| page::linked(desk, &topic, events_max)).await
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        self.questions.read(move |desk| upkeep::aged(desk, &topic, &cutoffs, events_max)).await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        self.questions.read(move |desk| upkeep::oldest(desk, &of, events_max)).await
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        self.questions.read(move |desk| upkeep::forgettable(&desk.conn, before, max)).await
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        let state = Arc::clone(&self.write_state);
        self.writer.run(move |desk| state.tidy(desk)).await?
    }

    async fn extents(&self) -> Result<Vec<Extent>, StoreError> {
        self.glances.read(|desk| tidy::extents(&desk.conn)).await
    }

    async fn space(&self) -> Result<Space, StoreError> {
        let held_bytes = node_state(self).await?.usage.bytes;
        let vacant_bytes = self.glances.read(|desk| tidy::vacant_bytes(&desk.conn)).await?;
        Ok(Space { vacant_bytes, held_bytes })
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        self.glances.read(move |desk| page::expired(desk, now, events_max)).await
    }

    async fn page(&self, after: Place, entries_max: usize) -> Result<Vec<Entry>, StoreError> {
        self.questions.read(move |desk| page::page(desk, &after, entries_max)).await
    }
}
