//! The checkers notice what they are there to notice.

use std::sync::Arc;

use kukuri_store::Store;

use crate::notes::Notes;
use crate::rig::{
    Ground, LOSE_A_NOTE, Running, check_notes, check_offset, config, model, posts, runner, script,
};

#[tokio::test(flavor = "multi_thread")]
async fn effects_without_their_offset_are_noticed_and_offsets_without_their_effects() {
    for ground in Ground::both() {
        let (ground, store): (_, Arc<dyn Store>) = (ground(), model().await);
        let running = Running::start(runner(&store, &ground, &Notes::default(), config()).await);
        running.caught_up().await;
        posts(&*store, 0..5).await;
        running.caught_up().await;
        running.stop().await;
        let home = ground.home().await;
        check_offset(&*store, &home).await.unwrap();
        check_notes(&*store, &home).await.unwrap();
        // Each is undone, so that the next one is noticed for itself.
        let spoiled = [
            (
                "UPDATE consumer_offsets SET last_seq = last_seq - 1",
                "UPDATE consumer_offsets SET last_seq = last_seq + 1",
            ),
            (
                "UPDATE handled_g1 SET times = 2 WHERE seq = 3",
                "UPDATE handled_g1 SET times = 1 WHERE seq = 3",
            ),
            (
                "UPDATE handled_g1 SET seq = -3 WHERE seq = 3",
                "UPDATE handled_g1 SET seq = 3 WHERE seq = -3",
            ),
        ];
        for (spoil, undo) in spoiled {
            script(&home, spoil).await;
            check_offset(&*store, &home).await.unwrap_err();
            script(&home, undo).await;
            check_offset(&*store, &home).await.unwrap();
        }
        script(&home, "DELETE FROM handled_g1 WHERE seq = 3").await;
        check_offset(&*store, &home).await.unwrap_err();
        script(&home, LOSE_A_NOTE).await;
        check_notes(&*store, &home).await.unwrap_err();
    }
}
