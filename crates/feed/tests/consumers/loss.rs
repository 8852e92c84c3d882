//! A feed that does not lead on from where a consumer stands is never read as if it did.

use std::sync::Arc;

use kukuri_core::{Act, Command, CursorError, Seq};
use kukuri_event::UnixSeconds;
use kukuri_feed::{Generation, OnLoss, Report, RunnerConfig};
use kukuri_store::Store;

use crate::notes::Notes;
use crate::rig::{Ground, Running, check_notes, config, model, posts, runner};

async fn trim(store: &dyn Store, to: Seq) {
    let trim = Command { at: UnixSeconds(0).into(), act: Act::Trim(to) };
    store.apply([trim].into()).await.unwrap();
}

fn halting() -> RunnerConfig {
    RunnerConfig { on_loss: OnLoss::Halt, ..config() }
}

fn halted(report: &Report) -> bool {
    report.active().is_some_and(|active| active.state.halted.is_some())
}

/// A consumer that has read the first ten posts and was stopped.
async fn stopped(store: &Arc<dyn Store>, ground: &Ground, notes: &Notes) {
    let running = Running::start(runner(store, ground, notes, config()).await);
    posts(&**store, 0..10).await;
    running.caught_up().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_are_gone_halt_a_consumer_or_have_it_rebuilt() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        stopped(&store, &ground, &notes).await;
        posts(&*store, 10..30).await;
        trim(&*store, Seq(20)).await;

        let running = Running::start(runner(&store, &ground, &notes, halting()).await);
        let report = running.until("the consumer to halt", halted).await;
        let active = report.active().unwrap();
        assert_eq!(active.lost, Some(CursorError::Truncated { floor: Seq(20) }));
        assert!(active.state.halted.as_ref().unwrap().contains("consumer rebuild notes"));
        assert_eq!(active.state.cursor.seq, Seq(10), "nobody skips");
        running.runner.begin_rebuild().await.unwrap().unwrap();
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();

        // By itself, if it is set up to.
        posts(&*store, 30..40).await;
        trim(&*store, Seq(35)).await;
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.caught_up().await;
        posts(&*store, 40..50).await;
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_life_of_the_feed_is_noticed_even_when_it_is_longer() {
    for ground in Ground::both() {
        let ground = ground();
        // The store was put back to five posts, and has grown again by so many.
        for grown in [0, 3, 5, 20] {
            let (ground, notes) = (ground.fresh(), Notes::default());
            let store: Arc<dyn Store> = model().await;
            stopped(&store, &ground, &notes).await;
            let restored: Arc<dyn Store> = model().await;
            posts(&*restored, 0..5).await;
            posts(&*restored, 100..100 + grown).await;

            let running = Running::start(runner(&restored, &ground, &notes, halting()).await);
            let report = running.until("the consumer to halt", halted).await;
            let active = report.active().unwrap();
            let why = active.state.halted.as_ref().unwrap();
            assert!(why.contains("another life of the feed"), "{why}");
            assert_eq!(active.state.cursor.seq, Seq(10), "nobody skips");
            running.stop().await;

            let running = Running::start(runner(&restored, &ground, &notes, config()).await);
            running.runner.wish(kukuri_feed::Wish::Running).await.unwrap();
            let rebuilt =
                |report: &Report| report.active().unwrap().state.generation == Generation(2);
            running.until("the consumer to be rebuilt", rebuilt).await;
            running.caught_up().await;
            running.stop().await;
            check_notes(&*restored, &ground.home().await).await.unwrap();
        }
    }
}
