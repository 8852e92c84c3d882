//! The stores under measurement: real files, a real server, synced commits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Command, TopicId, UnixMillis};
use kukuri_store::Store;
use kukuri_store_postgres::{Options, PostgresStore};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::generate::bulk::Bulk;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use tempfile::TempDir;

use crate::{NOW, meter};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

pub struct Backend {
    pub store: Arc<dyn Store>,
    home: Home,
}

enum Home {
    Directory(TempDir),
    Server { cluster: Box<Cluster>, database: String, options: Options },
}

/// A server with the memory that people give one.
pub fn server() -> anyhow::Result<Cluster> {
    let mut settings = Settings::new(Durability::Durable);
    settings.shared_buffers_mb = 1024;
    settings.options.push(("max_wal_size".into(), "8GB".into()));
    Cluster::start_with(&settings)
}

impl Backend {
    /// A new store that carries the topics of the load.
    pub async fn open(kind: Kind, bulk: &Bulk) -> anyhow::Result<Self> {
        let home = match kind {
            Kind::Sqlite => Home::Directory(TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?),
            Kind::Postgres => {
                return Self::open_postgres(bulk, Options::STANDARD).await;
            }
        };
        Self::at(home, bulk).await
    }

    /// A new store on a server, with options of its own.
    pub async fn open_postgres(bulk: &Bulk, options: Options) -> anyhow::Result<Self> {
        let cluster = Box::new(server()?);
        let database = cluster.create_named();
        Self::at(Home::Server { cluster, database, options }, bulk).await
    }

    async fn at(home: Home, bulk: &Bulk) -> anyhow::Result<Self> {
        let store = connect(&home).await?;
        let topics: Vec<Command> = topics(bulk).collect();
        for batch in topics.chunks(500) {
            store.apply(batch.into()).await?;
        }
        Ok(Self { store, home })
    }

    /// The same store, closed and opened anew: what was put off is done.
    pub async fn reopened(self) -> anyhow::Result<Self> {
        drop(self.store);
        let store = connect(&self.home).await?;
        Ok(Self { store, home: self.home })
    }

    /// CPU of this process and of the server.
    pub fn cpu(&self) -> Duration {
        meter::cpu() + self.server_cpu()
    }

    pub fn server_cpu(&self) -> Duration {
        match &self.home {
            Home::Directory(_) => Duration::ZERO,
            Home::Server { cluster, .. } => cluster.cpu_time(),
        }
    }

    /// Where the server is, if there is one.
    pub fn url(&self) -> Option<String> {
        let Home::Server { cluster, database, .. } = &self.home else { return None };
        Some(cluster.socket_url(database))
    }

    /// Bytes on disk.
    pub fn stored(&self) -> u64 {
        match &self.home {
            Home::Directory(directory) => size(directory.path()),
            Home::Server { cluster, database, .. } => {
                let sql = "SELECT pg_database_size(current_database())";
                let text = cluster.sql(database, sql).unwrap_or_default();
                text.trim().parse().unwrap_or(0)
            }
        }
    }
}

async fn connect(home: &Home) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match home {
        Home::Directory(directory) => {
            let options = kukuri_store_sqlite::Options::standard(1);
            Arc::new(SqliteStore::open(directory.path(), options)?)
        }
        Home::Server { cluster, database, options } => {
            let url = cluster.socket_url(database);
            Arc::new(PostgresStore::open(&url, options.clone()).await?)
        }
    })
}

fn topics(bulk: &Bulk) -> impl Iterator<Item = Command> {
    (0..bulk.topics).map(|nth| {
        let topic_id = TopicId::parse(&bulk.topic(nth)).expect("the load names canonical topics");
        let act = Act::carry(topic_id, format!("topic {nth}"));
        Command { at: UnixMillis::from(NOW), act }
    })
}

fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}
