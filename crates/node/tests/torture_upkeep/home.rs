//! Where the stores of these tests lie, and how much room they take.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kukuri_store::{Model, Store};
use kukuri_store_postgres::{Fsync, PostgresStore, Wakeup};
use kukuri_store_sqlite::{FILE, SqliteStore, Sync};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use rusqlite::Connection;
use tempfile::TempDir;

/// So few rows per partition of the feed that some of them are dropped in every test.
const ROWS_PER_PARTITION: u32 = 512;
/// As few index rows as SQLite writes at once here, so that most of its events are not in its tail.
const RUN_EVENTS: usize = 64;

/// A directory in memory if there is one, since these tests are not about the disk.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Where a store is, and what has to live as long as it.
#[derive(Clone)]
pub enum Home {
    /// In memory: for showing that a check finds faults.
    Model(Arc<Model>),
    Sqlite {
        path: PathBuf,
        _directory: Option<Arc<TempDir>>,
    },
    Postgres(String, Arc<Server>),
}

pub struct Server {
    cluster: Cluster,
    /// Removed after the server has ended.
    _directory: Option<TempDir>,
}

impl Home {
    pub fn model() -> Self {
        Self::Model(Arc::default())
    }

    pub fn sqlite() -> Self {
        let directory = directory();
        let path = directory.path().join("data");
        Self::Sqlite { path, _directory: Some(Arc::new(directory)) }
    }

    /// In a directory of somebody else's.
    pub fn sqlite_in(directory: &Path) -> Self {
        Self::Sqlite { path: directory.join("data"), _directory: None }
    }

    pub fn postgres() -> Self {
        let directory = directory();
        let home = Some(directory.path().to_owned());
        let settings = Settings { home, ..Settings::new(Durability::Fast) };
        let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
        Self::served(cluster, Some(directory))
    }

    /// A new database of a server.
    pub fn served(cluster: Cluster, directory: Option<TempDir>) -> Self {
        let name = cluster.create_named();
        Self::Postgres(name, Arc::new(Server { cluster, _directory: directory }))
    }

    pub async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Model(model) => Arc::<Model>::clone(model),
            Self::Sqlite { path, .. } => {
                let standard = kukuri_store_sqlite::Options::standard(1);
                let options = kukuri_store_sqlite::Options {
                    sync: Sync::OffForTests,
                    run_events: RUN_EVENTS,
                    ..standard
                };
                Arc::new(SqliteStore::open(path, options).expect("the store opens"))
            }
            Self::Postgres(name, server) => {
                let options = kukuri_store_postgres::Options {
                    fsync: Fsync::AnyForTests,
                    wakeup: Wakeup::PollOnly,
                    readers_max: 2,
                    partition_rows_min: ROWS_PER_PARTITION,
                    ..kukuri_store_postgres::Options::STANDARD
                };
                let url = server.cluster.url(name);
                Arc::new(PostgresStore::open(&url, options).await.expect("the store opens"))
            }
        }
    }

    /// The same store again, elsewhere. Nobody has it open.
    pub fn copy(&self) -> Self {
        match self {
            Self::Model(_) => unreachable!("the model is for sabotage"),
            Self::Sqlite { path, .. } => {
                let directory = directory();
                let to = directory.path().join("data");
                copy_files(path, &to);
                Self::Sqlite { path: to, _directory: Some(Arc::new(directory)) }
            }
            Self::Postgres(name, server) => {
                let copy = format!("copy_{:016x}", rand::random::<u64>());
                let sql = format!("CREATE DATABASE {copy} TEMPLATE {name}");
                server.cluster.sql("postgres", &sql).expect("nobody is connected");
                Self::Postgres(copy, Arc::clone(server))
            }
        }
    }

    /// Ends what a dropped handle may still do, and keeps others from finding it in their way.
    pub fn disconnect(&self) {
        if let Self::Postgres(name, server) = self {
            let sql = format!(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                 WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            );
            server.cluster.sql("postgres", &sql).expect("a server ends its sessions");
        }
    }

    /// A server that has made room for its log takes no more for it for a while.
    pub fn settle(&self) {
        if let Self::Postgres(name, server) = self {
            for sql in ["SELECT pg_switch_wal()", "CHECKPOINT"] {
                server.cluster.sql(name, sql).expect("it can be asked");
            }
        }
    }

    pub fn room(&self) -> Room {
        match self {
            Self::Model(_) => Room::default(),
            Self::Sqlite { path, .. } => file_room(path),
            Self::Postgres(name, server) => {
                let sql = |sql: &str| server.cluster.sql(name, sql).expect("it can be asked");
                let number = |text: String| text.parse().expect("a number");
                // As the server does by itself from time to time.
                sql("VACUUM");
                Room {
                    bytes: number(sql(PARTITION_BYTES)),
                    beside: number(sql(OTHER_BYTES)),
                    partitions: self.partitions(),
                    ..Room::default()
                }
            }
        }
    }

    /// No tag stays for ever when its event has left.
    pub fn forgets_no_tag(&self) {
        if let Self::Postgres(name, server) = self {
            let forgotten = server.cluster.forgotten_tags(name).expect("it can be asked");
            assert!(forgotten <= 0, "{forgotten} tags");
        }
    }

    /// Those of [`Room::partitions`], without touching anything.
    pub fn partitions(&self) -> u64 {
        let Self::Postgres(name, server) = self else { return 0 };
        let count = server.cluster.sql(name, PARTITIONS).expect("it can be asked");
        count.parse().expect("a number")
    }
}

/// The room that a store takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// SQLite: its file. PostgreSQL: the partitions of events and of the feed, which are dropped.
    pub bytes: u64,
    /// SQLite: as much of its file as holds nothing, and is written to again.
    pub free: u64,
    /// PostgreSQL: the tables that are vacuumed, whose room is used again.
    pub beside: u64,
    /// PostgreSQL: partitions of events, but for those that the feed has not reached: how many there are ahead
    /// of it depends on which batch made them.
    pub partitions: u64,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, free, beside, partitions } = self;
        write!(f, "{} KiB", bytes / 1024)?;
        if *free > 0 {
            write!(f, ", {} KiB of them free", free / 1024)?;
        }
        if *partitions > 0 {
            write!(
                f,
                " in partitions ({partitions} of events), {} KiB beside them",
                beside / 1024
            )?;
        }
        Ok(())
    }
}

const PARTITION_BYTES: &str = "SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)
    FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r' AND c.relnamespace = 'cn_relay'::REGNAMESPACE";
const OTHER_BYTES: &str = "SELECT COALESCE(sum(pg_total_relation_size(oid)), 0) FROM pg_class
    WHERE relkind = 'r' AND NOT relispartition AND relnamespace = 'cn_relay'::REGNAMESPACE";
const PARTITIONS: &str = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relispartition
    AND relname ~ '^events_standard_[0-9]+$'
    AND substring(relname FROM '[0-9]+$')::BIGINT <= (
        SELECT GREATEST(floor_seq, (SELECT max(seq) FROM cn_relay.events_outbox))
        FROM cn_relay.feed_meta)";

fn file_room(path: &Path) -> Room {
    let connection = Connection::open(path.join(FILE)).expect("the file is there");
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    assert_eq!(busy, Ok(0), "nobody reads");
    let number = |name: &str| {
        let number = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        number.expect("it can be asked").unsigned_abs()
    };
    let free = number("freelist_count") * number("page_size");
    let bytes = std::fs::metadata(path.join(FILE)).expect("the file is there").len();
    Room { bytes, free, ..Room::default() }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new directory");
    for file in std::fs::read_dir(from).expect("a store is a directory").flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("a file can be copied");
    }
}
