//! Reads, and the connections they run on. Live delivery waits for short reads, and these must not
//! wait for what clients ask: each sort of read has connections of its own.

use std::sync::Arc;

use kukuri_core::{Epoch, Seq};
use sqlx::postgres::PgConnection;
use sqlx::raw_sql;
use tokio::sync::watch;

use crate::Options;
use crate::bounds::{Bounds, Expected, begin};
use crate::error::Fault;
use crate::pool::{Pool, Reader};
use crate::session::Server;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Reads of one sort wait for each other only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// What clients, exports and audits ask, of any length.
    Question,
    /// A short read of bounded size, such as live delivery waits for.
    Glance,
}

pub(crate) struct Readers {
    epoch: Epoch,
    heads: watch::Receiver<Seq>,
    questions: Arc<Pool>,
    glances: Arc<Pool>,
}

impl Readers {
    pub fn new(
        server: &Server,
        options: &Options,
        epoch: Epoch,
        heads: watch::Receiver<Seq>,
    ) -> Self {
        let pool = |max| Pool::new(server.clone(), max, options.acquire_timeout);
        Self {
            epoch,
            heads,
            questions: pool(options.readers_max),
            glances: pool(options.glances_max),
        }
    }

    /// A connection for single statements.
    pub async fn reader(&self, sort: Read) -> Result<Reader, Fault> {
        match sort {
            Read::Question => self.questions.reader().await,
            Read::Glance => self.glances.reader().await,
        }
    }

    /// Reads at one moment: a transaction whose first statement reads the head.
    pub async fn snapshot(&self, sort: Read) -> Result<Snapshot, Fault> {
        let mut reader = self.reader(sort).await?;
        let bounds = begin(reader.connection(), BEGIN, self.expected()).await?;
        Ok(Snapshot { reader, bounds })
    }

    pub fn expected(&self) -> Expected {
        Expected { epoch: self.epoch, head: *self.heads.borrow() }
    }

    pub async fn close(&self) {
        self.questions.close().await;
        self.glances.close().await;
    }
}

/// A read-only transaction.
pub(crate) struct Snapshot {
    reader: Reader,
    pub bounds: Bounds,
}

impl Snapshot {
    pub fn connection(&mut self) -> &mut PgConnection {
        self.reader.connection()
    }

    /// Gives the connection back, and what was read on it.
    pub async fn end<T>(mut self, answer: T) -> Result<T, Fault> {
        raw_sql("COMMIT").execute(self.connection()).await?;
        Ok(self.reader.end(answer))
    }
}
