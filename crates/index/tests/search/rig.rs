//! The index on both databases, without a feed.

use kukuri_feed::{Consumer, Digest, Generation, Home, Place, Sample, Sync};
use kukuri_index::{Ask, Effects, Index, Page};
use kukuri_testkit::postgres::{Cluster, Durability};
use tempfile::TempDir;

use crate::scene::HEAD;

pub struct Rig {
    pub name: &'static str,
    index: Index,
    home: Home,
    _ground: Ground,
}

/// What lasts as long as the tables on it.
enum Ground {
    Directory { _directory: TempDir },
    Cluster { _cluster: Cluster },
}

impl Rig {
    pub async fn both() -> [Self; 2] {
        let directory = TempDir::new().expect("a temporary directory");
        let file = Place::Directory { directory: directory.path().into(), sync: Sync::OffForTests };
        let cluster = Cluster::start(Durability::Fast).expect("a cluster starts");
        let database = Place::Database { url: cluster.create_database() };
        [
            Self::new("SQLite", &file, Ground::Directory { _directory: directory }).await,
            Self::new("PostgreSQL", &database, Ground::Cluster { _cluster: cluster }).await,
        ]
    }

    async fn new(name: &'static str, place: &Place, ground: Ground) -> Self {
        let home = Home::open(place, Index::NAME).await.expect("the tables open");
        Self { name, index: Index::default(), home, _ground: ground }
    }

    pub async fn create(&self, generation: Generation) {
        let mut writing = self.home.write().await.expect("begins to write");
        self.index.create(writing.desk(), generation).await.expect("makes the tables");
        writing.commit().await.expect("commits");
    }

    pub async fn discard(&self, generation: Generation) {
        let mut writing = self.home.write().await.expect("begins to write");
        self.index.discard(writing.desk(), generation).await.expect("drops the tables");
        writing.commit().await.expect("commits");
    }

    pub async fn apply(&self, generation: Generation, effects: Effects) {
        let mut writing = self.home.write().await.expect("begins to write");
        self.index.apply(writing.desk(), generation, effects).await.expect("writes effects");
        writing.commit().await.expect("commits");
    }

    pub async fn search(&self, generation: Generation, ask: &Ask) -> Page {
        let mut snapshot = self.home.read().await.expect("begins to read");
        let page = self.index.search(snapshot.desk(), generation, ask, HEAD).await;
        snapshot.end().await.expect("ends");
        page.unwrap_or_else(|error| panic!("{}: {:?}: {error}", self.name, ask.query))
    }

    pub async fn digest(&self, generation: Generation, sample: Sample) -> Digest {
        let mut snapshot = self.home.read().await.expect("begins to read");
        let digest = self.index.digest(snapshot.desk(), generation, sample).await;
        snapshot.end().await.expect("ends");
        digest.expect("the tables are read")
    }
}
