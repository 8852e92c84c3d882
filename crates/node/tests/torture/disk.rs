//! A full disk: a clear error, or patience until there is room again; nothing acknowledged is lost,
//! and what is stored can be read all the time.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kukuri_testkit::condition::wait_for;
use kukuri_testkit::mount::{Tmpfs, Unmountable, fill};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::scratch::Scratch;

use crate::checker::History;
use crate::import::{Import, Plan, SILENCE_MAX};
use crate::load::Load;
use crate::rig::{self, Place, require_none};

const MIB: u64 = 1 << 20;
/// Room for what is stored in the end, and for the log that it goes through.
const DISK_BYTES: u64 = 64 * MIB;
const DISK_BYTES_POSTGRES: u64 = 192 * MIB;
/// What the ballast leaves free: less than the load needs.
const FREE_BYTES: u64 = 4 * MIB;

const LINES: usize = 8_000;
const PATIENCE_SECONDS: u32 = 300;

/// A store on a disk of its own, which is nearly full.
struct Site {
    place: Place,
    ballast: PathBuf,
    load: Arc<Load>,
    /// Stopped before its disk goes.
    _cluster: Option<Cluster>,
    /// Holds the server's log of changes: a server that cannot write that ends.
    _log: Option<Scratch>,
    _disk: Tmpfs,
}

impl Site {
    async fn sqlite(test: &str) -> Result<Site, Unmountable> {
        let disk = Tmpfs::mount(DISK_BYTES)?;
        let place = Place::Sqlite(disk.path().join("data"));
        Ok(Site::prepare(test, disk, place, None, None).await)
    }

    async fn postgres(test: &str) -> Result<Site, Unmountable> {
        let disk = Tmpfs::mount(DISK_BYTES_POSTGRES)?;
        let mut settings = Settings::new(Durability::Durable);
        settings.home = Some(disk.path().to_owned());
        let mut cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
        let place = Place::Postgres(cluster.create_database());
        cluster.stop_fast().expect("the server stops");
        let log = Scratch::new()?;
        move_away(&cluster.data_dir().join("pg_wal"), log.path());
        cluster.start_again().expect("the server finds its log");
        Ok(Site::prepare(test, disk, place, Some(cluster), Some(log)).await)
    }

    async fn prepare(
        test: &str,
        disk: Tmpfs,
        place: Place,
        cluster: Option<Cluster>,
        log: Option<Scratch>,
    ) -> Site {
        let load = Arc::new(Load::new(rig::seed(test), LINES));
        let store = place.open().await.expect("a new store opens");
        load.carry(&*store).await.expect("a new store takes topics");
        drop(store);
        let ballast = disk.path().join("ballast");
        fill(&ballast, FREE_BYTES).expect("a disk can be filled");
        Site { place, ballast, load, _cluster: cluster, _log: log, _disk: disk }
    }

    fn make_room(&self) {
        for file in [&self.ballast, &self.filler()] {
            fs::remove_file(file).expect("the ballast can be dropped");
        }
    }

    /// What takes the last bytes.
    fn filler(&self) -> PathBuf {
        self.ballast.with_extension("filler")
    }

    /// `export` and `feed` say what is stored, also when not one byte is free, as long as another
    /// process has the store open: the first one needs 32 KiB for the index of SQLite's log.
    fn read(&self) {
        fill(&self.filler(), 0).expect("a disk can be filled");
        for command in ["export", "feed"] {
            let output = self.place.run(&[command]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command} on a full disk: {errors}");
            assert!(!output.stdout.is_empty(), "{command} says nothing on a full disk");
        }
    }
}

/// Moves a directory to another file system and leaves a link in its place.
fn move_away(directory: &Path, to: &Path) {
    let moved = Command::new("mv").arg(directory).arg(to).status();
    assert!(moved.is_ok_and(|status| status.success()), "root can move the log");
    let name = directory.file_name().expect("the log has a name");
    symlink(to.join(name), directory).expect("the log's place is free");
}

async fn give_up(test: &str, site: Result<Site, Unmountable>) {
    let site = match site {
        Ok(site) => site,
        Err(error) => return error.skip(test),
    };
    let mut history = History::new(&site.load);
    let beside = site.place.open().await.expect("the store opens");
    let mut import = Import::start(&site.place, Plan::new(&site.load));
    let status = import.finish();
    import.tell(&mut history);
    let errors = import.stderr();
    println!("{test}: {} acknowledged, then\n{errors}", history.accepted());
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("storage is full"), "{errors}");
    assert!(history.unanswered() > 0, "the disk was not full");
    site.read();
    drop(beside);
    site.make_room();
    require_none(test, &site.place.check(&history).await);
    require_none(test, &site.place.doctor());
    finish(test, &site, &mut history, Import::start(&site.place, Plan::new(&site.load))).await;
}

async fn wait(test: &str, site: Result<Site, Unmountable>) {
    let site = match site {
        Ok(site) => site,
        Err(error) => return error.skip(test),
    };
    let mut history = History::new(&site.load);
    let patient = Plan { patience_seconds: PATIENCE_SECONDS, ..Plan::new(&site.load) };
    let import = Import::start(&site.place, patient);
    wait_for("a full disk", SILENCE_MAX, || import.stderr().contains("waiting").then_some(()))
        .expect("an import with patience says that it waits");
    assert!(import.stderr().contains("storage is full"), "{}", import.stderr());
    site.read();
    site.make_room();
    finish(test, &site, &mut history, import).await;
}

/// The import comes to its end now, and everything is there.
async fn finish(test: &str, site: &Site, history: &mut History<'_>, mut import: Import) {
    let code = import.finish().code();
    import.tell(history);
    assert!(matches!(code, Some(0 | 3)), "{test}: {code:?}: {}", import.stderr());
    assert_eq!(history.unanswered(), 0, "an import that ended well has answered every line");
    require_none(test, &site.place.check(history).await);
    require_none(test, &site.place.doctor());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_sqlite_ends_an_import() {
    let test = "disk::full_sqlite_ends_an_import";
    give_up(test, Site::sqlite(test).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_sqlite_is_waited_for() {
    let test = "disk::full_sqlite_is_waited_for";
    wait(test, Site::sqlite(test).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_postgres_ends_an_import() {
    let test = "disk::full_postgres_ends_an_import";
    give_up(test, Site::postgres(test).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_postgres_is_waited_for() {
    let test = "disk::full_postgres_is_waited_for";
    wait(test, Site::postgres(test).await).await;
}
