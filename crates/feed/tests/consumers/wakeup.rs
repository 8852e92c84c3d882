//! Word of new rows is a convenience: who gets none finds them by looking.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kukuri_core::Seq;
use kukuri_feed::{RunnerConfig, Wakeup};
use kukuri_store::conformance::double::Double;
use kukuri_store::{Model, Store};
use tokio::sync::watch;

use crate::notes::Notes;
use crate::rig::{
    Ground, Running, check_notes, check_offset, config, is_caught_up, model, posts, runner,
};

/// Rows of which nobody tells wait for the next look, and are handled within a second after it: here with so
/// many times as long for a busy machine.
const HANDLED_WITHIN: Duration = Duration::from_secs(1);
const SLACK: u32 = 5;

/// A store that says nothing of new rows.
struct Silent {
    model: Arc<Model>,
    heads: watch::Sender<Seq>,
}

#[async_trait]
impl Double for Silent {
    fn behind(&self) -> &dyn Store {
        &*self.model
    }

    fn heads(&self) -> watch::Receiver<Seq> {
        self.heads.subscribe()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_nobody_tells_of_are_found() {
    for ground in Ground::both() {
        let ground = ground();
        for wakeup in [Wakeup::Watch, Wakeup::PollOnly] {
            let ground = ground.fresh();
            let heads = watch::Sender::new(Seq::ZERO);
            let store: Arc<dyn Store> = Arc::new(Silent { model: model().await, heads });
            let config = RunnerConfig { wakeup, ..config() };
            let found_within = (config.poll_interval + HANDLED_WITHIN) * SLACK;
            let running = Running::start(runner(&store, &ground, &Notes::default(), config).await);
            running.caught_up().await;
            for nth in 0..5 {
                posts(&*store, nth * 10..nth * 10 + 10).await;
                running.until_within(found_within, "unannounced rows", is_caught_up).await;
            }
            let missed = running.report().await.missed_wakeups;
            assert_eq!(missed > 0, wakeup == Wakeup::Watch, "{missed}");
            running.stop().await;
            let home = ground.home().await;
            check_offset(&*store, &home).await.unwrap();
            check_notes(&*store, &home).await.unwrap();
        }
    }
}
