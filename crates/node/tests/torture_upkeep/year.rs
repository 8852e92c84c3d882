//! A year of mixed traffic, a day at a time, against an oracle: after every round of upkeep what can be
//! read is what policy says, counters are what a recount says, and memory and room stay bounded.

mod oracle;
mod policy;
mod sabotage;
mod traffic;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, CursorError, Seq, TopicId, Usage};
use kukuri_store::conformance::dump;
use kukuri_store::{Entry, FeedError, Place, Store};
use kukuri_testkit::audit::audit;
use kukuri_testkit::generate::Seed;
use kukuri_testkit::spec::Event;

use crate::home::{Home, Room};
use crate::rig::{self, DAY, Node, Time, doctor, pages, topic};
use oracle::Oracle;
use policy::{Full, NODE, NodeRules};
use traffic::Traffic;

const DAYS: u32 = 365;
/// How often everything that is stored is looked at, and not only what counts and what is visible.
const DAYS_PER_AUDIT: u32 = 15;
const DAYS_PER_REPORT: u32 = 30;

/// One day brings as much as many others together.
const BURST_DAY: u32 = 100;
const BURST_EVENTS: usize = 1_500;
const BURST_TOPIC: char = 'a';
/// By then it has left again.
const BURST_OVER: u32 = BURST_DAY + 35;

/// Partitions that hold events, the one that is being filled, and one that is being dropped.
const PARTITIONS_MAX: u64 = 8;

/// SQLite keeps so many free bytes in its file for what is written next.
const FREE_BYTES_KEPT: u64 = 4 << 20;

/// How long a node that is short of room is watched at the end of a day: the ladder goes by minutes.
const MINUTES_WATCHED: u32 = 6;

/// After the year nothing comes any more, until all of it is forgotten.
const QUIET_MONTHS: u32 = 8;

/// When the operator changes what the node may hold and how long it remembers, and what to.
const PHASES: &[(u32, NodeRules)] = &[
    // Less than there is: the ladder is climbed to its end.
    (190, NodeRules { max_events: Some(250), ..NODE }),
    (240, NODE),
    (270, NodeRules { max_bytes: Some(220_000), full: Full::Refuse, ..NODE }),
    (300, NODE),
    // What is forgotten meanwhile does not come back when memory is longer again.
    (310, NodeRules { memory_days: 45, ..NODE }),
    (325, NODE),
];

/// When the operator changes how long a topic keeps events: from which day on, which topic, and to what.
const POLICIES: &[(u32, char, Option<i64>)] =
    &[(120, 'c', Some(10)), (150, 'a', Some(5)), (220, 'a', None), (250, 'c', Some(60))];

/// What a year was like, so that one can tell that it was one.
#[derive(Debug, Default)]
struct Report {
    arrived: usize,
    answers: BTreeSet<String>,
    steps: BTreeSet<u8>,
    before_burst: Room,
    at_burst: Room,
    after_burst: Room,
    at_end: Room,
    quiet: Room,
}

struct Year {
    home: Home,
    node: Node,
    oracle: Oracle,
    traffic: Traffic,
    /// At which times the feed had got how far.
    heads: Vec<(i64, Seq)>,
    floor: Seq,
    report: Report,
}

impl Year {
    /// `store` is the one in `home`, or something that stands in for it.
    async fn begin(home: Home, store: Arc<dyn Store>, seed: Seed, oracle: Oracle) -> Self {
        let node = Node::start(store, &Time::start());
        let topics = policy::topics();
        for (digit, rules) in &topics {
            node.set_topic(*digit, rules.told()).await;
        }
        let traffic = Traffic::new(seed.dice(), topics.into_keys().collect());
        let (heads, floor, report) = (Vec::new(), Seq::ZERO, Report::default());
        Self { home, node, oracle, traffic, heads, floor, report }
    }

    fn now(&self) -> i64 {
        self.node.time.now().0
    }

    /// # Errors
    /// The first thing that is not as policy says.
    async fn run(&mut self) -> Result<(), String> {
        for day in 1..=DAYS {
            self.day(day).await.map_err(|fault| format!("day {day}: {fault}"))?;
            if day % DAYS_PER_REPORT == 0 {
                let ((events, bytes), room) = (self.oracle.sum(None), self.home.room());
                println!("day {day}: {events} events, {} KiB of them; {room}", bytes / 1024);
            }
            match day {
                _ if day == BURST_DAY - 1 => self.report.before_burst = self.home.room(),
                BURST_DAY => self.report.at_burst = self.home.room(),
                BURST_OVER => self.report.after_burst = self.home.room(),
                DAYS => self.report.at_end = self.home.room(),
                _ => {}
            }
        }
        for month in 1..=QUIET_MONTHS {
            self.node.time.pass(30 * DAY);
            self.keep().await.map_err(|fault| format!("quiet month {month}: {fault}"))?;
        }
        self.audit().await?;
        self.report.quiet = self.home.room();
        Ok(())
    }

    async fn day(&mut self, day: u32) -> Result<(), String> {
        let hours = self.traffic.dice().range(20..28).unsigned_abs();
        self.node.time.pass(Duration::from_secs(hours * 60 * 60));
        for (_, digit, days) in POLICIES.iter().filter(|(from, ..)| *from == day) {
            let rules = self.oracle.topics.get_mut(digit).expect("it is carried");
            rules.retention_days = *days;
            self.node.set_topic(*digit, rules.told()).await;
        }
        if let Some((_, rules)) = PHASES.iter().find(|(from, _)| *from == day) {
            self.node.resettle(rules.told());
            self.oracle.resettle(*rules);
            // A node that starts looks at once.
            self.keep().await?;
        }
        let now = self.node.time.now();
        let mut arrivals = self.traffic.day(now.seconds());
        if day == BURST_DAY {
            arrivals.extend(self.traffic.burst(now.seconds(), BURST_TOPIC, BURST_EVENTS));
        }
        let said = self.node.publish(&arrivals).await;
        self.note_head().await?;
        for ((text, source), said) in arrivals.iter().zip(said) {
            let expected = self.oracle.publish(text, *source, now.0);
            self.report.arrived += 1;
            if said != expected {
                let event = Event { tags: Vec::new(), ..Event::read(text) };
                let by = format!("{event:?} by {source:?}");
                return Err(format!("{by} is answered {said:?}, not {expected:?}"));
            }
            self.report.answers.insert(said);
        }
        // Before upkeep has looked at it, what has expired is not there.
        self.node.time.pass(Duration::from_secs(60 * 60));
        let digit = *self.traffic.dice().pick(&['a', 'b', 'c', 'd', 'e', 'f', '7']);
        self.compare_visible(digit).await?;
        self.keep().await?;
        self.watch().await?;
        if day.is_multiple_of(DAYS_PER_AUDIT) {
            self.audit().await?;
        }
        Ok(())
    }

    async fn watch(&mut self) -> Result<(), String> {
        for _ in 0..MINUTES_WATCHED {
            if !self.oracle.is_restless() {
                break;
            }
            self.node.time.pass(Duration::from_secs(60));
            self.keep().await?;
        }
        Ok(())
    }

    async fn keep(&mut self) -> Result<(), String> {
        self.node.keep().await;
        self.note_head().await?;
        self.oracle.keep(self.node.time.now().0);
        self.report.steps.insert(self.oracle.step);
        let digits: Vec<char> = self.oracle.topics.keys().copied().collect();
        for digit in digits {
            self.compare_visible(digit).await?;
        }
        self.compare_counters().await?;
        self.compare_feed().await
    }

    async fn compare_visible(&self, digit: char) -> Result<(), String> {
        let (found, expected) =
            (self.node.visible(digit).await, self.oracle.visible(digit, self.now()));
        if found == expected {
            return Ok(());
        }
        let set = |ids: &[String]| ids.iter().cloned().collect::<BTreeSet<_>>();
        let (found, expected) = (set(&found), set(&expected));
        let (more, less) = (found.difference(&expected), expected.difference(&found));
        let list = |ids: Vec<&String>| format!("{} {:?}", ids.len(), ids.first());
        let (more, less) = (list(more.collect()), list(less.collect()));
        Err(format!("topic {digit}: visible and should not be: {more}; not visible: {less}"))
    }

    async fn compare_counters(&self) -> Result<(), String> {
        let (counters, recount) = (self.node.counters().await, self.node.recount().await);
        if counters != recount {
            return Err(format!("the counters say {counters:?}, a recount {recount:?}"));
        }
        let usage = |(events, bytes)| Usage { events, bytes };
        let expected = self.oracle.topics.keys().map(|digit| Some(*digit)).chain([None]);
        let expected = expected.map(|digit| {
            let topic: Option<TopicId> = digit.map(topic);
            (topic, usage(self.oracle.sum(digit)))
        });
        let expected = expected.collect();
        if counters != expected {
            return Err(format!("the counters say {counters:?}, policy {expected:?}"));
        }
        Ok(())
    }

    /// The rows that came since the last time are of now: whatever writes any is followed by this.
    async fn note_head(&mut self) -> Result<(), String> {
        let bounds = self.node.store.bounds().await.map_err(|error| error.to_string())?;
        self.heads.push((self.now(), bounds.head));
        Ok(())
    }

    /// The feed begins after the last row that is old enough, and says so to who is further behind.
    async fn compare_feed(&mut self) -> Result<(), String> {
        let bounds = self.node.store.bounds().await.map_err(|error| error.to_string())?;
        let feed = async |seq| self.node.store.feed(Cursor { epoch: bounds.epoch, seq }, 1).await;
        let old = self.now() - self.oracle.node.feed_days * (DAY.as_millis() as i64);
        let last_old = self.heads.iter().rfind(|(at, _)| *at <= old);
        let expected = last_old.map_or(Seq::ZERO, |(_, seq)| *seq);
        if bounds.floor != expected {
            return Err(format!("the feed begins after {}, not after {expected}", bounds.floor));
        }
        let first = feed(bounds.floor).await.map_err(|error| error.to_string())?.pop();
        if first.as_ref().is_some_and(|row| row.ingested_at.0 <= old) {
            return Err(format!("the feed begins with {first:?}"));
        }
        if bounds.floor > Seq::ZERO {
            let below = feed(Seq(bounds.floor.0 - 1)).await;
            if !matches!(below, Err(FeedError::Cursor(CursorError::Truncated { .. }))) {
                return Err(format!("below the floor {} there is {below:?}", bounds.floor));
            }
        }
        self.floor = bounds.floor;
        Ok(())
    }

    /// What is remembered, and whether everything that is stored holds together.
    async fn audit(&self) -> Result<(), String> {
        let entries = dump(&*self.node.store).await;
        audit(&entries, self.floor)?;
        let found = doctor(&*self.node.store).await;
        if !found.is_empty() {
            return Err(format!("doctor: {found:?}"));
        }
        let mut ids = BTreeSet::new();
        for entry in pages(&*self.node.store, Place::Dedupe(None)).await {
            let Entry::Dedupe(id, _) = entry else { unreachable!("a page of memories") };
            ids.insert(id.to_hex());
        }
        if ids != self.oracle.remembered() {
            let (found, expected) = (ids.len(), self.oracle.remembered().len());
            return Err(format!("{found} ids are remembered, not the {expected} that should be"));
        }
        let mut deletions = BTreeSet::new();
        for entry in pages(&*self.node.store, Place::Tombstones(None)).await {
            let Entry::Tombstone(key, _) = entry else { unreachable!("a page of deletions") };
            deletions.insert((key.target.to_hex(), key.pubkey.to_string()));
        }
        if deletions != self.oracle.requested() {
            let (found, expected) = (deletions.len(), self.oracle.requested().len());
            return Err(format!("{found} deletions are remembered, not {expected}"));
        }
        Ok(())
    }
}

/// What a year must have had, or it proves nothing.
fn was_a_year(report: &Report) {
    for said in [
        "",
        "duplicate: already have this event",
        "duplicate: seen before, no longer kept",
        "duplicate: a newer version is stored",
        "blocked: deleted by its author",
        "invalid: created_at too old",
        "invalid: expired",
        "restricted: topic is full",
        "restricted: node is full",
        "restricted: topic is paused, the node is short of room",
        "restricted: topic takes no backfill now",
    ] {
        assert!(report.answers.contains(said), "nothing was answered {said:?}");
    }
    assert_eq!(report.steps, BTreeSet::from([0, 1, 2, 3]), "the ladder was not climbed");
}

fn room_came_back(report: &Report) {
    let Report { before_burst, at_burst, after_burst, at_end, quiet, .. } = report;
    println!("before the burst {before_burst}");
    println!("at the burst {at_burst}; when it had left {after_burst}");
    println!("at the end of the year {at_end}; when all was forgotten {quiet}");
    assert!(at_burst.bytes > 2 * before_burst.bytes, "it was a burst");
    assert!(after_burst.bytes < at_burst.bytes / 2, "its room was given back");
    let most = 2 * before_burst.bytes + FREE_BYTES_KEPT;
    assert!(at_end.bytes < most, "a year takes no more room than what is kept of it");
    let most = 3 * at_burst.beside / 2;
    assert!(at_end.beside <= most, "tables whose room is used again grow no further");
    assert!(quiet.bytes <= at_end.bytes, "what is empty takes no more");
    let partitions = at_end.partitions.max(quiet.partitions);
    assert!(
        partitions <= PARTITIONS_MAX,
        "of {partitions} partitions some should have been dropped"
    );
}

async fn run(test: &str, home: fn() -> Home) {
    for seed in rig::seed(test).rounds() {
        let home = home();
        let store = home.open().await;
        let oracle = Oracle::new(policy::topics(), NODE);
        let mut year = Year::begin(home, store, seed, oracle).await;
        let ended = year.run().await;
        ended.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let report = &year.report;
        println!("{} arrivals, {} different answers", report.arrived, report.answers.len());
        was_a_year(report);
        room_came_back(report);
        year.node.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_year_on_sqlite() {
    run("year::a_year_on_sqlite", Home::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_year_on_postgres() {
    run("year::a_year_on_postgres", Home::postgres).await;
}
