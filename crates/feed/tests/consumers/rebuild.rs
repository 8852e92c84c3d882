//! A new generation comes to hold what the old one holds, beside it and while the feed goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kukuri_core::Seq;
use kukuri_feed::{Generation, OperateError};
use kukuri_store::Store;
use kukuri_testkit::generate::Seed;

use crate::notes::{Notes, read_notes};
use crate::rig::{
    Ground, History, LOSE_A_NOTE, Running, check_notes, config, model, post, posts, runner, script,
    within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g9_convergent_on_sqlite() {
    rebuild_after_histories(Ground::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g9_convergent_on_postgres() {
    rebuild_after_histories(Ground::postgres()).await;
}

async fn rebuild_after_histories(ground: Ground) {
    let seed = Seed::of_run("g9_convergent");
    for nth in 0..8 {
        let (ground, store): (_, Arc<dyn Store>) = (ground.fresh(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        running.caught_up().await;
        let (mut history, home) = (History::new(seed.part(nth)), ground.home().await);
        for _ in 0..10 {
            history.go_on(&*store).await;
        }
        running.caught_up().await;
        check_notes(&*store, &home).await.unwrap();
        running.runner.begin_rebuild().await.unwrap().unwrap();
        for _ in 0..10 {
            history.go_on(&*store).await;
        }
        // It has been compared with the old one before it took over.
        let report = running.caught_up().await;
        assert_eq!(report.active().unwrap().state.generation, Generation(2));
        check_notes(&*store, &home).await.unwrap();
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_notice_nothing_of_a_rebuild_under_ingest() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        posts(&*store, 0..500).await;
        running.caught_up().await;
        let (done, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let reading = {
            let (done, reads, home) = (done.clone(), reads.clone(), ground.home().await);
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let mut snapshot = home.read().await.unwrap();
                    let active = home.active(snapshot.desk()).await.unwrap().unwrap();
                    let found = read_notes(snapshot.desk(), active.generation).await.unwrap();
                    assert!(found.len() >= 500, "{} notes", found.len());
                    snapshot.end().await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        for round in 0..3u64 {
            running.runner.begin_rebuild().await.unwrap().unwrap();
            posts(&*store, 1000 + round * 100..1000 + round * 100 + 100).await;
            running.caught_up().await;
        }
        done.store(true, Ordering::Relaxed);
        reading.await.unwrap();
        assert!(reads.load(Ordering::Relaxed) > 10);
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

/// The comparison is what stands between a mistake and those who read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_generation_that_lacks_something_does_not_take_over() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let notes = Notes::default();
        let running = Running::start(runner(&store, &ground, &notes, config()).await);
        posts(&*store, 0..20).await;
        running.caught_up().await;
        notes.forgetful.store(true, Ordering::Relaxed);
        running.runner.begin_rebuild().await.unwrap().unwrap();
        let halted = |report: &kukuri_feed::Report| {
            report.building().is_some_and(|building| building.state.halted.is_some())
        };
        running.until("the difference to be found", halted).await;
        notes.forgetful.store(false, Ordering::Relaxed);
        check_notes(&*store, &ground.home().await).await.unwrap();
        running.runner.cancel_rebuild().await.unwrap();
        let none = running.runner.cancel_rebuild().await;
        assert!(matches!(none, Err(OperateError::NotBuilding)), "{none:?}");
        post(&*store, "goes on").await;
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_version_of_a_consumer_is_built_beside_the_one_that_is_read() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        posts(&*store, 0..20).await;
        running.caught_up().await;
        running.stop().await;
        let newer = Notes { version: 1, ..Notes::default() };
        let running = Running::start(runner(&store, &ground, &newer, config()).await);
        let switched = |report: &kukuri_feed::Report| report.active().unwrap().state.version == 1;
        running.until("the new version", switched).await;
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replay_goes_back_and_never_forward() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        posts(&*store, 0..20).await;
        running.caught_up().await;
        let home = ground.home().await;
        script(&home, LOSE_A_NOTE).await;
        check_notes(&*store, &home).await.unwrap_err();
        let ahead = running.runner.replay(Seq(22)).await;
        assert!(
            matches!(ahead, Err(OperateError::Ahead { .. } | OperateError::Feed(_))),
            "{ahead:?}"
        );
        running.runner.replay(Seq(1)).await.unwrap();
        running.caught_up().await;
        running.stop().await;
        check_notes(&*store, &home).await.unwrap();
    }
}

/// A generation that one version began was finished by another, and then taken for what it was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_another_version_has_begun_is_not_finished() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        posts(&*store, 0..20).await;
        // One that leaves things out, as a version that knows fewer kinds does.
        let fewer = Notes { version: 1, ..Notes::default() };
        fewer.forgetful.store(true, Ordering::SeqCst);
        let begun = runner(&store, &ground, &fewer, config()).await.begin_rebuild().await.unwrap();
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        let report = running.caught_up().await;
        let active = &report.active().unwrap().state;
        assert_eq!(active.version, 0);
        assert!(report.generations.iter().all(|one| one.state.version == 0), "{begun:?} is gone");
        running.stop().await;
        check_notes(&*store, &ground.home().await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_gives_back_the_space_of_retired_generations() {
    let (ground, store): (_, Arc<dyn Store>) = (Ground::sqlite(), model().await);
    let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
    for nth in 0..50 {
        post(&*store, &format!("{nth}").repeat(10_000)).await;
    }
    running.caught_up().await;
    let home = ground.home().await;
    let pages = async || {
        let mut snapshot = home.read().await.unwrap();
        let sql = "SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count";
        let row = snapshot.desk().row(sql, vec![]).await.unwrap().unwrap();
        let pages = (row.int(0).unwrap(), row.int(1).unwrap());
        snapshot.end().await.unwrap();
        pages
    };
    let (before, _) = pages().await;
    running.runner.begin_rebuild().await.unwrap().unwrap();
    running.until("the old one to go", |report| report.generations.len() == 1).await;
    running.caught_up().await;
    let given_back = async {
        while pages().await.1 > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the space to be given back", given_back).await;
    running.stop().await;
    let (after, _) = pages().await;
    assert!(after <= before + before / 4, "{before} pages, then {after}");
}
