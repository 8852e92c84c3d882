//! Who only wants to know how a consumer is doing leaves no trace.

use std::sync::Arc;

use kukuri_core::UnixMillis;
use kukuri_feed::{Home, Runner, RunnerConfig};
use kukuri_store::{Model, Store};

use crate::notes::{NAME, Notes};
use crate::rig::{Ground, config, runner};

#[tokio::test]
async fn looking_makes_nothing() {
    for ground in Ground::both() {
        let ground = ground();
        let store: Arc<dyn Store> = Arc::new(Model::default());
        for _ in 0..2 {
            assert!(Home::existing(&ground.place(), NAME).await.unwrap().is_none());
        }
        if let kukuri_feed::Place::Directory { directory, .. } = ground.place() {
            assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
        }

        // A file or a schema without tables is as good as none.
        drop(ground.home().await);
        assert!(Home::existing(&ground.place(), NAME).await.unwrap().is_none());

        drop(runner(&store, &ground, &Notes::default(), config()).await);
        let home = Home::existing(&ground.place(), NAME).await.unwrap().expect("was made");
        let standard = RunnerConfig::standard();
        let looking = Runner::existing(Notes::default(), Arc::clone(&store), home, standard).await;
        let report = looking.unwrap().report(UnixMillis(0)).await.unwrap();
        assert!(report.generations.is_empty());
    }
}
