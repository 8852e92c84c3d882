//! Two instances: the one that stalls has no effect any more once the other has taken over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use kukuri_feed::{RunnerConfig, Step, Wish};
use kukuri_store::Store;

use crate::notes::Notes;
use crate::rig::{
    Ground, Running, check_notes, check_offset, config, model, posts, runner, within,
};

/// A probe that holds the thread that reaches a step for the first time, until it is let go.
fn stalling(at: Step) -> (RunnerConfig, tokio::sync::oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (reached, told) = tokio::sync::oneshot::channel();
    let (go, gone) = mpsc::channel();
    let (reached, gone) = (Mutex::new(Some(reached)), Mutex::new(gone));
    let armed = AtomicBool::new(true);
    let probe = move |step: Step| {
        if step == at && armed.swap(false, Ordering::Relaxed) {
            reached.lock().unwrap().take().unwrap().send(()).unwrap();
            // Whatever else this thread has to do, others do.
            tokio::task::block_in_place(|| gone.lock().unwrap().recv().unwrap());
        }
    };
    (RunnerConfig { probe: Some(Arc::new(probe)), ..config() }, told, go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn g7_fenced_on_sqlite() {
    stall_for_longer_than_a_lease(Ground::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn g7_fenced_on_postgres() {
    stall_for_longer_than_a_lease(Ground::postgres()).await;
}

async fn stall_for_longer_than_a_lease(ground: Ground) {
    let store: Arc<dyn Store> = model().await;
    let notes = Notes::default();
    let begun = Running::start(runner(&store, &ground, &notes, config()).await);
    begun.caught_up().await;
    begun.stop().await;
    let home = ground.home().await;
    for (nth, step) in [Step::Read, Step::Projected].into_iter().enumerate() {
        let (config_of_first, reached, go) = stalling(step);
        let first = Running::start(runner(&store, &ground, &notes, config_of_first).await);
        let nth = nth as u64 * 100;
        posts(&*store, nth..nth + 50).await;
        within("the owner to stall", reached).await.unwrap();
        let fence = first.report().await.active().unwrap().state.fence;

        let second = Running::start(runner(&store, &ground, &notes, config()).await);
        let report = second.caught_up().await;
        assert!(report.active().unwrap().state.fence > fence);
        check_offset(&*store, &home).await.unwrap();

        // What the first one had in hand is not written a second time.
        go.send(()).unwrap();
        posts(&*store, nth + 50..nth + 60).await;
        second.caught_up().await;
        first.stop().await;
        check_offset(&*store, &home).await.unwrap();
        second.stop().await;
        check_notes(&*store, &home).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_leaves_in_good_order_is_replaced_at_once_and_who_is_paused_stands_still() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        // With a lease that outlasts the test.
        let patient = || RunnerConfig { lease: RunnerConfig::standard().lease, ..config() };
        let first = Running::start(runner(&store, &ground, &notes, patient()).await);
        first.caught_up().await;
        first.stop().await;
        let second = Running::start(runner(&store, &ground, &notes, patient()).await);
        posts(&*store, 0..10).await;
        second.caught_up().await;

        second.runner.wish(Wish::Paused).await.unwrap();
        posts(&*store, 10..20).await;
        let report = second.until("the pause", |report| report.wish == Wish::Paused).await;
        let seq = report.active().unwrap().state.cursor.seq;
        assert_eq!(second.report().await.active().unwrap().state.cursor.seq, seq);
        second.runner.wish(Wish::Running).await.unwrap();
        second.caught_up().await;
        second.stop().await;
        let home = ground.home().await;
        check_offset(&*store, &home).await.unwrap();
        check_notes(&*store, &home).await.unwrap();
    }
}
