//! A disk with less room than the node keeps in reserve: nothing is taken in, while reading, deleting and
//! purging go on; and when there is room again, events are taken in again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kukuri_core::{IngestPolicy, Source};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::{Disk, UpkeepSettings};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::mount::{Tmpfs, Unmountable, fill};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::spec::Event;

use crate::home::Home;
use crate::rig::{Node, SETTINGS, START, Time, doctor, topic};

const MIB: u64 = 1 << 20;
const RESERVE_BYTES: u64 = 96 * MIB;
/// Less than the reserve, and enough for what deleting and purging write.
const FREE_BYTES: u64 = 80 * MIB;
/// Less than a quarter of the reserve, and enough for what purging writes.
const LAST_BYTES: u64 = 20 * MIB;
/// With room to spare for a server and its log.
const DISK_BYTES: u64 = 400 * MIB;
const NOTES: usize = 200;

fn note(digit: char, nth: usize) -> String {
    let draft = Draft::new(1, START).tag("t", topic(digit)).tag("nth", nth);
    Author::numbered(1).sign(&draft.content("x".repeat(4096)))
}

fn request(target: &str) -> String {
    let id = Event::read(target).id;
    let draft = Draft::new(5, UnixSeconds(START.0 + 1)).tag("t", topic('a')).tag("e", id);
    Author::numbered(1).sign(&draft)
}

async fn upkeep(node: &mut Node) {
    node.time.pass(Duration::from_secs(5));
    node.keep().await;
}

async fn reserve(home: Home, disk: &Path) {
    let time = Time::start();
    let settings = UpkeepSettings { disk_reserve_bytes: RESERVE_BYTES, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, Some(Disk::of(disk)));
    for digit in ['a', 'b'] {
        node.set_topic(digit, IngestPolicy::default()).await;
    }
    let notes = |digit| (0..NOTES).map(move |nth| (note(digit, nth), Source::Ws));
    let arrivals: Vec<_> = notes('a').chain(notes('b')).collect();
    upkeep(&mut node).await;
    assert!(node.publish(&arrivals).await.iter().all(String::is_empty), "there is room");

    let ballast = disk.join("ballast");
    fill(&ballast, FREE_BYTES).expect("the disk can be filled");
    upkeep(&mut node).await;
    let (new, known) = (note('a', NOTES), note('a', 0));
    for door in [Source::Ws, Source::Gossip, Source::Backfill, Source::Import] {
        let said = node.publish(&[(new.clone(), door)]).await;
        assert_eq!(said, ["error: storage full"], "{door:?}");
    }
    assert_eq!(node.say(&known).await, "duplicate: already have this event");
    assert_eq!(node.visible('a').await.len(), NOTES, "it can be read");
    assert_eq!(node.say(&request(&known)).await, "", "deleting goes on");
    assert_eq!(node.visible('a').await.len(), NOTES, "a note less, a request more");
    assert_eq!(node.purge('b').await.events, NOTES as u64, "purging goes on");
    upkeep(&mut node).await;
    assert!(node.visible('b').await.is_empty());
    assert_eq!(doctor(&*node.store).await, [] as [&str; 0]);
    assert_eq!(node.say(&new).await, "error: storage full", "the ballast is still there");

    // Deletions are events: they do not take the last of the reserve.
    let more = disk.join("more");
    fill(&more, LAST_BYTES).expect("the disk can be filled");
    upkeep(&mut node).await;
    let (target, late) = (note('a', 1), request(&note('a', 1)));
    assert_eq!(node.say(&late).await, "error: storage full");
    assert!(node.visible('a').await.contains(&Event::read(&target).id));
    assert_eq!(node.purge('a').await.events, NOTES as u64 + 1, "purging goes on");
    fs::remove_file(&more).expect("the ballast can be dropped");
    upkeep(&mut node).await;
    assert_eq!(node.say(&late).await, "", "deleting goes on again");
    assert_eq!(node.say(&new).await, "error: storage full");

    fs::remove_file(&ballast).expect("the ballast can be dropped");
    upkeep(&mut node).await;
    assert_eq!(node.say(&new).await, "");
    assert_eq!(node.counters().await, node.recount().await);
    node.end().await;
}

fn skipped(disk: Result<Tmpfs, Unmountable>, test: &str) -> Option<Tmpfs> {
    disk.inspect_err(|error| error.skip(test)).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserve_is_left_on_sqlite() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let Some(disk) = skipped(disk, "reserve::a_reserve_is_left_on_sqlite") else { return };
    reserve(Home::sqlite_in(disk.path()), disk.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserve_is_left_on_postgres() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let Some(disk) = skipped(disk, "reserve::a_reserve_is_left_on_postgres") else { return };
    let mut settings = Settings::new(Durability::Fast);
    settings.home = Some(disk.path().to_owned());
    let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
    reserve(Home::served(cluster, None), disk.path()).await;
}
