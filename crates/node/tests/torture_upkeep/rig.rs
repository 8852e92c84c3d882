//! One process of the node without its sockets: a store, its lane and its keeper, under a clock that goes
//! when it is told to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kukuri_core::admission::{Age, Door, Rate, Topicless, Verdict, screen};
use kukuri_core::{
    Act, Admitted, Capacity, IngestPolicy, Keeping, Limits, OnFull, Rejection, Retention, Source,
    TopicId, UnixMillis, Usage,
};
use kukuri_event::{Filter, UnixSeconds};
use kukuri_lane::{Lane, LaneConfig};
use kukuri_node::doctor::Walk;
use kukuri_node::upkeep::{Aging, Beat, Budget, Disk, Keeper, Pace, Sweep, UpkeepSettings};
use kukuri_store::{Clock, Entry, Place, Query, Store, Tidied, node_state};
use kukuri_testkit::generate::Seed;
use tokio::sync::watch;

/// When every story begins.
pub const START: UnixSeconds = UnixSeconds(1_700_000_000);

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer than a lease, so that a new keeper need not wait for one that is gone.
pub const LEASE_OVER: Duration = Duration::from_secs(31);

const DRAIN_WAIT_MAX: Duration = Duration::from_secs(30);
const SIGNATURES_CHECKED: u64 = 3;
/// More than there ever is.
const PLENTY: usize = 1 << 20;

/// What an operator has who has changed nothing, on a disk that is not looked at.
pub const SETTINGS: UpkeepSettings = UpkeepSettings {
    retention: Retention::STANDARD,
    keeping: Keeping::STANDARD,
    capacity: Capacity { max_events: None, max_bytes: None },
    on_full: OnFull::Evict,
    soft_percent: 90,
    disk_reserve_bytes: 0,
};

/// The seed of a test of this binary.
pub fn seed(test: &str) -> Seed {
    Seed::of_run(&format!("-p kukuri-node -E 'binary(torture_upkeep) and test(={test})'"))
}

pub fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).expect("it is canonical")
}

/// A clock that stands still until it is put forward.
#[derive(Clone)]
pub struct Time(Arc<AtomicI64>);

impl Time {
    pub fn start() -> Self {
        Self(Arc::new(UnixMillis::from(START).0.into()))
    }

    pub fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    pub fn pass(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).expect("less than an age");
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    /// As somebody who sets a clock right that was ahead.
    pub fn back(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).expect("less than an age");
        self.0.fetch_sub(millis, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let time = self.clone();
        Arc::new(move || time.now())
    }
}

pub struct Node {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub keeper: Keeper,
    pub time: Time,
    /// Of every door.
    pub limits: Limits,
}

impl Node {
    pub fn start(store: Arc<dyn Store>, time: &Time) -> Self {
        Self::start_with(store, time, SETTINGS, None)
    }

    pub fn start_with(
        store: Arc<dyn Store>,
        time: &Time,
        settings: UpkeepSettings,
        disk: Option<Disk>,
    ) -> Self {
        let lane = Lane::start(Arc::clone(&store), time.clock(), LaneConfig::STANDARD);
        let lane = Arc::new(lane);
        let keeper =
            Keeper::new(Arc::clone(&store), Arc::clone(&lane), time.clock(), settings, disk);
        let keeper = keeper.with_budget(Budget::UNBOUNDED);
        Self { store, lane, keeper, time: time.clone(), limits: Limits::STANDARD }
    }

    /// As an operator who edits the settings and starts the node again.
    pub fn resettle(&mut self, settings: UpkeepSettings) {
        let (store, lane) = (Arc::clone(&self.store), Arc::clone(&self.lane));
        let keeper = Keeper::new(store, lane, self.time.clock(), settings, None);
        self.keeper = keeper.with_budget(Budget::UNBOUNDED);
        self.limits.dedupe_retention_days = settings.keeping.memory_days.into();
    }

    /// Starts the keeper again, with doubts in its clock: it has another one that is never set.
    pub fn doubt(&mut self, other: &Time) {
        let (other, start) = (other.clone(), UnixMillis::from(START));
        let (store, lane) = (Arc::clone(&self.store), Arc::clone(&self.lane));
        let keeper = Keeper::new(store, lane, self.time.clock(), SETTINGS, None);
        let keeper = keeper.with_budget(Budget::UNBOUNDED);
        self.keeper = keeper.doubting(Arc::new(move || start.until(other.now())));
    }

    /// Starts the keeper again, which hears how many seconds the consumers of the feed are behind.
    pub fn hear(&mut self, lag_seconds: watch::Receiver<u64>) {
        let (store, lane) = (Arc::clone(&self.store), Arc::clone(&self.lane));
        let keeper = Keeper::new(store, lane, self.time.clock(), SETTINGS, None);
        self.keeper = keeper.with_budget(Budget::UNBOUNDED).hearing(lag_seconds);
    }

    pub async fn set_topic(&self, digit: char, ingest_policy: IngestPolicy) {
        let act = Act::SetTopic {
            topic_id: topic(digit),
            name: digit.to_string(),
            enabled: true,
            pinned: true,
            wanted: 0,
            ingest_policy,
        };
        let set = self.lane.run(act).await.expect("the lane answers");
        assert!(set.is_ok());
    }

    /// What is said to events that come by some doors, one after the other.
    pub async fn publish(&self, arrivals: &[(String, Source)]) -> Vec<String> {
        let screened: Vec<Result<Admitted, Rejection>> =
            arrivals.iter().map(|(text, source)| self.admit(text, Age::Bounded, *source)).collect();
        let acts = screened.iter().flatten().cloned().map(Act::Publish).collect();
        let tickets = self.lane.submit_all(acts).await.expect("there is room");
        let mut answers = tickets.await.into_iter();
        let said = screened.into_iter().map(|admitted| match admitted {
            Ok(_) => {
                let answer = answers.next().expect("an answer for each");
                answer.map_or_else(|error| error.to_string(), |outcome| outcome.message())
            }
            Err(refused) => refused.to_string(),
        });
        said.collect()
    }

    pub async fn say(&self, text: &str) -> String {
        self.publish(&[(text.to_owned(), Source::Ws)]).await.remove(0)
    }

    /// As `import --any-age`: the one door that lets in what was forgotten.
    pub async fn import_of_any_age(&self, text: &str) -> String {
        let admitted = self.admit(text, Age::Any, Source::Import);
        let act = Act::Publish(admitted.expect("it is valid"));
        self.lane.run(act).await.expect("the lane answers").message()
    }

    fn admit(&self, text: &str, age: Age, source: Source) -> Result<Admitted, Rejection> {
        let door = Door {
            limits: &self.limits,
            topicless: Topicless::Reject,
            age,
            now: self.time.now(),
            handles: &|_| true,
        };
        screen(text, Rate::Within, &door)?.verify()?.admit(Verdict::Admit, source, None)
    }

    /// As an operator who wants rid of what came into a topic before now.
    pub async fn purge(&self, digit: char) -> Usage {
        let mut beat = Beat::new(Pace::Unbounded);
        let mut sweep = Sweep {
            store: &*self.store,
            lane: &self.lane,
            fence: None,
            beat: &mut beat,
            until: None,
        };
        let mut aging = Aging::before([topic(digit)], UnixMillis(self.time.now().0 + 1));
        let (left, _) = sweep.age(&mut aging, &mut |_| {}).await.expect("the sweep ends");
        aging.into_result().expect("the topic can be looked at");
        left
    }

    /// A round of upkeep, and all the space given back that there is to give.
    pub async fn keep(&mut self) {
        self.keeper.round().await.expect("the round ends well");
        while self.store.tidy().await.expect("it can be tidied") == Tidied::More {}
    }

    /// What a question for a topic is answered now, in order.
    pub async fn visible(&self, digit: char) -> Vec<String> {
        let filter = Filter::parse(&format!(r##"{{"#t":["{}"]}}"##, topic(digit)));
        let query = Query {
            filters: vec![filter.expect("it is a filter")],
            after: None,
            now: self.time.now().seconds(),
            limit_max: PLENTY,
            rows_max: PLENTY,
            bodies_max: 0,
        };
        let found = self.store.query(query).await.expect("it is answered");
        found.hits.iter().map(|hit| hit.id.to_hex()).collect()
    }

    /// What the counters say, the node's under the name of `None`.
    pub async fn counters(&self) -> Counters {
        let topics = self.store.topics().await.expect("topics can be read");
        let topics = topics.into_iter().map(|(topic, usage)| (Some(topic.topic_id), usage));
        let node = node_state(&*self.store).await.expect("the node can be read");
        topics.chain([(None, node.usage)]).collect()
    }

    /// What the stored bodies add up to, one by one.
    pub async fn recount(&self) -> Counters {
        let topics = self.store.topics().await.expect("topics can be read");
        let mut counters: Counters =
            topics.into_iter().map(|(topic, _)| (Some(topic.topic_id), Usage::default())).collect();
        counters.insert(None, Usage::default());
        for entry in pages(&*self.store, Place::Records(None)).await {
            let Entry::Record(record) = entry else { unreachable!("a page of records") };
            let links = record.topics().cloned().map(Some).chain([None]);
            for of in links {
                counters.entry(of).or_default().add(record.body.json().len() as u64);
            }
        }
        counters
    }

    /// Ends in order.
    pub async fn end(self) {
        Keeper::release(&self.lane, self.keeper.holder()).await;
        self.lane.drain(DRAIN_WAIT_MAX).await.expect("the lane ends");
    }
}

pub type Counters = BTreeMap<Option<TopicId>, Usage>;

/// One table of the raw state.
pub async fn pages(store: &dyn Store, mut place: Place) -> Vec<Entry> {
    const ENTRIES_PER_PAGE: usize = 1000;
    let mut entries = Vec::new();
    loop {
        let page = store.page(place, ENTRIES_PER_PAGE).await.expect("a page can be read");
        let Some(last) = page.last() else { return entries };
        place = last.place();
        entries.extend(page);
    }
}

/// What the doctor finds.
pub async fn doctor(store: &dyn Store) -> Vec<String> {
    let examined = Walk::new(store, SIGNATURES_CHECKED, 0).run().await.expect("it can be walked");
    assert_eq!(examined.dropped, 0);
    examined.findings.iter().map(ToString::to_string).collect()
}
