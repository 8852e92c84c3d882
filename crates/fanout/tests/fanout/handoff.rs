//! G11: a question asked at a random instant under load is answered with every matching event exactly
//! once, from what is stored and what comes live together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kukuri_core::{Act, Command, Cursor, FeedRow, Seq};
use kukuri_event::EventId;
use kukuri_fanout::{Attached, Fanout, FanoutConfig, Mailbox, Subscription};
use kukuri_store::{Model, Query, Store};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::delivery;
use kukuri_testkit::generate::{Dice, Seed, World, arrivals, group};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::letterbox::Letterbox;

const EVENTS: usize = 900;
const ASKERS: u64 = 8;
const REQUESTS_EACH: u64 = 60;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Where a subscription is attached after its stored events were read at S.
#[derive(Clone, Copy)]
enum At {
    S,
    /// The sabotage: wherever the fan-out happens to be.
    Position,
}

struct Asked {
    subscription: Subscription,
    letterbox: Arc<Letterbox>,
    stored: Vec<EventId>,
    s: Seq,
    /// Where the fan-out was when the subscription was attached.
    position: Seq,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_exact_hand_off_in_memory() {
    let seed = Seed::of_run("g11_exact_hand_off_in_memory");
    let between = run(Arc::new(Model::default()), seed, At::S).await.unwrap();
    assert!(between >= 20, "only {between} questions had a matching commit before they were live");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_exact_hand_off_on_sqlite() {
    let seed = Seed::of_run("g11_exact_hand_off_on_sqlite");
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = SqliteStore::open(directory.path(), options).unwrap();
    let between = run(Arc::new(store), seed, At::S).await.unwrap();
    assert!(between >= 20, "only {between} questions had a matching commit before they were live");
}

/// The check sees what goes wrong when the hand-off is not at S.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hand_off_elsewhere_is_caught() {
    let seed = Seed::of_run("a_hand_off_elsewhere_is_caught");
    let error = run(Arc::new(Model::default()), seed, At::Position).await.unwrap_err();
    assert!(error.contains("misses"), "{error}");
}

/// How many questions had a matching commit between S and the moment they were live.
async fn run(store: Arc<dyn Store>, seed: Seed, at: At) -> Result<usize, String> {
    let world = Arc::new(World::new(seed, 0, EVENTS));
    let config = FanoutConfig { ring_rows_max: 40, page_rows_max: 16, ..FanoutConfig::STANDARD };
    let clock = Arc::new(World::now);
    let fanout = Arc::new(Fanout::start(Arc::clone(&store), clock, config).await.unwrap());
    let acts: VecDeque<Act> = arrivals(&world, &mut seed.part(1).dice()).into();
    let acts = Arc::new(Mutex::new(acts));
    let mut askers = JoinSet::new();
    for nth in 0..ASKERS {
        let asker = Asker {
            world: Arc::clone(&world),
            store: Arc::clone(&store),
            fanout: Arc::clone(&fanout),
            dice: seed.part(10 + nth).dice(),
            at,
            acts: Arc::clone(&acts),
        };
        askers.spawn(asker.run());
    }
    let asked: Vec<Asked> = askers.join_all().await.into_iter().flatten().collect();
    let head = store.bounds().await.unwrap().head;
    reach(&fanout, head).await;
    judge(&*store, &world, &asked).await
}

/// What is published by whoever asks, between reading what is stored and going live.
type Acts = Arc<Mutex<VecDeque<Act>>>;

/// Commits a small batch of what is left.
async fn publish(store: &dyn Store, acts: &Acts, dice: &mut Dice) -> Seq {
    let batch: Vec<Command> = {
        let mut acts = acts.lock().unwrap();
        let size = acts.len().min(1 + dice.below(2));
        acts.drain(..size).map(|act| Command { at: World::now(), act }).collect()
    };
    store.apply(batch.into()).await.unwrap().head()
}

/// Waits until the fan-out has passed on all rows up to a seq.
pub async fn reach(fanout: &Fanout, seq: Seq) {
    let reached = async {
        while fanout.stats().position < seq {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT_MAX, reached).await.expect("the fan-out reaches the head");
}

struct Asker {
    world: Arc<World>,
    store: Arc<dyn Store>,
    fanout: Arc<Fanout>,
    dice: Dice,
    at: At,
    acts: Acts,
}

impl Asker {
    async fn run(mut self) -> Vec<Asked> {
        let mut asked = Vec::new();
        for _ in 0..REQUESTS_EACH {
            asked.push(self.ask().await);
        }
        asked
    }

    async fn ask(&mut self) -> Asked {
        let filters = group(&self.world, &mut self.dice);
        let subscription =
            Subscription { key: self.fanout.new_key(), filters: filters.clone().into() };
        let epoch = self.fanout.epoch();
        let hits = self.store.query(Query {
            filters,
            after: None,
            now: World::NOW,
            limit_max: usize::MAX,
            rows_max: 100_000,
            bodies_max: 0,
        });
        let hits = hits.await.unwrap();
        // Sometimes so much that the ring does not reach back to S.
        let batches = self.dice.weigh(&[(0, 20), (1, 50), (4, 25), (30, 5)]);
        for _ in 0..batches {
            let head = publish(&*self.store, &self.acts, &mut self.dice).await;
            // The fan-out is ahead of S as often as it is behind.
            if self.dice.chance(50) {
                reach(&self.fanout, head).await;
            }
        }
        let letterbox = Letterbox::new();
        let mailbox: Arc<dyn Mailbox> = letterbox.clone();
        let position = self.fanout.stats().position;
        let seq = match self.at {
            At::S => hits.head,
            At::Position => position.max(hits.head),
        };
        let attached = self.fanout.attach(&subscription, &mailbox, Cursor { epoch, seq }).await;
        assert!(matches!(attached, Ok(Attached::Live(_))), "{attached:?}");
        let stored = hits.hits.iter().map(|hit| hit.id).collect();
        Asked { subscription, letterbox, stored, s: hits.head, position }
    }
}

/// Everyone has seen everything that matches in the end, and nothing twice.
async fn judge(store: &dyn Store, world: &World, asked: &[Asked]) -> Result<usize, String> {
    let records = delivery::records(store, world.ids()).await.unwrap();
    let rows = all_rows(store).await;
    let mut between = 0;
    for asked in asked {
        let live = asked.letterbox.delivered(asked.subscription.key);
        let given = asked.stored.iter().copied().chain(live.iter().map(|(_, id)| *id));
        let filters = &asked.subscription.filters;
        delivery::judge(&records, filters, &given.collect::<Vec<_>>(), World::NOW)?;
        let passed = rows.iter().filter(|row| row.seq > asked.s && row.seq <= asked.position);
        let took = |row: &FeedRow| {
            let record = records.iter().find(|record| record.event().id() == row.event_id);
            record.is_some_and(|record| asked.subscription.takes(row, record.event()))
        };
        between += usize::from(passed.into_iter().any(took));
    }
    Ok(between)
}

async fn all_rows(store: &dyn Store) -> Vec<FeedRow> {
    let start = store.bounds().await.unwrap().start();
    store.feed(start, usize::MAX).await.unwrap()
}
