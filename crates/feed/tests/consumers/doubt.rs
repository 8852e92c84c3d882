//! Two generations are compared while rows come in that only one of them can have seen the effects of.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use kukuri_core::{Cursor, FeedRow, TopicId};
use kukuri_feed::{FeedError, Generation, Report, RunnerConfig, Step};
use kukuri_store::conformance::double::Double;
use kukuri_store::conformance::signing::Draft;
use kukuri_store::{Model, Store};

use crate::notes::Notes;
use crate::rig::{Ground, NOW, Running, check_notes, config, model, post, posts, publish, runner};

/// A store whose feed is read only so far, as by consumers that are slower than who publishes.
struct Slow {
    model: Arc<Model>,
    read_until: AtomicI64,
}

#[async_trait]
impl Double for Slow {
    fn behind(&self) -> &dyn Store {
        &*self.model
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        let mut rows = self.model.feed(after, rows_max).await?;
        rows.retain(|row| row.seq.0 <= self.read_until.load(Ordering::Relaxed));
        Ok(rows)
    }
}

/// A rebuild that was begun before a post was deleted, and reads the state after that, while the active
/// generation has not read of it.
struct Ahead {
    slow: Arc<Slow>,
    running: Running,
    compared: Arc<AtomicU64>,
}

impl Ahead {
    async fn new(ground: &Ground, differences_max: u32) -> Self {
        let slow = Arc::new(Slow { model: model().await, read_until: AtomicI64::new(i64::MAX) });
        let store: Arc<dyn Store> = slow.clone();
        let notes = Notes::default();
        let running = Running::start(runner(&store, ground, &notes, config()).await);
        let deleted = post(&*store, "deleted later").await;
        posts(&*store, 0..3).await;
        let head = running.caught_up().await.bounds.head;
        running.stop().await;

        let compared = Arc::new(AtomicU64::new(0));
        let probe = {
            let compared = Arc::clone(&compared);
            move |step| {
                compared.fetch_add(u64::from(step == Step::Compared), Ordering::Relaxed);
            }
        };
        let config = RunnerConfig { differences_max, probe: Some(Arc::new(probe)), ..config() };
        let rebuilt = runner(&store, ground, &notes, config).await;
        rebuilt.begin_rebuild().await.unwrap().unwrap();
        slow.read_until.store(head.0, Ordering::Relaxed);
        let deletion = Draft::new(5, NOW).tag("t", TopicId::global()).tag("e", deleted);
        publish(&*store, &deletion).await;
        Self { slow, running: Running::start(rebuilt), compared }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rebuild_that_has_seen_more_than_the_active_generation_looks_again() {
    for ground in Ground::both() {
        let ground = ground();
        let Ahead { slow, running, compared } = Ahead::new(&ground, u32::MAX).await;
        let looks = |_: &Report| compared.load(Ordering::Relaxed) >= 2;
        running.until("two comparisons", looks).await;
        slow.read_until.store(i64::MAX, Ordering::Relaxed);
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.generation, Generation(2));
        running.stop().await;
        check_notes(&*slow.model, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rebuild_that_differs_for_long_halts_though_rows_come_in() {
    for ground in Ground::both() {
        let ground = ground();
        let Ahead { running, .. } = Ahead::new(&ground, 2).await;
        let halted = |report: &Report| report.building().unwrap().state.halted.is_some();
        let report = running.until("the rebuild to halt", halted).await;
        let why = report.building().unwrap().state.halted.clone().unwrap();
        assert!(why.contains("again and again"), "{why}");
        running.stop().await;
    }
}
