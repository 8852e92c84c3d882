//! `kill -9` of a node while upkeep lets go of what has aged: what is stored holds together, and the next
//! node goes on until nothing but what is kept is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Act, Command, Op, Reason, Record, Seq, Shelf, UnixMillis};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::admit;
use kukuri_store::{Entry, Store};
use kukuri_testkit::audit::{audit, effective};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::generate::Dice;
use kukuri_testkit::postgres::Durability;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::door::Node;
use crate::import::SILENCE_MAX;
use crate::load::{Load, NOW};
use crate::rig::{self, Home, Place, require_none};

const LINES: usize = 9_000;
const LINES_PER_BATCH: usize = 500;
const KILLS: usize = 5;
/// The most rows of the feed that a kill waits for; all kills together leave something to do.
const ROWS_MAX: usize = 1_200;

const DAY: i64 = 24 * 60 * 60;
/// By then regular events and history have aged, and deletions have not.
const PURGE_AT: UnixSeconds = UnixSeconds(NOW.0 + 40 * DAY);
/// Longer than the lease of a node that was killed.
const LEASE_OVER_SECONDS: i64 = 60;

struct Purge {
    place: Place,
    store: Arc<dyn Store>,
    now: UnixSeconds,
}

impl Purge {
    async fn prepare(place: &Place, load: &Load) -> Purge {
        let store = place.open().await.expect("a new store opens");
        load.carry(&*store).await.expect("a new store takes topics");
        for lines in load.lines.chunks(LINES_PER_BATCH) {
            let command = |line: &crate::load::Line| Command {
                at: UnixMillis::from(NOW),
                act: Act::Publish(admit(&line.text, NOW).expect("the load is valid")),
            };
            store.apply(lines.iter().map(command).collect()).await.expect("there is room");
        }
        Purge { place: place.clone(), store, now: PURGE_AT }
    }

    fn start(&mut self) -> Node {
        self.now = self.now.saturating_add(LEASE_OVER_SECONDS);
        Node::start_at(&self.place, self.now)
    }

    fn head(&self) -> Seq {
        let bounds = block_in_place(|| Handle::current().block_on(self.store.bounds()));
        bounds.expect("it can be read").head
    }

    /// Kills a node that has let go of some. Says whether it was still at it.
    fn kill(&mut self, rows: usize) -> bool {
        let from = self.head().0;
        let mut node = self.start();
        wait_for("a purge", SILENCE_MAX, || {
            let done = usize::try_from(self.head().0 - from).unwrap_or(0);
            (done >= rows).then_some(())
        })
        .expect("the node lets go of what has aged");
        node.process.kill9().expect("the child can be collected");
        block_in_place(|| Handle::current().block_on(self.kept())).is_none()
    }

    /// What is stored, if nothing of it has aged.
    async fn kept(&self) -> Option<BTreeSet<EventId>> {
        let mut kept = BTreeSet::new();
        for record in records(&dump(&*self.store).await) {
            if !self.is_kept(record) {
                return None;
            }
            kept.insert(record.event().id());
        }
        Some(kept)
    }

    fn is_kept(&self, record: &Record) -> bool {
        let expired = record.expires_at().is_some_and(|end| end <= self.now);
        match Shelf::of(record) {
            Shelf::Current => !expired,
            Shelf::Deletion => true,
            Shelf::Regular | Shelf::History => false,
        }
    }

    async fn check(&self, test: &str) {
        self.place.wait_for_the_dead().await;
        let floor = self.store.bounds().await.expect("it can be read").floor;
        assert_eq!(audit(&dump(&*self.store).await, floor), Ok(()));
        require_none(test, &self.place.doctor());
    }
}

fn records(entries: &[Entry]) -> impl Iterator<Item = &Record> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Record(record) => Some(record),
        _ => None,
    })
}

/// How many links left, each announced by a row.
fn announced(entries: &[Entry]) -> usize {
    let left = entries.iter().filter(|entry| {
        matches!(entry, Entry::Row(row) if row.op == Op::Delete
            && matches!(row.reason, Some(Reason::Retention | Reason::Expiration))
            && row.ingested_at >= PURGE_AT.into())
    });
    left.count()
}

async fn kill(test: &str, home: Home) {
    let seed = rig::seed(test);
    let mut dice: Dice = seed.part(1).dice();
    let mut purge = Purge::prepare(&home.place, &Load::new(seed, LINES)).await;
    let before = dump(&*purge.store).await;
    let expected: BTreeSet<EventId> = records(&before)
        .filter(|record| purge.is_kept(record))
        .map(|record| record.event().id())
        .collect();
    let mut working = 0;
    for _ in 0..KILLS {
        let rows = 1 + dice.below(ROWS_MAX);
        working += usize::from(purge.kill(rows));
        purge.check(test).await;
    }
    println!("{test}, seed {seed}: {working} of {KILLS} kills hit a purge at work");
    assert!(working > 0, "no kill hit a purge at work");
    let node = purge.start();
    wait_for("the end of the purge", SILENCE_MAX, || {
        block_in_place(|| Handle::current().block_on(purge.kept()))
    })
    .expect("the next node finishes");
    node.end();
    assert_eq!(purge.kept().await, Some(expected));
    let after = dump(&*purge.store).await;
    let links = |entries: &[Entry]| effective(entries).values().map(BTreeSet::len).sum::<usize>();
    assert_eq!(announced(&after), links(&before) - links(&after), "each that left, once");
    purge.check(test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_a_purge_on_sqlite() {
    kill("purge::kill_a_purge_on_sqlite", Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_a_purge_on_postgres() {
    kill("purge::kill_a_purge_on_postgres", Home::postgres(Durability::Durable)).await;
}
