//! The promises of docs/guarantees.md about the feed, each by its name. G4 is in `power`, G10 in
//! `independent`.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Cursor, CursorError, Epoch, FeedRow, Op, Seq};
use kukuri_event::{EventId, Filter};
use kukuri_feed::{FeedError, POLL_INTERVAL, Tail};
use kukuri_store::{Query, Store};
use kukuri_testkit::audit::Fold;
use kukuri_testkit::postgres::Durability;

use crate::checker::{Dump, History};
use crate::import::{Import, Plan};
use crate::load::{Load, NOW};
use crate::rig::{self, Home, require_none};

const LINES: usize = 6_000;
const LOOKS: usize = 8;
/// Answers between two looks, and how far the import may be ahead of them: it must not be done
/// before the last look.
const ANSWERS: usize = 150;
const WINDOW: usize = 600;
/// How often a later look must have found more than the one before.
const GROWN_MIN: usize = 3;

/// An import that is under way, and the store that it writes to.
struct Scene {
    store: Arc<dyn Store>,
    load: Arc<Load>,
    import: Import,
    home: Home,
}

impl Scene {
    async fn start(test: &str, home: Home) -> Scene {
        let load = Arc::new(Load::new(rig::seed(test), LINES));
        let store = home.place.open().await.expect("a new store opens");
        load.carry(&*store).await.expect("a new store takes topics");
        let plan = Plan { window: WINDOW, ..Plan::new(&load) };
        let import = Import::start(&home.place, plan);
        Scene { store, load, import, home }
    }

    fn work_on(&mut self) {
        assert!(self.import.wait_for_answers(ANSWERS), "it ended: {}", self.import.stderr());
    }

    /// Kills the import and checks all that is known.
    async fn kill(&mut self, test: &str) {
        self.kill_import().await;
        let mut history = History::new(&self.load);
        self.import.tell(&mut history);
        require_none(test, &history.check(&*self.store).await);
    }

    async fn kill_import(&mut self) {
        self.import.kill();
        self.home.place.wait_for_the_dead().await;
    }

    async fn feed_up_to(&self, head: Seq) -> Vec<FeedRow> {
        let start = self.store.bounds().await.expect("the store answers").start();
        let rows_max = usize::try_from(head.0).expect("rows are counted from zero");
        self.store.feed(start, rows_max).await.expect("the feed is whole")
    }
}

/// What a query finds at a row is what the feed up to that row says, while the import goes on; and
/// after its death every stored event has its upsert, and every upsert its event.
async fn g1_atomic(test: &str, home: Home) {
    let mut scene = Scene::start(test, home).await;
    for _ in 0..LOOKS {
        scene.work_on();
        let filters = vec![Filter::default()];
        let all = Query {
            filters,
            after: None,
            now: NOW,
            limit_max: 1_000_000,
            rows_max: 10_000_000,
            bodies_max: 0,
        };
        let found = scene.store.query(all).await.expect("the store answers");
        let hits: BTreeSet<EventId> = found.hits.iter().map(|hit| hit.id).collect();
        let rows = scene.feed_up_to(found.head).await;
        let fold = Fold::of(&rows).expect("each row follows the one before");
        let told: BTreeSet<EventId> = fold.links.into_keys().collect();
        assert_eq!(hits, told, "at row {}", found.head);
    }
    scene.kill(test).await;
    let dump = Dump::read(&*scene.store).await.expect("the store can be read");
    let stored: BTreeSet<EventId> = dump.records().map(|record| record.event().id()).collect();
    let upserts = dump.rows().filter(|row| row.op == Op::Upsert);
    assert_eq!(upserts.map(|row| row.event_id).collect::<BTreeSet<_>>(), stored);
}

/// The numbers are floor + 1 to head at every moment, and after every death.
async fn g2_gapless(test: &str, home: Home) {
    let mut scene = Scene::start(test, home).await;
    for _ in 0..LOOKS {
        scene.work_on();
        scene.kill_import().await;
        let dump = Dump::read(&*scene.store).await.expect("the store can be read");
        let numbers: Vec<i64> = dump.rows().map(|row| row.seq.0).collect();
        assert_eq!(numbers, (dump.bounds.floor.0 + 1..=dump.bounds.head.0).collect::<Vec<_>>());
        let from = scene.import.answered();
        let plan = Plan { from, window: WINDOW, ..Plan::new(&scene.load) };
        scene.import = Import::start(&scene.home.place, plan);
    }
}

/// Whoever reads again finds what was there, unchanged, and new rows only behind it.
async fn g3_prefix(test: &str, home: Home) {
    let mut scene = Scene::start(test, home).await;
    let (mut seen, mut grown) = (Vec::<FeedRow>::new(), 0);
    for _ in 0..LOOKS {
        scene.work_on();
        let head = scene.store.bounds().await.expect("the store answers").head;
        let rows = scene.feed_up_to(head).await;
        assert!(rows.iter().map(|row| row.seq.0).eq(1..=head.0), "all rows up to {head}");
        assert!(rows.starts_with(&seen), "a row changed after it was seen");
        grown += usize::from(rows.len() > seen.len());
        seen = rows;
    }
    assert!(grown >= GROWN_MIN, "the feed grew only {grown} times between two looks");
    scene.kill(test).await;
    let rows = scene.feed_up_to(seen.last().expect("rows were seen").seq).await;
    assert!(rows == seen, "a row changed when its writer died");
}

/// A cut-off feed, another life of it, a place beyond its head and a missing row have names.
async fn g8_loud(test: &str, home: Home) {
    let mut scene = Scene::start(test, home).await;
    scene.work_on();
    scene.kill(test).await;
    let bounds = scene.store.bounds().await.expect("the store answers");
    let head = bounds.head;
    let at = |seq| Cursor { epoch: bounds.epoch, seq };
    let elsewhere = Cursor { epoch: Epoch(bounds.epoch.0 + 1), seq: head };
    let beyond = at(head.next());
    let diverged = FeedError::Cursor(CursorError::Diverged { head });
    assert_eq!(read(&scene.store, elsewhere).await, Err(diverged.clone()));
    assert_eq!(read(&scene.store, beyond).await, Err(diverged));
    assert_eq!(read(&scene.store, at(head)).await, Ok(0));

    let hole = Seq(head.0 / 2);
    scene.home.sql(&format!("DELETE FROM events_outbox WHERE seq = {hole}"));
    let after = Seq(hole.0 - 1);
    for seq in [Seq::ZERO, Seq(after.0 - 1), after] {
        assert_eq!(read(&scene.store, at(seq)).await, Err(FeedError::Hole { after }));
    }
    assert!(!scene.home.place.doctor().is_empty(), "doctor finds the hole");
    let output = scene.home.place.run(&["feed"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("hole"));

    // As retention does: the rows go, and the floor says so.
    scene.home.sql(&format!("DELETE FROM events_outbox WHERE seq <= {hole}"));
    scene.home.sql(&format!("UPDATE feed_meta SET floor_seq = {hole}"));
    let truncated = FeedError::Cursor(CursorError::Truncated { floor: hole });
    for seq in [Seq::ZERO, after] {
        assert_eq!(read(&scene.store, at(seq)).await, Err(truncated.clone()));
    }
    let rest = usize::try_from(head.0 - hole.0).expect("rows are counted from zero");
    assert_eq!(read(&scene.store, at(hole)).await, Ok(rest));
}

/// How many rows a reader gets from a place to the end.
async fn read(store: &Arc<dyn Store>, after: Cursor) -> Result<usize, FeedError> {
    let mut tail = Tail::new(Arc::clone(store), after, POLL_INTERVAL);
    let mut count = 0;
    loop {
        match tail.rows_so_far(100).await?.len() {
            0 => return Ok(count),
            rows => count += rows,
        }
    }
}

/// Each promise on both back ends.
macro_rules! on_both {
    ($($name:ident: $sqlite:ident, $postgres:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $sqlite() {
            $name(concat!("guarantees::", stringify!($sqlite)), Home::sqlite()).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $postgres() {
            let home = Home::postgres(Durability::Durable);
            $name(concat!("guarantees::", stringify!($postgres)), home).await;
        }
    )+};
}

on_both! {
    g1_atomic: g1_atomic_on_sqlite, g1_atomic_on_postgres;
    g2_gapless: g2_gapless_on_sqlite, g2_gapless_on_postgres;
    g3_prefix: g3_prefix_on_sqlite, g3_prefix_on_postgres;
    g8_loud: g8_loud_on_sqlite, g8_loud_on_postgres;
}

/// A promise names its tests, or says with what it comes.
#[test]
fn every_promise_has_its_tests() {
    let promises = include_str!("../../../../docs/guarantees.md").split("\n## G").skip(1);
    let sources = [
        include_str!("guarantees.rs"),
        include_str!("independent.rs"),
        include_str!("power.rs"),
        include_str!("../../../feed/tests/consumers/crash.rs"),
        include_str!("../../../feed/tests/consumers/fence.rs"),
        include_str!("../../../feed/tests/consumers/rebuild.rs"),
        include_str!("../../../relay/tests/relay/handoff.rs"),
    ];
    let sources = sources.concat();
    for promise in promises {
        let name = promise.lines().next().unwrap_or_default();
        let last = promise.trim_end().lines().last().unwrap_or_default();
        match last.strip_prefix("Tests: ") {
            None => assert!(last.starts_with("Comes with "), "G{name}: no tests"),
            Some(tests) => tests.split(", ").for_each(|test| {
                let test = test.trim_matches('`');
                assert!(sources.contains(test), "G{name}: {test} is not there");
            }),
        }
    }
}
