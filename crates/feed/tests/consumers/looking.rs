//! Who only wants to know how a consumer is doing leaves no trace.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use kukuri_core::UnixMillis;
use kukuri_feed::{Home, Place, Runner, RunnerConfig};
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
        if let Place::Directory { directory, .. } = ground.place() {
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

/// What people wrote can be told from it, too.
#[tokio::test]
async fn only_the_owner_may_read_the_files() {
    let (ground, store): (_, Arc<dyn Store>) = (Ground::sqlite(), Arc::new(Model::default()));
    let runner = runner(&store, &ground, &Notes::default(), config()).await;
    let Place::Directory { directory, .. } = ground.place() else { panic!("it is a directory") };
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap()).collect();
    assert!(!files.is_empty());
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
    drop(runner);
}
