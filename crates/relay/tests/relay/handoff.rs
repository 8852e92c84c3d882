//! G11 on sockets: a REQ at a random instant under load sees every matching event exactly once across
//! stored, EOSE and live.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kukuri_core::{Act, Command, Cursor, Seq};
use kukuri_event::{EventId, Filter, matches_any};
use kukuri_fanout::{SubKey, Subscription};
use kukuri_relay::{OpenGate, RelayConfig, RelayLimits};
use kukuri_store::conformance::double::Double;
use kukuri_store::{Hits, Query, QueryError, Store, StoreError};
use kukuri_store_postgres::PostgresStore;
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::delivery;
use kukuri_testkit::generate::{Dice, Seed, World, arrivals, group_in_topics};
use kukuri_testkit::postgres::{Cluster, Durability};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::rig::{Client, Rig, config, until};

const EVENTS: usize = 1_200;
const CONNECTIONS: u64 = 70;
/// One less than are allowed: a question that is refused needs a place as well.
const REQUESTS_EACH: usize = 31;
const BETWEEN_MIN: usize = 500;
/// Among how many acts one is chosen that matches.
const NEAR_ACTS: usize = 1000;

/// What a store says about when its answer is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    TheTruth,
    /// The sabotage: that it is from now, which hands the subscription over too late.
    Now,
}

/// A store in which something is committed between the answer to a query and what is made of it.
struct Busy {
    behind: Arc<dyn Store>,
    acts: Mutex<(VecDeque<Act>, Dice)>,
    says: Says,
    world: Arc<World>,
    /// How many queries had a matching commit after their answer.
    between: AtomicUsize,
}

impl Busy {
    /// What is committed after a query, rather something that the query would have found.
    fn some_acts(&self, filters: &[Filter]) -> Vec<Command> {
        let (acts, dice) = &mut *self.acts.lock().unwrap();
        let size = dice.weigh(&[(0, 20), (1, 60), (2, 18), (20, 2)]).min(acts.len());
        let matching = acts.iter().take(NEAR_ACTS).position(|act| match act {
            Act::Publish(event) => matches_any(filters, event.event(), event.topics()),
            _ => false,
        });
        if let Some(nth) = matching {
            acts.swap(0, nth);
        }
        acts.drain(..size).map(|act| Command { at: World::now(), act }).collect()
    }

    /// Looks whether something matching was committed since S, by anyone.
    async fn count(&self, filters: Vec<Filter>, s: Seq) -> Result<(), StoreError> {
        let epoch = self.behind.bounds().await?.epoch;
        let rows = self.behind.feed(Cursor { epoch, seq: s }, usize::MAX).await.unwrap();
        let subscription = Subscription { key: SubKey(0), filters: filters.into() };
        let taken = rows.iter().any(|row| {
            let event = self.world.events.iter().find(|event| event.event().id() == row.event_id);
            event.is_some_and(|event| subscription.takes(row, event.event()))
        });
        self.between.fetch_add(usize::from(taken), Ordering::Relaxed);
        Ok(())
    }
}

#[async_trait::async_trait]
impl Double for Busy {
    fn behind(&self) -> &dyn Store {
        &*self.behind
    }

    async fn query(&self, query: Query) -> Result<Hits, QueryError> {
        let filters = query.filters.clone();
        let mut hits = self.behind.query(query).await?;
        let batch: Arc<[Command]> = self.some_acts(&filters).into();
        if !batch.is_empty() {
            self.behind.apply(batch).await?;
        }
        self.count(filters, hits.head).await?;
        if self.says == Says::Now {
            hits.head = self.behind.bounds().await?.head;
        }
        Ok(hits)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_on_sqlite() {
    let seed = Seed::of_run("-p kukuri-relay g11_on_sqlite");
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = SqliteStore::open(directory.path(), options).unwrap();
    let between = run(Arc::new(store), seed, Says::TheTruth).await.unwrap();
    assert!(
        between >= BETWEEN_MIN,
        "only {between} questions had a matching commit before they were live"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_on_postgres() {
    let seed = Seed::of_run("-p kukuri-relay g11_on_postgres");
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let fsync = kukuri_store_postgres::Fsync::AnyForTests;
    let options =
        kukuri_store_postgres::Options { fsync, ..kukuri_store_postgres::Options::STANDARD };
    let store = PostgresStore::open(&cluster.create_database(), options).await.unwrap();
    let between = run(Arc::new(store), seed, Says::TheTruth).await.unwrap();
    assert!(
        between >= BETWEEN_MIN,
        "only {between} questions had a matching commit before they were live"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hand_off_at_the_wrong_place_is_caught() {
    let seed = Seed::of_run("-p kukuri-relay a_hand_off_at_the_wrong_place_is_caught");
    let store = Arc::new(kukuri_store::Model::default());
    let error = run(store, seed, Says::Now).await.unwrap_err();
    assert!(error.contains("misses"), "{error}");
}

/// How many questions had a matching commit between their stored events and going live.
async fn run(store: Arc<dyn Store>, seed: Seed, says: Says) -> Result<usize, String> {
    let world = Arc::new(World::new(seed, 0, EVENTS));
    let mut dice = seed.part(1).dice();
    let acts = arrivals(&world, &mut dice).into();
    // All topics but one are carried from the start; that one links events later.
    let first = world.topics[1..].iter().map(|topic| Act::carry(topic.clone(), String::new()));
    let first: Vec<Command> = first.map(|act| Command { at: World::now(), act }).collect();
    store.apply(first.into()).await.unwrap();
    let (behind, between) = (Arc::clone(&store), AtomicUsize::new(0));
    let busy = Arc::new(Busy {
        behind,
        acts: Mutex::new((acts, dice)),
        says,
        world: Arc::clone(&world),
        between,
    });
    let config = config();
    let limits = RelayLimits { limit_max: 100_000, ..config.limits.clone() };
    let config = RelayConfig { limits, ..config };
    let rig = Rig::over(busy.clone(), config, OpenGate).await;
    let mut askers = tokio::task::JoinSet::new();
    let (asked, settled) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
    for nth in 0..CONNECTIONS {
        let (client, world) = (rig.client().await, Arc::clone(&world));
        let asker = Asker::new(client, world, seed.part(10 + nth).dice());
        askers.spawn(asker.run(Arc::clone(&asked), settled.subscribe()));
    }
    let open = CONNECTIONS as usize * REQUESTS_EACH;
    until("asking", || asked.load(Ordering::Relaxed) == open).await;
    let head = store.bounds().await.unwrap().head;
    let live = || {
        let stats = rig.fanout.stats();
        stats.position >= head && stats.subscriptions == open
    };
    until("going live", live).await;
    settled.send_replace(true);
    let mut askers = askers.join_all().await;
    let records = delivery::records(&*store, world.ids()).await.unwrap();
    for asker in &mut askers {
        asker.drain().await;
        for (filters, given) in asker.asked.values() {
            delivery::judge(&records, filters, given, World::NOW)?;
        }
    }
    Ok(busy.between.load(Ordering::Relaxed))
}

/// A client with many questions.
struct Asker {
    client: Client,
    world: Arc<World>,
    dice: Dice,
    asked: HashMap<String, (Vec<Filter>, Vec<EventId>)>,
    waiting: BTreeSet<String>,
}

impl Asker {
    fn new(client: Client, world: Arc<World>, dice: Dice) -> Self {
        Self { client, world, dice, asked: HashMap::new(), waiting: BTreeSet::new() }
    }

    /// Asks, and reads on until everything has settled.
    async fn run(mut self, asked: Arc<AtomicUsize>, mut settled: watch::Receiver<bool>) -> Self {
        self.ask_all().await;
        asked.fetch_add(self.asked.len(), Ordering::Relaxed);
        loop {
            tokio::select! {
                message = self.client.expect() => self.heard(&message),
                _ = settled.wait_for(|settled| *settled) => return self,
            }
        }
    }

    /// Asks until so many questions are open, a few at a time.
    async fn ask_all(&mut self) {
        let mut nth = 0;
        while self.asked.len() < REQUESTS_EACH || !self.waiting.is_empty() {
            if self.asked.len() < REQUESTS_EACH && self.waiting.len() < 4 {
                nth += 1;
                let filters = group_in_topics(&self.world, &mut self.dice);
                let texts = filters.iter().map(Filter::to_json).collect::<Vec<_>>().join(",");
                self.client.send_text(format!(r#"["REQ","{nth}",{texts}]"#)).await;
                self.asked.insert(nth.to_string(), (filters, Vec::new()));
                self.waiting.insert(nth.to_string());
            } else {
                let message = self.client.expect().await;
                self.heard(&message);
            }
        }
    }

    fn heard(&mut self, message: &Value) {
        let sub = message[1].as_str().unwrap();
        match message[0].as_str().unwrap() {
            "EVENT" => {
                let id = EventId::parse(message[2]["id"].as_str().unwrap()).unwrap();
                self.asked.get_mut(sub).unwrap().1.push(id);
            }
            "EOSE" => assert!(self.waiting.remove(sub), "{message}"),
            // A topic that is not carried yet, or a hashtag.
            "CLOSED" => {
                let why = message[2].as_str().unwrap();
                assert!(why.contains("topic"), "{message}");
                self.waiting.remove(sub);
                self.asked.remove(sub);
            }
            _ => panic!("{message}"),
        }
    }

    /// Reads everything that was sent before now.
    async fn drain(&mut self) {
        self.client.send(json!(["CLOSE"])).await;
        loop {
            let message = self.client.expect().await;
            if message[0] == "NOTICE" {
                return;
            }
            self.heard(&message);
        }
    }
}
