//! Connections for reads, a bounded number of them. The driver's own pool asks the server after
//! every use whether the connection is well, which costs as much as a small read; here one that was
//! not used to its end is closed, and only one that rested is asked.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kukuri_core::{Epoch, Seq, UnixMillis};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, raw_sql};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::Options;
use crate::bounds::{Bounds, begin};
use crate::error::Fault;
use crate::session::{Role, Server};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A connection that has rested for so long may have been closed by the server or the network.
const REST_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Readers {
    server: Server,
    epoch: Epoch,
    heads: watch::Receiver<Seq>,
    permits: Arc<Semaphore>,
    acquire_timeout: Duration,
    idle: Idle,
    /// A time by which most events were taken in.
    latest: AtomicI64,
}

/// Connections that rest, and since when.
#[derive(Clone, Default)]
struct Idle(Arc<Mutex<Vec<(Instant, PgConnection)>>>);

impl Idle {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<(Instant, PgConnection)>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Readers {
    pub fn new(
        server: Server,
        options: &Options,
        epoch: Epoch,
        heads: watch::Receiver<Seq>,
    ) -> Self {
        Self {
            server,
            epoch,
            heads,
            permits: Arc::new(Semaphore::new(options.readers_max)),
            acquire_timeout: options.acquire_timeout,
            idle: Idle::default(),
            latest: AtomicI64::new(i64::MIN),
        }
    }

    /// A connection for a single statement.
    pub async fn reader(&self) -> Result<Reader, Fault> {
        let permit = timeout(self.acquire_timeout, self.permits.clone().acquire_owned()).await;
        let permit = permit
            .map_err(|_| Fault::unavailable("all connections for reads are in use"))?
            .map_err(|_| Fault::unavailable("the store is closed"))?;
        while let Some((since, mut connection)) = self.idle.with(Vec::pop) {
            if since.elapsed() < REST_MAX || connection.ping().await.is_ok() {
                return Ok(self.lend(connection, permit));
            }
        }
        let connection = self.server.connect(Role::Reader).await?;
        Ok(self.lend(connection, permit))
    }

    /// Reads at one moment: a transaction whose first statement reads the head.
    pub async fn snapshot(&self) -> Result<Snapshot, Fault> {
        let mut reader = self.reader().await?;
        let known = *self.heads.borrow();
        let bounds = begin(&mut reader.connection, BEGIN, self.epoch, known).await?;
        self.note(bounds.latest);
        Ok(Snapshot { reader, bounds })
    }

    /// Remembers when an event was taken in.
    pub fn note(&self, time: Option<UnixMillis>) {
        if let Some(time) = time {
            self.latest.fetch_max(time.0, Ordering::Relaxed);
        }
    }

    pub fn latest(&self) -> UnixMillis {
        UnixMillis(self.latest.load(Ordering::Relaxed))
    }

    fn lend(&self, connection: PgConnection, permit: OwnedSemaphorePermit) -> Reader {
        Reader { connection, idle: self.idle.clone(), _permit: permit }
    }

    /// No reader is lent any more; those that are out are closed when they end.
    pub fn close(&self) {
        self.permits.close();
        self.idle.with(Vec::clear);
    }
}

/// A connection on loan. Dropped before [`Reader::end`], it is closed: who knows in what state it is.
pub(crate) struct Reader {
    pub connection: PgConnection,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    /// Gives the connection back, and what was read on it.
    pub fn end<T>(self, answer: T) -> T {
        self.idle.with(|idle| idle.push((Instant::now(), self.connection)));
        answer
    }
}

/// A read-only transaction.
pub(crate) struct Snapshot {
    reader: Reader,
    pub bounds: Bounds,
}

impl Snapshot {
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.reader.connection
    }

    /// Gives the connection back, and what was read on it.
    pub async fn end<T>(mut self, answer: T) -> Result<T, Fault> {
        raw_sql("COMMIT").execute(self.connection()).await?;
        Ok(self.reader.end(answer))
    }
}
