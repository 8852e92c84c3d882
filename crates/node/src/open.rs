//! Opening the store that the command line names. The one place that knows which back ends exist.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kukuri_core::{Act, Seq, TopicId};
use kukuri_feed::RunnerConfig;
use kukuri_lane::{Lane, LaneConfig};
use kukuri_store::backup::{Backup, Manifest, Monitor};
use kukuri_store::{Clock, Store};
use kukuri_store_postgres::{Fsync, PostgresStore, Wakeup};
use kukuri_store_sqlite::{SqliteStore, Sync};

use crate::cli::Common;
use crate::clock::{clock, new_epoch};
use crate::upkeep::{Disk, Lookout, obstacle};

/// Tests that are not about durability set this: commits do not wait for the disk then, and a
/// PostgreSQL that runs with `fsync=off` is accepted.
const UNSAFE_FOR_TESTS: &str = "KUKURI_TEST_UNSAFE";

/// How long the last commits of a command may take.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// An open store.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    /// For people: where the store is, without secrets.
    pub place: String,
    /// The disk that the store lies on, if that is known to be one of this machine's.
    disk: Option<Disk>,
    /// How many commands an import keeps waiting for the store.
    pub lead_commands: u32,
}

/// SQLite writes index rows of many batches at once; all cores go on verifying meanwhile.
const SQLITE_LEAD_COMMANDS: u32 = 16 * 1024;
/// Four batches: one is committed, and the next are ready even if a core was busy with the server.
const POSTGRES_LEAD_COMMANDS: u32 = 4 * 1024;

impl Opened {
    pub fn lane(&self) -> Lane {
        self.lane_with(LaneConfig::STANDARD)
    }

    /// Who looks at the disk while no node runs.
    pub fn lookout<'a>(&'a self, lane: &'a Lane, reserve_bytes: u64) -> Lookout<'a> {
        Lookout { store: &*self.store, lane, clock: &self.clock, disk: self.disk(), reserve_bytes }
    }

    /// As [`lookout`](Self::lookout), for who is about to take events in: an operator who names a disk for its
    /// reserve is told before the first one that nobody can look at it.
    ///
    /// # Errors
    /// It cannot be looked at, or what was seen cannot be said in the store.
    pub async fn look_at_disk(&self, lookout: &Lookout<'_>) -> anyhow::Result<()> {
        if let Some(disk) = &self.disk {
            disk.look().with_context(|| {
                format!(
                    "cannot look at the disk that {} is on: check capacity.database_directory",
                    disk.directory().display()
                )
            })?;
        }
        lookout.look().await.context("cannot look after the disk")
    }

    /// Where a reserve can be kept.
    pub fn disk(&self) -> Option<Disk> {
        self.disk.clone()
    }

    /// How consumers of the feed are run, whose tables lie beside the events.
    pub fn runner_config(&self, disk_reserve_bytes: u64) -> RunnerConfig {
        let obstacle = self.disk().map(|disk| obstacle(disk, disk_reserve_bytes));
        RunnerConfig { obstacle, ..RunnerConfig::standard() }
    }

    pub fn lane_with(&self, config: LaneConfig) -> Lane {
        Lane::start(Arc::clone(&self.store), Arc::clone(&self.clock), config)
    }
}

/// Opens a store that is there: who only reads does not mean to make one by a slip of the pen.
pub async fn open_existing(common: &Common) -> anyhow::Result<Opened> {
    require_store(common).await?;
    open(common).await
}

/// Where the store is, as it may be shown. It is an error if there is none.
async fn require_store(common: &Common) -> anyhow::Result<String> {
    let (exists, place, option) = match &common.database {
        Some(url) => {
            let place = mask_password(url);
            let exists = PostgresStore::exists(url).await;
            (exists.with_context(|| cannot_open_database(&place))?, place, "--database")
        }
        None => {
            let exists = common.data.join(kukuri_store_sqlite::FILE).exists();
            (exists, common.data.display().to_string(), "--data")
        }
    };
    if !exists {
        bail!(
            "there is no store in {place}: check {option}; `topic add`, `import` and `run` make one"
        );
    }
    Ok(place)
}

/// Copies the store into a directory, beside whatever else is done with it. Says where the store is.
pub async fn back_up(
    common: &Common,
    to: &Path,
    monitor: Arc<Monitor>,
) -> anyhow::Result<(Manifest, String)> {
    let place = require_store(common).await?;
    let (to, made_at) = (to.to_owned(), clock(common.now)());
    let made = match common.database.clone() {
        Some(url) => tokio::spawn(async move {
            kukuri_store_postgres::backup::back_up(&url, &to, made_at, &monitor).await
        }),
        None => {
            let data = common.data.clone();
            tokio::task::spawn_blocking(move || {
                kukuri_store_sqlite::backup::back_up(&data, &to, made_at, &monitor)
            })
        }
    };
    let manifest = made.await.context("the backup panicked")?;
    Ok((manifest.with_context(|| format!("cannot back up {place}"))?, place))
}

/// A store that was made from a backup.
pub struct Restored {
    pub place: String,
    /// Tables of the backup that belong to no store.
    pub left_out: Vec<String>,
}

/// Makes a store from a backup.
pub async fn restore(
    common: &Common,
    backup: Arc<Backup>,
    monitor: Arc<Monitor>,
) -> anyhow::Result<Restored> {
    let (place, restored) = match common.database.clone() {
        Some(url) => {
            let (place, fsync) = (mask_password(&url), fsync(is_durable()));
            let work = async move {
                kukuri_store_postgres::backup::restore(backup, &url, fsync, monitor).await
            };
            (place, tokio::spawn(work))
        }
        None => {
            let (data, place) = (common.data.clone(), common.data.display().to_string());
            let work = move || {
                kukuri_store_sqlite::backup::restore(&backup, &data, new_epoch(), &monitor)
                    .map(|()| Vec::new())
            };
            (place, tokio::task::spawn_blocking(work))
        }
    };
    let left_out = restored.await.context("restoring panicked")?;
    let left_out = left_out.with_context(|| format!("cannot restore to {place}"))?;
    Ok(Restored { place, left_out })
}

/// Where consumers of the feed keep what they make of it: beside the events.
pub fn consumer_place(common: &Common) -> kukuri_feed::Place {
    use kukuri_feed::{Place, Sync};
    match &common.database {
        Some(url) => Place::Database { url: url.clone() },
        None => Place::Directory {
            directory: common.data.clone(),
            sync: if is_durable() { Sync::Full } else { Sync::OffForTests },
        },
    }
}

/// Whether what is acknowledged has to survive a loss of power.
fn is_durable() -> bool {
    std::env::var_os(UNSAFE_FOR_TESTS).is_none()
}

fn fsync(durable: bool) -> Fsync {
    if durable { Fsync::Required } else { Fsync::AnyForTests }
}

fn cannot_open_database(place: &str) -> String {
    format!("cannot open the database {place}: check --database")
}

/// Opens the store, and makes it if it is not there.
pub async fn open(common: &Common) -> anyhow::Result<Opened> {
    let durable = is_durable();
    if !durable {
        eprintln!("warning: {UNSAFE_FOR_TESTS} is set: what is acknowledged may be lost");
    }
    let (store, place, lead_commands) = match &common.database {
        Some(url) => {
            let store = open_postgres(url, durable, common.wakeup).await?;
            (store, mask_password(url), POSTGRES_LEAD_COMMANDS)
        }
        None => {
            let place = common.data.join(kukuri_store_sqlite::FILE).display().to_string();
            (open_sqlite(&common.data, durable).await?, place, SQLITE_LEAD_COMMANDS)
        }
    };
    let store = match common.wrap {
        Some(wrap) => wrap(store),
        None => store,
    };
    let (clock, disk) = (clock(common.now), disk(common));
    let opened = Opened { store, clock, place, disk, lead_commands };
    if is_new(&*opened.store).await? {
        carry_global(&opened).await?;
    }
    Ok(opened)
}

/// The disk of a server is looked at where the operator says; nothing else tells whether it is this machine's.
fn disk(common: &Common) -> Option<Disk> {
    let directory = match &common.database {
        Some(_) => common.database_directory.as_deref(),
        None => Some(common.data.as_path()),
    };
    directory.map(Disk::of)
}

async fn open_sqlite(directory: &Path, durable: bool) -> anyhow::Result<Arc<dyn Store>> {
    let options = kukuri_store_sqlite::Options {
        sync: if durable { Sync::Full } else { Sync::OffForTests },
        ..kukuri_store_sqlite::Options::standard(new_epoch())
    };
    let owned = directory.to_owned();
    let open = move || SqliteStore::open(&owned, options);
    let store = tokio::task::spawn_blocking(open).await.context("opening the store panicked")?;
    let store = store.with_context(|| {
        format!("cannot open the data directory {}: check --data", directory.display())
    })?;
    Ok(Arc::new(store))
}

async fn open_postgres(url: &str, durable: bool, wakeup: Wakeup) -> anyhow::Result<Arc<dyn Store>> {
    let fsync = fsync(durable);
    let options = kukuri_store_postgres::Options {
        fsync,
        wakeup,
        ..kukuri_store_postgres::Options::STANDARD
    };
    let store = PostgresStore::open(url, options).await;
    let store = store.with_context(|| cannot_open_database(&mask_password(url)))?;
    for warning in store.warnings() {
        eprintln!("warning: {}: {warning}", mask_password(url));
    }
    Ok(Arc::new(store))
}

/// A store is new while it has no topic and nothing ever happened in it. The state says so, and not
/// the file: whoever makes a store may be killed before the first topic is in it.
async fn is_new(store: &dyn Store) -> anyhow::Result<bool> {
    let bounds = store.bounds().await.context("cannot read the feed's bounds")?;
    if bounds.head > Seq::ZERO {
        return Ok(false);
    }
    Ok(store.topics().await.context("cannot read the topics")?.is_empty())
}

/// A new store carries the topic that every node has in common.
async fn carry_global(opened: &Opened) -> anyhow::Result<()> {
    let act = Act::carry(TopicId::global(), "global");
    let lane = opened.lane();
    let set = lane.run(act).await;
    let _outcome = set.with_context(|| format!("cannot set up {}", opened.place))?;
    lane.drain(DRAIN_WAIT_MAX).await?;
    eprintln!("new store at {}, carrying kukuri:global", opened.place);
    Ok(())
}

/// The URL as it may be shown: without the password.
pub(crate) fn mask_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(no URL)".to_owned() };
    let (authority, path) = match rest.find(['/', '?']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    // Options after the question mark may hold a password, too.
    let path = path.split('?').next().unwrap_or_default();
    let shown = match authority.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => authority.to_owned(),
    };
    format!("{scheme}://{shown}{path}")
}

#[cfg(test)]
mod tests {
    use super::mask_password;

    #[test]
    fn passwords_are_not_shown() {
        let cases = [
            ("postgres://u:secret@host:5432/db", "postgres://u@host:5432/db"),
            ("postgres://u:se:cr@et@host/db?password=x", "postgres://u@host/db"),
            ("postgres://host/db", "postgres://host/db"),
            ("postgres:///db?user=u&password=secret", "postgres:///db"),
            ("postgres://u:secret@host?password=secret", "postgres://u@host"),
            ("postgresql://u@host", "postgresql://u@host"),
            ("secret", "(no URL)"),
        ];
        for (url, shown) in cases {
            assert_eq!(mask_password(url), shown);
        }
    }
}
