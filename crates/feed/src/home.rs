//! Where a consumer's tables are: a file of its own in the data directory, or a schema of its own in the
//! database. Nobody else writes there.

mod connect;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::{ConsumerName, Desk, DeskError, Dialect, ledger};

/// How many may read at once. Who comes later waits.
const READERS_MAX: usize = 8;
/// How many pages are given back at a time: 4 MiB.
const TIDY_PAGES: u32 = 1024;
/// How long who wants to read waits for a connection.
const READER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where all consumers keep their tables.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file `NAME.db` for each.
    Directory { directory: PathBuf, sync: Sync },
    /// A schema `cn_NAME` for each.
    Database { url: String },
}

/// Whether commits wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Full,
    /// A loss of power may lose commits, or the file.
    OffForTests,
}

/// The tables of one consumer, open.
#[derive(Clone)]
pub struct Home {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    name: ConsumerName,
    /// One writes at a time in this process: SQLite's own way to wait is to look again now and then.
    writer: Arc<AsyncMutex<Option<Desk>>>,
    readers: Arc<Semaphore>,
    resting: Mutex<Vec<Desk>>,
}

impl Home {
    /// Opens a consumer's tables; makes the file or the schema if it is not there.
    pub async fn open(place: &Place, name: ConsumerName) -> Result<Self, DeskError> {
        let desk = connect::writer(place, name).await?;
        Ok(Self::new(place, name, Some(desk)))
    }

    /// The tables of a consumer that has been run here; makes nothing.
    pub async fn existing(place: &Place, name: ConsumerName) -> Result<Option<Self>, DeskError> {
        if connect::file(place, name).is_some_and(|file| !file.exists()) {
            return Ok(None);
        }
        let home = Self::new(place, name, None);
        let mut snapshot = home.read().await?;
        let there = ledger::is_there(snapshot.desk()).await?;
        snapshot.end().await?;
        Ok(there.then_some(home))
    }

    fn new(place: &Place, name: ConsumerName, writer: Option<Desk>) -> Self {
        let shared = Shared {
            place: place.clone(),
            name,
            writer: Arc::new(AsyncMutex::new(writer)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            resting: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub fn name(&self) -> ConsumerName {
        self.shared.name
    }

    /// Begins to write. What is not committed in the end has not happened.
    pub async fn write(&self) -> Result<Writing, DeskError> {
        let mut slot = Arc::clone(&self.shared.writer).lock_owned().await;
        if let Some(mut desk) = slot.take() {
            match (begin_writing(&mut desk).await, desk.dialect()) {
                (Ok(()), _) => return Ok(Writing { desk: Some(desk), slot }),
                (Err(error), Dialect::Sqlite) => {
                    *slot = Some(desk);
                    return Err(error);
                }
                // It has rested for so long that the server closed it.
                (Err(_), Dialect::Postgres) => {}
            }
        }
        let mut desk = connect::writer(&self.shared.place, self.shared.name).await?;
        begin_writing(&mut desk).await?;
        Ok(Writing { desk: Some(desk), slot })
    }

    /// Begins to read: everything is as of one moment.
    pub async fn read(&self) -> Result<Snapshot, DeskError> {
        let permits = Arc::clone(&self.shared.readers);
        let permit = timeout(READER_WAIT_MAX, permits.acquire_owned()).await;
        let permit = permit
            .map_err(|_| DeskError::Unavailable("all connections for reads are in use".into()))?
            .map_err(|_| DeskError::Unavailable("the tables are closed".into()))?;
        let snapshot = |desk| Snapshot { desk: Some(desk), home: self.clone(), _permit: permit };
        while let Some(mut desk) = self.rested() {
            if begin_reading(&mut desk).await.is_ok() {
                return Ok(snapshot(desk));
            }
        }
        let mut desk = connect::reader(&self.shared.place, self.shared.name).await?;
        begin_reading(&mut desk).await?;
        Ok(snapshot(desk))
    }

    /// Gives back to the disk, in one bounded step, what holds nothing any more. Says whether there is more.
    pub(crate) async fn tidy(&self) -> Result<bool, DeskError> {
        let mut slot = Arc::clone(&self.shared.writer).lock_owned().await;
        // A server does so by itself; a file is written to by whoever has a connection.
        let Some(desk) = slot.as_mut().filter(|desk| desk.dialect() == Dialect::Sqlite) else {
            return Ok(false);
        };
        desk.script(&format!("PRAGMA incremental_vacuum({TIDY_PAGES})")).await?;
        let free = desk.row("SELECT freelist_count FROM pragma_freelist_count", vec![]).await?;
        free.map_or(Ok(false), |row| Ok(row.int(0)? > 0))
    }

    fn rested(&self) -> Option<Desk> {
        self.resting().pop()
    }

    fn resting(&self) -> MutexGuard<'_, Vec<Desk>> {
        self.shared.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn begin_writing(desk: &mut Desk) -> Result<(), DeskError> {
    let sql = match desk.dialect() {
        Dialect::Sqlite => "BEGIN IMMEDIATE",
        Dialect::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
    };
    desk.script(sql).await
}

async fn begin_reading(desk: &mut Desk) -> Result<(), DeskError> {
    let sql = match desk.dialect() {
        Dialect::Sqlite => "BEGIN",
        Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    desk.script(sql).await
}

/// A transaction that writes. Dropped, it has not happened: its connection is closed.
pub struct Writing {
    desk: Option<Desk>,
    slot: OwnedMutexGuard<Option<Desk>>,
}

impl Writing {
    pub fn desk(&mut self) -> &mut Desk {
        self.desk.as_mut().expect("the desk is there until the end")
    }

    /// After an error it is unknown whether it has happened.
    pub async fn commit(mut self) -> Result<(), DeskError> {
        self.end("COMMIT").await
    }

    pub async fn roll_back(mut self) -> Result<(), DeskError> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, sql: &'static str) -> Result<(), DeskError> {
        let mut desk = self.desk.take().expect("the desk is there until the end");
        desk.script(sql).await?;
        *self.slot = Some(desk);
        Ok(())
    }
}

/// A transaction that reads.
pub struct Snapshot {
    desk: Option<Desk>,
    home: Home,
    _permit: OwnedSemaphorePermit,
}

impl Snapshot {
    pub fn desk(&mut self) -> &mut Desk {
        self.desk.as_mut().expect("the desk is there until the end")
    }

    /// Gives the connection back. One that is dropped instead is closed, as after an error.
    pub async fn end(mut self) -> Result<(), DeskError> {
        let mut desk = self.desk.take().expect("the desk is there until the end");
        desk.script("COMMIT").await?;
        self.home.resting().push(desk);
        Ok(())
    }
}
