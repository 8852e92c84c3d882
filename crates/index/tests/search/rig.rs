//! The index on both databases, without a feed.

use kukuri_feed::{Consumer, Digest, Generation, Home, Place, Row, Sample, Sync};
use kukuri_index::{Ask, Effects, Index, Page};
use kukuri_testkit::postgres::{Cluster, Durability};
use tempfile::TempDir;

use crate::scene::HEAD;

pub struct Rig {
    pub name: &'static str,
    index: Index,
    pub home: Home,
    ground: Ground,
}

/// What lasts as long as the tables on it.
enum Ground {
    Directory(TempDir),
    Cluster(Cluster),
}

impl Ground {
    /// Where there are no tables yet.
    fn place(&self) -> Place {
        match self {
            Self::Directory(directory) => {
                let files = std::fs::read_dir(directory.path()).expect("is there").count();
                let directory = directory.path().join(files.to_string());
                std::fs::create_dir(&directory).expect("a directory");
                Place::Directory { directory, sync: Sync::OffForTests }
            }
            Self::Cluster(cluster) => Place::Database { url: cluster.create_database() },
        }
    }
}

impl Rig {
    pub async fn both() -> [Self; 2] {
        let directory = TempDir::new().expect("a temporary directory");
        let cluster = Cluster::start(Durability::Fast).expect("a cluster starts");
        [
            Self::new("SQLite", Ground::Directory(directory)).await,
            Self::new("PostgreSQL", Ground::Cluster(cluster)).await,
        ]
    }

    async fn new(name: &'static str, ground: Ground) -> Self {
        let home = Home::open(&ground.place(), Index::NAME).await.expect("the tables open");
        Self { name, index: Index::default(), home, ground }
    }

    /// The digest of effects that are written at once, to tables of their own.
    pub async fn fresh(&self, effects: Effects) -> Digest {
        let home = Home::open(&self.ground.place(), Index::NAME).await.expect("the tables open");
        let generation = Generation(1);
        let mut writing = home.write().await.expect("begins to write");
        self.index.create(writing.desk(), generation).await.expect("makes the tables");
        self.index.apply(writing.desk(), generation, effects).await.expect("writes effects");
        let digest = self.index.digest(writing.desk(), generation, Sample::All).await;
        writing.commit().await.expect("commits");
        digest.expect("the tables are read")
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

    /// Columns of numbers, as they are in the tables.
    pub async fn rows<const N: usize>(&self, sql: &str) -> Vec<[i64; N]> {
        let mut snapshot = self.home.read().await.expect("begins to read");
        let rows = snapshot.desk().rows(sql, vec![]).await.expect("the tables are read");
        snapshot.end().await.expect("ends");
        let number = |row: &Row, nth| row.int(nth).expect("a number");
        rows.iter().map(|row| std::array::from_fn(|nth| number(row, nth))).collect()
    }

    /// Changes tables behind the back of everybody.
    pub async fn script(&self, sql: &str) {
        let mut writing = self.home.write().await.expect("begins to write");
        writing.desk().script(sql).await.expect("runs");
        writing.commit().await.expect("commits");
    }

    /// What the digest would be after a statement, which is not kept.
    pub async fn after(&self, sql: &str, generation: Generation) -> Digest {
        let mut writing = self.home.write().await.expect("begins to write");
        writing.desk().script(sql).await.expect("runs");
        let digest = self.index.digest(writing.desk(), generation, Sample::All).await;
        writing.roll_back().await.expect("rolls back");
        digest.expect("the tables are read")
    }
}
