//! Rows that cannot be handled are put aside, and only those.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kukuri_feed::{OperateError, RunnerConfig, Wish};
use kukuri_store::Store;

use crate::notes::{KILL, Notes, PANIC, POISON, REFUSED};
use crate::rig::{Ground, Running, check_notes, check_offset, config, model, post, posts, runner};

/// Restarts after which a row that ends who works on it is parked at the latest.
const RESTARTS_MAX: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_cannot_be_handled_is_parked_and_the_others_are_not() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.caught_up().await;
        for (nth, text) in [POISON, PANIC, REFUSED].into_iter().enumerate() {
            let nth = nth as u64;
            posts(&*store, nth * 1000..nth * 1000 + 700).await;
            post(&*store, text).await;
            posts(&*store, nth * 1000 + 700..nth * 1000 + 1000).await;
        }
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 3);
        let parked = running.runner.parked(10).await.unwrap();
        let told = ["make sense", "panicked: no idea", "refuses it"];
        for (parked, told) in parked.iter().zip(told) {
            assert!(parked.reason.contains(told), "{parked:?}");
            assert_eq!(parked.tries, 5);
        }
        let home = ground.home().await;
        check_offset(&*store, &home).await.unwrap();
        check_notes(&*store, &home).await.unwrap();

        // An operator discards one, and the others once they can be handled are tried again.
        running.runner.discard_parked(&parked[0]).await.unwrap();
        let again = running.runner.retry_parked(&parked[1]).await;
        assert!(matches!(again, Err(OperateError::StillPoison { .. })), "{again:?}");
        notes.healed.store(true, Ordering::Relaxed);
        for parked in &parked[1..] {
            running.runner.retry_parked(parked).await.unwrap();
            let twice = running.runner.retry_parked(parked).await;
            assert!(matches!(twice, Err(OperateError::NotParked(_))), "{twice:?}");
        }
        posts(&*store, 5000..5010).await;
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 0);
        running.stop().await;
        // The one that was discarded is missing for good, until a rebuild.
        check_notes(&*store, &home).await.unwrap_err();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.runner.begin_rebuild().await.unwrap().unwrap();
        let halted = |report: &kukuri_feed::Report| {
            report.building().is_some_and(|building| building.state.halted.is_some())
        };
        let report = running.until("the difference to be found", halted).await;
        let why = report.building().unwrap().state.halted.clone().unwrap();
        assert!(why.contains("differs"), "{why}");
        running.runner.accept_rebuild().await.unwrap();
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &home).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_ten_thousand_rows_the_one_that_cannot_be_handled_is_parked() {
    let store: Arc<dyn Store> = model().await;
    posts(&*store, 0..6_000).await;
    post(&*store, POISON).await;
    posts(&*store, 6_000..9_999).await;
    for ground in Ground::both() {
        let ground = ground();
        let empty: Arc<dyn Store> = model().await;
        let begun = Running::start(runner(&empty, &ground, &Notes::default(), config()).await);
        begun.caught_up().await;
        begun.stop().await;
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 1);
        running.stop().await;
        let home = ground.home().await;
        check_offset(&*store, &home).await.unwrap();
        check_notes(&*store, &home).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_ends_its_worker_is_parked_after_a_few_restarts() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.caught_up().await;
        posts(&*store, 0..300).await;
        post(&*store, KILL).await;
        posts(&*store, 300..500).await;
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 1);
        let kills = notes.kills.load(Ordering::Relaxed);
        assert!((2..=RESTARTS_MAX).contains(&kills), "{kills}");
        let parked = running.runner.parked(10).await.unwrap();
        assert!(parked[0].reason.contains("ended without a word"), "{parked:?}");
        running.stop().await;
        let home = ground.home().await;
        check_offset(&*store, &home).await.unwrap();
        check_notes(&*store, &home).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_of_the_state_that_ends_its_worker_is_parked_by_a_rebuild_too() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        posts(&*store, 0..300).await;
        post(&*store, KILL).await;
        posts(&*store, 300..400).await;
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 1);
        let kills = notes.kills.load(Ordering::Relaxed);
        assert!((2..=RESTARTS_MAX).contains(&kills), "{kills}");
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consumer_that_parks_one_row_after_the_other_halts_and_says_so() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let config = RunnerConfig { try_pauses: vec![Duration::ZERO], ..config() };
        let running = Running::start(runner(&store, &ground, &notes, config).await);
        running.caught_up().await;
        for nth in 0..60 {
            post(&*store, &format!("{POISON} {nth}")).await;
        }
        let halted = |report: &kukuri_feed::Report| {
            report.active().is_some_and(|active| active.state.halted.is_some())
        };
        let report = running.until("the consumer to halt", halted).await;
        let active = report.active().unwrap();
        assert_eq!((active.state.parked, active.lag_rows), (50, 10));
        assert!(active.state.halted.as_ref().unwrap().contains("were parked"));

        // Nothing moves until somebody has had a look.
        notes.healed.store(true, Ordering::Relaxed);
        running.runner.wish(Wish::Running).await.unwrap();
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.parked, 50);
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}
