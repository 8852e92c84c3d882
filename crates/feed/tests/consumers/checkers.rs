//! The checkers notice what they are there to notice.

use std::sync::Arc;

use kukuri_store::Store;

use crate::notes::Notes;
use crate::rig::{Ground, Running, check_notes, check_offset, config, model, posts, runner};

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
        let spoiled = [
            "UPDATE consumer_offsets SET last_seq = last_seq - 1",
            "UPDATE handled_g1 SET times = 2 WHERE seq = 3",
            "DELETE FROM handled_g1 WHERE seq = 3",
        ];
        for sql in spoiled {
            let mut writing = home.write().await.unwrap();
            writing.desk().script(sql).await.unwrap();
            writing.commit().await.unwrap();
            check_offset(&*store, &home).await.unwrap_err();
        }
        let mut writing = home.write().await.unwrap();
        let sql = "DELETE FROM notes_g1 WHERE content IN
            (SELECT content FROM notes_g1 ORDER BY content LIMIT 1)";
        writing.desk().script(sql).await.unwrap();
        writing.commit().await.unwrap();
        check_notes(&*store, &home).await.unwrap_err();
    }
}
