//! A disk whose power can be cut, and the store on it.

use std::fs;
use std::process::Command;

use kukuri_testkit::mount::{PowerCut, Restored, Unmountable};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};

use crate::checker::{Finding, History};
use crate::freeze::Frozen;
use crate::rig::Place;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 128 * MIB;
const DISK_BYTES_POSTGRES: u64 = 320 * MIB;

/// A store moves its log into the file when it has grown to 32 MiB.
const LONG_BYTES: usize = 28 << 20;

/// Whether commits wait for the disk. They do not in the negative control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    Synced,
    Unsynced,
}

/// A store on a disk whose power can be cut.
pub enum Machine {
    Sqlite { disk: PowerCut },
    Postgres { server: Box<Server>, disk: PowerCut },
}

pub struct Server {
    cluster: Cluster,
    database: String,
    settings: Settings,
}

impl Machine {
    pub fn sqlite(_: Commits) -> Result<Machine, Unmountable> {
        Ok(Machine::Sqlite { disk: PowerCut::mount(DISK_BYTES)? })
    }

    pub fn postgres(commits: Commits) -> Result<Machine, Unmountable> {
        let disk = PowerCut::mount(DISK_BYTES_POSTGRES)?;
        let mut settings = Settings::new(Durability::Durable);
        settings.home = Some(disk.path().to_owned());
        settings.options.push(("max_wal_size".into(), "64MB".into()));
        // Others may not care when their commits are synced; the node does, and says so itself.
        settings.options.push(("synchronous_commit".into(), "off".into()));
        if commits == Commits::Unsynced {
            settings.options.push(("fsync".into(), "off".into()));
        }
        let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
        let url = cluster.create_database();
        // The test's cluster is made without syncs; that of a user has been there for long.
        let synced = Command::new("sync").arg("--file-system").arg(disk.path()).status();
        assert!(synced.is_ok_and(|status| status.success()), "the disk can be synced");
        let database = url.rsplit('/').next().expect("an address has a database").to_owned();
        let server = Box::new(Server { cluster, database, settings });
        Ok(Machine::Postgres { server, disk })
    }

    pub fn place(&self) -> Place {
        match self {
            Self::Sqlite { disk } => Place::Sqlite(disk.path().join("data")),
            Self::Postgres { server, .. } => Place::Postgres(server.cluster.url(&server.database)),
        }
    }

    /// The size of the embedded store's file, without its log.
    pub fn file_bytes(&self) -> u64 {
        match self.place() {
            Place::Sqlite(directory) => {
                fs::metadata(directory.join(kukuri_store_sqlite::FILE)).map_or(0, |data| data.len())
            }
            Place::Postgres(_) => 0,
        }
    }

    /// What has to be written before the first cut, so that the log is moved into the file during
    /// the cuts that follow.
    pub fn long_bytes(&self) -> usize {
        match self {
            Self::Sqlite { .. } => LONG_BYTES,
            Self::Postgres { .. } => 0,
        }
    }

    /// The disk as a cut would leave it now. The import stands still already.
    pub fn cut(&self) -> Restored {
        let image = match self {
            Self::Sqlite { disk } => disk.cut(),
            Self::Postgres { server, disk } => {
                let _frozen = Frozen::server(&server.cluster.data_dir());
                disk.cut()
            }
        };
        let image = image.expect("there is memory for an image");
        image.mount().expect("a journalling file system survives a cut")
    }

    /// Opens the store on a restored disk and checks it.
    pub async fn check(
        &self,
        restored: &Restored,
        history: &History<'_>,
        commits: Commits,
    ) -> Vec<Finding> {
        let server = match self {
            Self::Sqlite { .. } => {
                return check(&Place::Sqlite(restored.path().join("data")), history, commits).await;
            }
            Self::Postgres { server, .. } => server,
        };
        let home = Some(restored.path().to_owned());
        let settings = Settings { home, ..server.settings.clone() };
        // It names a process that a reboot would have ended.
        let _ = fs::remove_file(restored.path().join("data/postmaster.pid"));
        match Cluster::start_with(&settings) {
            Ok(cluster) => {
                check(&Place::Postgres(cluster.url(&server.database)), history, commits).await
            }
            Err(error) => vec![Finding::Unreadable(format!("{error:#}"))],
        }
    }
}

/// A server without syncs is one that `doctor` does not open.
async fn check(place: &Place, history: &History<'_>, commits: Commits) -> Vec<Finding> {
    let mut findings = place.check(history).await;
    if commits == Commits::Synced {
        findings.extend(place.doctor());
    }
    findings
}
