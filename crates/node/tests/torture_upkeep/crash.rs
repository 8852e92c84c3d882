//! A process that ends between any two steps of a purge: what is stored holds together, and the next
//! process ends where the first would have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::{Capacity, Command, Decision, IngestPolicy, Source};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::{CHUNK_EVENTS_MAX, UpkeepSettings};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Entry, Store, StoreError, Tidied};
use kukuri_testkit::audit::audit;
use tokio::sync::Notify;

use crate::home::{Home, Room};
use crate::rig::{DAY, LEASE_OVER, Node, SETTINGS, Time, doctor, topic};

/// Enough for several chunks.
const OLD_NOTES: usize = 2 * CHUNK_EVENTS_MAX + 100;
const EXPIRING_NOTES: usize = 200;
const NEW_NOTES: usize = 60;
const TOPIC_EVENTS_MAX: u64 = 40;

/// So late that everything that came first is to be forgotten, too.
const NEW_DAY: u32 = 183;
const PURGE_DAY: u32 = 185;

/// A hundred events in all, so that the node has to give some up.
const CROWDED: UpkeepSettings =
    UpkeepSettings { capacity: Capacity { max_events: Some(100), max_bytes: None }, ..SETTINGS };

/// What a purge must have had, or it proves nothing.
const STEPS_MIN: usize = 12;
/// How often space is given back between two batches, beside what is given back at the end.
const BATCHES_PER_TIDY: usize = 2;
/// Crashes between two drops of partitions: each is given up, detached and dropped.
const HALF_DROPPED_MIN: usize = 6;

/// Stops before one of the steps that change something, and never goes on.
struct Halting {
    store: Arc<dyn Store>,
    steps: AtomicUsize,
    applied: AtomicUsize,
    halt_at: usize,
    halted: Arc<Notify>,
}

impl Halting {
    fn new(store: Arc<dyn Store>, halt_at: usize) -> Arc<Self> {
        let (steps, applied, halted) = Default::default();
        Arc::new(Self { store, steps, applied, halt_at, halted })
    }

    async fn step(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) == self.halt_at {
            self.halted.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Double for Halting {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.step().await;
        let decision = self.store.apply(batch).await?;
        // Space is given back while events leave, too.
        if self.applied.fetch_add(1, Ordering::SeqCst).is_multiple_of(BATCHES_PER_TIDY) {
            self.store.tidy().await?;
        }
        Ok(decision)
    }

    async fn tidy(&self) -> Result<Tidied, StoreError> {
        self.step().await;
        self.store.tidy().await
    }
}

fn notes(count: usize, topics: &str, at: UnixSeconds, expiration: Option<i64>) -> Vec<String> {
    let author = Author::numbered(1);
    let note = |nth| {
        let draft = Draft::new(1, at).tag("r", nth).content(topics);
        let draft = topics.chars().fold(draft, |draft, digit| draft.tag("t", topic(digit)));
        let end = |draft: Draft| match expiration {
            Some(seconds) => draft.tag("expiration", at.0 + seconds),
            None => draft,
        };
        author.sign(&end(draft))
    };
    (0..count).map(note).collect()
}

/// Versions, and a deletion of one of them and of somebody's note.
fn versions(at: UnixSeconds, deleted: &str) -> Vec<String> {
    let author = Author::numbered(1);
    let article = |nth: i64| {
        let draft = Draft::new(30_023, UnixSeconds(at.0 + nth)).tag("t", topic('e'));
        author.sign(&draft.tag("d", nth % 10))
    };
    let id = kukuri_testkit::spec::Event::read(deleted).id;
    let address = format!("30023:{}:3", author.pubkey());
    let request = Draft::new(5, UnixSeconds(at.0 + 60)).tag("t", topic('e'));
    let request = author.sign(&request.tag("e", id).tag("a", address));
    (0..30).map(article).chain([request]).collect()
}

/// A store in which there is something of everything to let go of, on the day that it has to be.
async fn full_store(home: &Home, time: &Time) {
    let node = Node::start(home.open().await, time);
    let publish = async |texts: Vec<String>| {
        let arrivals: Vec<_> = texts.into_iter().map(|text| (text, Source::Ws)).collect();
        for said in node.publish(&arrivals).await {
            assert_eq!(said, "");
        }
    };
    let keeps = |days| IngestPolicy { retention_days: Some(days), ..IngestPolicy::default() };
    for (digit, policy) in
        [('a', keeps(30)), ('b', keeps(3)), ('d', keeps(200)), ('e', IngestPolicy::default())]
    {
        node.set_topic(digit, policy).await;
    }
    let now = || node.time.now().seconds();
    let old = notes(OLD_NOTES, "ab", now(), None);
    publish(old.clone()).await;
    publish(notes(EXPIRING_NOTES, "d", now(), Some(24 * 60 * 60))).await;
    publish(versions(now(), &old[0])).await;
    time.pass(NEW_DAY * DAY);
    publish(notes(NEW_NOTES, "d", now(), None)).await;
    publish(notes(NEW_NOTES, "a", now(), None)).await;
    let limited = IngestPolicy { max_events: Some(TOPIC_EVENTS_MAX), ..keeps(200) };
    node.set_topic('d', limited).await;
    node.end().await;
    time.pass((PURGE_DAY - NEW_DAY) * DAY);
}

/// All that two stores have to have in common, whoever did the work and when.
async fn state(store: &dyn Store) -> BTreeSet<String> {
    let entries = dump(store).await;
    let texts = entries.iter().map(|entry| match entry {
        Entry::Row(row) => {
            let (op, reason) = (row.op.as_str(), row.reason.map(|reason| reason.as_str()));
            format!("{op} {} {} {reason:?}", row.event_id, row.topic_id)
        }
        Entry::Node(node) => format!("{:?} {:?}", node.usage, node.allowance),
        other => format!("{other:?}"),
    });
    let set: BTreeSet<String> = texts.collect();
    assert_eq!(set.len(), entries.len(), "nothing is announced twice");
    set
}

async fn is_sound(home: &Home, store: &dyn Store) {
    home.forgets_no_tag();
    let floor = store.bounds().await.expect("it can be read").floor;
    assert_eq!(audit(&dump(store).await, floor), Ok(()));
    assert_eq!(doctor(store).await, [] as [&str; 0]);
}

/// Upkeep by a process that was not there before, and what it leaves.
async fn finish(home: &Home, time: &Time) -> BTreeSet<String> {
    time.pass(LEASE_OVER);
    let mut node = Node::start_with(home.open().await, time, CROWDED, None);
    node.keep().await;
    is_sound(home, &*node.store).await;
    let state = state(&*node.store).await;
    node.end().await;
    home.disconnect();
    state
}

/// Runs a round until a step, and drops everything there; `false` if it came to its end.
async fn crash(home: &Home, time: &Time, halt_at: usize) -> bool {
    let store = Halting::new(home.open().await, halt_at);
    let halted = Arc::clone(&store.halted);
    let mut node = Node::start_with(store, time, CROWDED, None);
    let crashed = tokio::select! {
        () = halted.notified() => true,
        ended = node.keeper.round() => ended.map(|()| false).expect("the round ends well"),
    };
    drop(node);
    home.disconnect();
    crashed
}

/// A purge that gives no space back would prove nothing of how that ends, and neither would crashes beside it.
fn gave_space_back(home: &Home, before: Room, after: Room, half_dropped: usize) {
    if let Home::Postgres(..) = home {
        let (was, left) = (before.partitions, after.partitions);
        assert!(left < was, "of {was} partitions of events {left} are left");
        assert!(half_dropped >= HALF_DROPPED_MIN, "only {half_dropped} crashes between two drops");
    } else {
        let (was, is) = (before.free, after.free);
        assert!(is > was, "of the file {was} bytes were free, and {is} are");
    }
}

async fn crashes(base: Home) {
    let time = Time::start();
    full_store(&base, &time).await;
    base.disconnect();
    // Every crash happens at the same time.
    let purge_at = time.now();
    let clock = || {
        let time = Time::start();
        let passed = purge_at.0 - time.now().0;
        time.pass(Duration::from_millis(passed.unsigned_abs()));
        time
    };
    let whole = base.copy();
    let before = whole.room();
    assert!(!crash(&whole, &clock(), usize::MAX).await);
    let (expected, room) = (finish(&whole, &clock()).await, whole.room());
    let (mut steps, mut half_done, mut half_dropped) = (0, 0, 0);
    let mut partitions_max = before.partitions;
    loop {
        let home = base.copy();
        if !crash(&home, &clock(), steps).await {
            break;
        }
        // While events leave the feed goes on, so that there are ever more of them, and then ever fewer.
        let partitions = home.partitions();
        partitions_max = partitions_max.max(partitions);
        let left_some = room.partitions < partitions && partitions < partitions_max;
        half_dropped += usize::from(left_some);
        let store = home.open().await;
        is_sound(&home, &*store).await;
        half_done += usize::from(state(&*store).await != expected);
        drop(store);
        home.disconnect();
        let left = finish(&home, &clock()).await;
        let differ: Vec<&String> = left.symmetric_difference(&expected).take(5).collect();
        assert!(differ.is_empty(), "after a crash at step {steps}: {differ:#?}");
        assert_eq!(home.room().partitions, room.partitions, "after a crash at step {steps}");
        steps += 1;
    }
    println!(
        "{steps} crashes, {half_done} of them with something left to do, {half_dropped} between \
         two drops; before: {before}; after: {room}"
    );
    assert!(steps >= STEPS_MIN, "only {steps} steps");
    assert!(half_done >= STEPS_MIN, "only {half_done} crashes left something to do");
    gave_space_back(&base, before, room, half_dropped);
    let counted = expected.iter().filter(|text| text.starts_with("Record")).count();
    assert!(counted <= 100, "{counted} events are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_goes_on_after_a_crash_at_any_step_on_sqlite() {
    crashes(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_goes_on_after_a_crash_at_any_step_on_postgres() {
    crashes(Home::postgres()).await;
}
