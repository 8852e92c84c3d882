//! A disk with less room than the node keeps in reserve: nothing is taken in, while reading, deleting and
//! purging go on; and when there is room again, events are taken in again. Before it comes to that the ladder is
//! climbed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::ladder::{Reason, Step};
use kukuri_core::{IngestPolicy, Source, Storage};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::{Disk, UpkeepSettings};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Space, Store, StoreError, node_state};
use kukuri_testkit::mount::{Tmpfs, Unmountable, fill};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::spec::Event;

use crate::home::Home;
use crate::ladder::last_move;
use crate::rig::{Node, SETTINGS, START, Time, doctor, seed, topic};

const MIB: u64 = 1 << 20;
const RESERVE_BYTES: u64 = 96 * MIB;
/// Less than the reserve, and enough for what deleting and purging write.
const FREE_BYTES: u64 = 80 * MIB;
/// Less than a quarter of the reserve, and enough for what purging writes.
const LAST_BYTES: u64 = 20 * MIB;
/// With room to spare for a server and its log.
const DISK_BYTES: u64 = 400 * MIB;
const NOTES: usize = 200;

/// For who climbs before it comes to the reserve, which begins at twice as much.
const SMALL_RESERVE_BYTES: u64 = 32 * MIB;
/// Between the two, with room for what is written meanwhile.
const SCARCE_BYTES: u64 = 60 * MIB;
/// So many that there would be enough room again, by the margin, if all of them left.
const MANY_NOTES: usize = 5_000;
const FEW_NOTES: usize = 10;
const NOTES_AT_ONCE: usize = 500;
const MINUTE: Duration = Duration::from_secs(60);
/// Where the ladder ends if enough room comes back when events leave.
const TOP: Step = Step::EvictOldest;
/// Where it ends if that would not be enough: others fill the disk.
const TOP_BEYOND_HELP: Step = Step::StopLowPriority;

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

/// Where the ladder is found in so many minutes.
async fn steps(node: &mut Node, minutes: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..minutes {
        node.keep().await;
        node.time.pass(MINUTE);
        let state = node_state(&*node.store).await.expect("the node can be read");
        assert_eq!(state.allowance.storage, Storage::Open, "the reserve is not touched");
        steps.push(state.allowance.step);
    }
    steps
}

/// Notes of which nothing can be made smaller.
async fn hold_notes(node: &Node, count: usize, test: &str) {
    node.set_topic('a', IngestPolicy::default()).await;
    let mut dice = seed(test).dice();
    let mut note = |nth| {
        let content: String = (0..64).map(|_| hex::encode(dice.bytes())).collect();
        let draft = Draft::new(1, START).tag("t", topic('a')).tag("nth", nth).content(content);
        (Author::numbered(1).sign(&draft), Source::Ws)
    };
    let arrivals: Vec<_> = (0..count).map(&mut note).collect();
    for some in arrivals.chunks(NOTES_AT_ONCE) {
        assert!(node.publish(some).await.iter().all(String::is_empty), "there is room");
    }
}

async fn scarcity(home: Home, disk: &Path, test: &str, notes: usize, top: Step) {
    let time = Time::start();
    let settings = UpkeepSettings { disk_reserve_bytes: SMALL_RESERVE_BYTES, ..SETTINGS };
    let mut node = Node::start_with(home.open().await, &time, settings, Some(Disk::of(disk)));
    hold_notes(&node, notes, test).await;
    assert_eq!(steps(&mut node, 3).await, [Step::None; 3]);

    home.settle();
    let ballast = disk.join("ballast");
    fill(&ballast, SCARCE_BYTES).expect("the disk can be filled");
    let climbed = [Step::None, Step::StopBackfill, Step::StopLowPriority, top, top, top];
    assert_eq!(steps(&mut node, climbed.len()).await, climbed);
    let cause = match last_move(&node).await.1.map(|moved| moved.reason) {
        Some(Reason::Pressure(cause)) => cause.name(),
        reason => panic!("{reason:?}"),
    };
    assert_eq!(cause, "disk");
    let left = notes - node.visible('a').await.len();
    assert_eq!(left > 0, top == Step::EvictOldest, "{left} notes left");

    fs::remove_file(&ballast).expect("the ballast can be dropped");
    // Five minutes for each step, of which there are at most three.
    let descended = steps(&mut node, 3 * 5 + 1).await;
    assert!(descended.is_sorted_by(|one, next| one >= next), "{descended:?}");
    let (first, last) = (descended.first().copied(), descended.last().copied());
    assert_eq!((first, last), (Some(top), Some(Step::None)), "{descended:?}");
    assert_eq!(doctor(&*node.store).await, [] as [&str; 0]);
    node.end().await;
}

/// A store that cannot say how much space there is to give back.
struct Speechless(Arc<dyn Store>);

#[async_trait]
impl Double for Speechless {
    fn behind(&self) -> &dyn Store {
        &*self.0
    }

    async fn space(&self) -> Result<Space, StoreError> {
        Err(StoreError::Unavailable("somebody writes the tables anew".into()))
    }
}

/// That a disk is full is said whatever else is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_by_who_knows_no_sizes() {
    let (time, store) = (Time::start(), Speechless(Home::model().open().await));
    // No disk has so much room.
    let settings = UpkeepSettings { disk_reserve_bytes: u64::MAX / 2, ..SETTINGS };
    let disk = Disk::of(Path::new("/"));
    let mut node = Node::start_with(Arc::new(store), &time, settings, Some(disk));
    node.set_topic('a', IngestPolicy::default()).await;
    node.keep().await;
    assert_eq!(node.say(&note('a', 0)).await, "error: storage full");
    node.end().await;
}

/// A disk that nobody sees may be as short as it was: the ladder stays where it is.
#[tokio::test(flavor = "multi_thread")]
async fn the_ladder_stays_while_its_disk_is_out_of_sight() {
    let (time, store) = (Time::start(), Home::model().open().await);
    let settings = UpkeepSettings { disk_reserve_bytes: u64::MAX / 2, ..SETTINGS };
    for directory in ["/", "/no/such"] {
        let disk = Disk::of(Path::new(directory));
        let mut node = Node::start_with(Arc::clone(&store), &time, settings, Some(disk));
        let mut step = Step::None;
        for _ in 0..12 {
            node.keep().await;
            time.pass(MINUTE);
            step = last_move(&node).await.0;
        }
        assert_eq!(step, Step::StopLowPriority, "{directory}");
        node.end().await;
    }
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

/// A server whose tables lie there.
fn served_from(disk: &Tmpfs) -> Home {
    let mut settings = Settings::new(Durability::Fast);
    settings.home = Some(disk.path().to_owned());
    let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
    Home::served(cluster, None)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserve_is_left_on_postgres() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let Some(disk) = skipped(disk, "reserve::a_reserve_is_left_on_postgres") else { return };
    reserve(served_from(&disk), disk.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scarce_disk_moves_the_ladder_on_sqlite() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let test = "reserve::a_scarce_disk_moves_the_ladder_on_sqlite";
    let Some(disk) = skipped(disk, test) else { return };
    scarcity(Home::sqlite_in(disk.path()), disk.path(), test, MANY_NOTES, TOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_a_disk_that_others_fill_on_sqlite() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let test = "reserve::nothing_leaves_a_disk_that_others_fill_on_sqlite";
    let Some(disk) = skipped(disk, test) else { return };
    scarcity(Home::sqlite_in(disk.path()), disk.path(), test, FEW_NOTES, TOP_BEYOND_HELP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scarce_disk_moves_the_ladder_on_postgres() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let test = "reserve::a_scarce_disk_moves_the_ladder_on_postgres";
    let Some(disk) = skipped(disk, test) else { return };
    scarcity(served_from(&disk), disk.path(), test, MANY_NOTES, TOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_a_disk_that_others_fill_on_postgres() {
    let disk = Tmpfs::mount(DISK_BYTES);
    let test = "reserve::nothing_leaves_a_disk_that_others_fill_on_postgres";
    let Some(disk) = skipped(disk, test) else { return };
    scarcity(served_from(&disk), disk.path(), test, FEW_NOTES, TOP_BEYOND_HELP).await;
}
