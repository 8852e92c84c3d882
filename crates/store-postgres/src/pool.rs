//! Connections for reads, a bounded number of them. The driver's own pool asks the server after
//! every use whether the connection is well, which costs as much as a small read; here only one that
//! rested is asked, and one that was not used to its end.
//!
//! The server goes on with a statement whose reader has left. So a connection is counted until it
//! is quiet: who asks and leaves, over and over, never has more of the server than who stays.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, raw_sql};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::error::Fault;
use crate::session::{Role, Server};
use crate::store::READ_LIMIT;

/// A connection that has rested for so long may have been closed by the server or the network.
const REST_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Pool {
    server: Server,
    permits: Arc<Semaphore>,
    acquire_timeout: Duration,
    /// Connections that rest, and since when.
    idle: Mutex<Vec<(Instant, PgConnection)>>,
    /// What goes on when a reader has left: at most one task for each permit. They end with the pool.
    tasks: Mutex<JoinSet<()>>,
}

impl Pool {
    pub fn new(server: Server, connections_max: usize, acquire_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            server,
            permits: Arc::new(Semaphore::new(connections_max)),
            acquire_timeout,
            idle: Mutex::default(),
            tasks: Mutex::default(),
        })
    }

    pub async fn reader(self: &Arc<Self>) -> Result<Reader, Fault> {
        let permit = timeout(self.acquire_timeout, self.permits.clone().acquire_owned()).await;
        let mut permit = permit
            .map_err(|_| Fault::unavailable("all connections for reads are in use"))?
            .map_err(|_| closed())?;
        while let Some((since, connection)) = self.take_idle() {
            let mut reader = self.lend(Counted { connection, permit });
            if since.elapsed() < REST_MAX || reader.connection().ping().await.is_ok() {
                return Ok(reader);
            }
            permit = reader.take().permit;
        }
        self.connect(permit).await
    }

    /// Connects in a task: when who waits for it leaves, the connection is there for the next one.
    async fn connect(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Result<Reader, Fault> {
        let (connected, connection) = oneshot::channel();
        let (server, pool) = (self.server.clone(), Arc::downgrade(self));
        self.spawn(async move {
            let reader = server.connect(Role::Reader).await.map(|connection| {
                let counted = Some(Counted { connection, permit });
                Reader { counted, pool }
            });
            // Where nobody waits any more, the reader is dropped, and goes to rest.
            drop(connected.send(reader));
        });
        connection.await.unwrap_or_else(|_| Err(closed()))
    }

    fn lend(self: &Arc<Self>, counted: Counted) -> Reader {
        Reader { counted: Some(counted), pool: Arc::downgrade(self) }
    }

    fn take_idle(&self) -> Option<(Instant, PgConnection)> {
        lock(&self.idle).pop()
    }

    /// Takes a quiet connection back. It is there to be lent before its permit is.
    fn rest(&self, Counted { connection, permit }: Counted) {
        if !self.permits.is_closed() {
            lock(&self.idle).push((Instant::now(), connection));
        }
        drop(permit);
    }

    /// Where there is no runtime any more, the work is dropped.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(work, &runtime);
    }

    /// No reader is lent any more; those that are out are closed when they end.
    pub async fn close(&self) {
        self.permits.close();
        lock(&self.idle).clear();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> Fault {
    Fault::unavailable("the store is closed")
}

/// A connection, and what it counts as, which is given back after it.
struct Counted {
    connection: PgConnection,
    permit: OwnedSemaphorePermit,
}

/// A connection on loan. Dropped before [`Reader::end`], it is lent again when the server is done with
/// what it was asked.
pub(crate) struct Reader {
    counted: Option<Counted>,
    /// A pool that is gone takes nothing back.
    pool: Weak<Pool>,
}

impl Reader {
    pub fn connection(&mut self) -> &mut PgConnection {
        let counted = self.counted.as_mut();
        &mut counted.expect("a reader has its connection until it ends").connection
    }

    /// Gives the connection back, and what was read on it.
    pub fn end<T>(mut self, answer: T) -> T {
        if let Some(pool) = self.pool.upgrade() {
            pool.rest(self.take());
        }
        answer
    }

    fn take(&mut self) -> Counted {
        self.counted.take().expect("a reader has its connection until it ends")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(counted) = self.counted.take() else { return };
        if let Some(pool) = self.pool.upgrade() {
            pool.spawn(calm(counted, Weak::clone(&self.pool)));
        }
    }
}

/// Waits until the server is done with what nobody waits for any more, and leaves the transaction
/// that may be open. A connection that does not come to rest is closed.
async fn calm(mut counted: Counted, pool: Weak<Pool>) {
    let rollback = raw_sql("ROLLBACK").execute(&mut counted.connection);
    if let Ok(Ok(_)) = timeout(READ_LIMIT, rollback).await
        && let Some(pool) = pool.upgrade()
    {
        pool.rest(counted);
    }
}
