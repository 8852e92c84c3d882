//! A running node whose disk has less room than its reserve: clients are told so, while they read and
//! delete; a purge makes room, and then events are taken in again. On PostgreSQL it is the disk of the server,
//! which has all of it there, its log included.

use std::sync::Arc;

use kukuri_core::{Act, Command, Mapping, NetworkId, TopicId, UnixMillis};
use kukuri_event::UnixSeconds;
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft, admit};
use kukuri_store_postgres::{Options, PostgresStore};
use kukuri_testkit::condition::{wait_for, wait_for_async};
use kukuri_testkit::mount::{Tmpfs, Unmountable, fill};
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use kukuri_testkit::spec::Event;
use serde_json::{Value, json};

use crate::door::{Client, Node};
use crate::import::SILENCE_MAX;
use crate::load::NOW;
use crate::rig::{Place, Program, require_none};

const MIB: u64 = 1 << 20;
/// Room for the crowd, for the logs, and for what is free in the end.
const DISK_BYTES: u64 = 1280 * MIB;
const RESERVE: (&str, &str) = ("KUKURI_CAPACITY_DISK_RESERVE_MIB", "320");
const RESERVE_BYTES: u64 = 320 * MIB;
/// What names the disk of a server.
const DIRECTORY: &str = "KUKURI_CAPACITY_DATABASE_DIRECTORY";
/// Less than the reserve, and more than the logs of both files and the index take until the node looks again,
/// with the last quarter of the reserve left.
const FREE_BYTES: u64 = 310 * MIB;
/// A server's log takes no more than SQLite's, so that both are told by the same numbers.
const SERVER_LOG: [(&str, &str); 2] = [("min_wal_size", "32MB"), ("max_wal_size", "64MB")];

const FULL: &str = "error: storage full";
const NOTES: usize = 20;

const TOPIC: &str = "crowded";
/// What is purged: with so much more free, the disk is open again, whatever the logs have taken meanwhile.
const CROWD: usize = 6_600;
const CROWD_BATCH: usize = 50;
/// Nearly as large as an event can be.
const LONG_BYTES: usize = 60_000;
/// A kind that is not searched, so that the index has little to read.
const LONG_KIND: u16 = 42;
/// PostgreSQL gives back whole partitions: so few numbers that the crowd fills some.
const ROWS_PER_PARTITION: u32 = 512;

fn sign(draft: Draft, topic: &TopicId) -> String {
    Author::numbered(1).sign(&draft.tag("t", topic))
}

fn crowded() -> TopicId {
    TopicId::from_name(TOPIC, &NetworkId::default(), Mapping::V2).expect("it is a name")
}

/// A store, and the disk of its own that it is on.
struct Site {
    place: Place,
    /// Stopped before its disk goes.
    _cluster: Option<Cluster>,
    disk: Tmpfs,
}

impl Site {
    fn sqlite() -> Result<Site, Unmountable> {
        let disk = Tmpfs::mount(DISK_BYTES)?;
        let place = Place::Sqlite(disk.path().join("data"));
        Ok(Site { place, _cluster: None, disk })
    }

    fn postgres() -> Result<Site, Unmountable> {
        let disk = Tmpfs::mount(DISK_BYTES)?;
        let options = SERVER_LOG.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let home = Some(disk.path().to_owned());
        let settings = Settings { options, home, ..Settings::new(Durability::Durable) };
        let cluster = Cluster::start_with(&settings).expect("PostgreSQL starts");
        let place = Place::Postgres(cluster.create_database());
        Ok(Site { place, _cluster: Some(cluster), disk })
    }

    /// What the operator says of the disk.
    fn settings(&self) -> Vec<(&str, &str)> {
        let directory = self.disk.path().to_str().expect("a mount has a plain name");
        match &self.place {
            Place::Sqlite(_) => vec![RESERVE],
            Place::Postgres(_) => vec![RESERVE, (DIRECTORY, directory)],
        }
    }

    async fn open(&self) -> Arc<dyn Store> {
        let Place::Postgres(url) = &self.place else {
            return self.place.open().await.expect("a new store opens");
        };
        let options = Options { partition_rows_min: ROWS_PER_PARTITION, ..Options::STANDARD };
        Arc::new(PostgresStore::open(url, options).await.expect("a new store opens"))
    }

    /// Makes the store, with a topic that takes up most of it.
    async fn crowd(&self) {
        let (store, topic, at) = (self.open().await, crowded(), UnixMillis::from(NOW));
        let carry = [(TopicId::global(), "global"), (topic.clone(), TOPIC)]
            .map(|(id, name)| Command { at, act: Act::carry(id, name) });
        store.apply(Arc::new(carry)).await.expect("a new store takes topics");
        let long = "x".repeat(LONG_BYTES);
        let publish = |nth: usize| {
            let draft = Draft::new(LONG_KIND, NOW).tag("nth", nth).content(long.as_str());
            let admitted = admit(&sign(draft, &topic), NOW).expect("it is valid");
            Command { at, act: Act::Publish(admitted) }
        };
        for first in (0..CROWD).step_by(CROWD_BATCH) {
            let batch = (first..first + CROWD_BATCH).map(publish).collect();
            store.apply(batch).await.expect("there is room");
        }
    }

    fn purge(&self) {
        let before = (NOW.0 + 1).to_string();
        let mut command = self.place.command(Program::Node);
        command.envs(self.settings()).args(["purge", "--topic", TOPIC, "--before", &before]);
        let output = command.output().expect("the node can be started");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "purging goes on: {told}");
        assert!(told.contains(&format!("purged {CROWD} events (")), "{told}");
    }

    /// What the node thinks of its disk.
    fn storage(&self) -> Value {
        let status = self.place.run(&["status", "--json"]);
        let told: Value = serde_json::from_slice(&status.stdout).expect("it is JSON");
        told["allowance"]["storage"].clone()
    }
}

/// Publishes notes that nobody has seen until one is answered so; says how many were answered otherwise.
async fn publish_until(client: &mut Client, wanted: &str) -> usize {
    let mut others = 0;
    let publish = async || {
        let note = sign(Draft::new(1, NOW).tag("nth", others).content(wanted), &TopicId::global());
        let said = client.publish(&note).await;
        assert!(said == FULL || said.is_empty(), "{said}");
        if said == wanted {
            return Some(());
        }
        others += 1;
        None
    };
    let told = wait_for_async("a look at the disk", SILENCE_MAX, publish).await;
    told.unwrap_or_else(|late| panic!("nothing is answered {wanted:?}: {late}"));
    others
}

async fn a_node_leaves_its_reserve_alone(test: &str, site: Result<Site, Unmountable>) {
    let site = match site {
        Ok(site) => site,
        Err(error) => return error.skip(test),
    };
    site.crowd().await;
    let node = Node::start_with(&site.place, NOW, &site.settings());
    let mut client = Client::connect(&node).await;
    let notes: Vec<String> = (0..NOTES)
        .map(|nth| sign(Draft::new(1, UnixSeconds(NOW.0 - 1)).tag("n", nth), &TopicId::global()))
        .collect();
    for note in &notes {
        assert_eq!(client.publish(note).await, "");
    }

    fill(&site.disk.path().join("ballast"), FREE_BYTES).expect("a disk can be filled");
    let taken = publish_until(&mut client, FULL).await;
    assert_eq!(site.storage(), json!({ "full": { "reserve_bytes": RESERVE_BYTES } }));
    let known = json!({ "#t": [TopicId::global().as_str()], "until": NOW.0 - 1 });
    assert_eq!(client.count(&known).await, NOTES as u64, "it can be read");
    let target = Event::read(&notes[0]).id;
    let request = sign(Draft::new(5, NOW).tag("e", target), &TopicId::global());
    assert_eq!(client.publish(&request).await, "", "deleting goes on");
    assert_eq!(client.count(&known).await, NOTES as u64 - 1);
    let told = || node.process.stderr().contains("less than its reserve of").then_some(());
    wait_for("the index stands still", SILENCE_MAX, told).expect("it is on the same disk");

    site.purge();
    let refused = publish_until(&mut client, "").await;
    println!(
        "{test}: {taken} notes were taken in before the node noticed, {refused} refused after"
    );
    node.end();
    require_none(test, &site.place.doctor());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_its_reserve_alone_on_sqlite() {
    let test = "reserve::a_node_leaves_its_reserve_alone_on_sqlite";
    a_node_leaves_its_reserve_alone(test, Site::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_its_reserve_alone_on_postgres() {
    let test = "reserve::a_node_leaves_its_reserve_alone_on_postgres";
    a_node_leaves_its_reserve_alone(test, Site::postgres()).await;
}
