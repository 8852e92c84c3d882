//! What is replayed of events that have left topics meanwhile: the same from the ring as from the
//! feed, and what a specification says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kukuri_core::{Act, Admitted, Command, Cursor, FeedRow, Op, Seq, TopicId, UnlinkReason};
use kukuri_event::{Event, EventId, Filter, TagLetter, matches_any};
use kukuri_fanout::{Attached, Fanout, FanoutConfig, Mailbox, Subscription};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use kukuri_store_sqlite::SqliteStore;
use kukuri_testkit::generate::{Dice, Seed, World, group, untrimmed};

use crate::handoff::reach;
use crate::letterbox::Letterbox;
use crate::slow::apply;

/// No ring at all, so that everything comes from the feed; one that loses rows; one that has all.
const RINGS_ROWS: [usize; 3] = [0, 20, 16_384];

/// Several fan-outs of one store, which must not differ.
struct Stage {
    store: Arc<dyn Store>,
    fanouts: Vec<Fanout>,
}

impl Stage {
    async fn new(store: Arc<dyn Store>, rings_rows: &[usize]) -> Self {
        let mut fanouts = Vec::new();
        for ring_rows_max in rings_rows {
            let config = FanoutConfig { ring_rows_max: *ring_rows_max, ..FanoutConfig::STANDARD };
            let clock = Arc::new(World::now);
            fanouts.push(Fanout::start(Arc::clone(&store), clock, config).await.unwrap());
        }
        Self { store, fanouts }
    }

    /// Waits until all have passed on everything, and says how far that is.
    async fn settle(&self) -> Seq {
        let head = self.store.bounds().await.unwrap().head;
        for fanout in &self.fanouts {
            reach(fanout, head).await;
        }
        head
    }

    /// The rows by which someone who comes late is given events, which is the same everywhere.
    async fn replay(&self, filters: &[Filter], after: Seq) -> Vec<Seq> {
        let mut all = Vec::new();
        for fanout in &self.fanouts {
            let subscription = Subscription { key: fanout.new_key(), filters: filters.into() };
            let letterbox = Letterbox::new();
            let mailbox: Arc<dyn Mailbox> = letterbox.clone();
            let cursor = Cursor { epoch: fanout.epoch(), seq: after };
            let attached = fanout.attach(&subscription, &mailbox, cursor).await.unwrap();
            assert!(matches!(attached, Attached::Live(_)), "{attached:?}");
            fanout.detach(subscription.key);
            let given = letterbox.delivered(subscription.key);
            all.push(given.into_iter().filter_map(|(seq, _)| seq).collect::<Vec<_>>());
        }
        let first = all.swap_remove(0);
        assert!(all.iter().all(|other| *other == first), "{filters:?} {after}: {first:?} {all:?}");
        first
    }
}

fn sqlite() -> (tempfile::TempDir, Arc<dyn Store>) {
    let directory = tempfile::tempdir().unwrap();
    let options = kukuri_store_sqlite::Options::standard(1);
    let store = SqliteStore::open(directory.path(), options).unwrap();
    (directory, Arc::new(store))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_left_a_topic_is_replayed_rightly_in_memory() {
    tell(Arc::new(Model::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_left_a_topic_is_replayed_rightly_on_sqlite() {
    let (_directory, store) = sqlite();
    tell(store).await;
}

/// An event on two topics left the first. The ring then gave it to nobody who wanted both: the row of
/// the first topic was taken for gone, and that of the second says that the event was known. The feed
/// went on giving it to those who wanted the first alone.
async fn tell(store: Arc<dyn Store>) {
    let stage = Stage::new(store, &[0, 2, 100]).await;
    let event = note("ab");
    let unlink = |digit, reason| {
        let events = vec![event.event().id()];
        Act::Unlink { topic: topic(digit), events, reason }
    };
    let carry = |digit| Act::carry(topic(digit), "");
    let publish = || Act::Publish(event.clone());

    // Rows 1, upsert a, and 2, upsert b with a before it.
    stage.act([carry('a'), carry('b'), publish()]).await;
    stage.expect(&[("ab", 0, &[1]), ("a", 0, &[1]), ("b", 0, &[2]), ("ab", 1, &[])]).await;
    // Row 3, delete a; b remains.
    stage.act([unlink('a', UnlinkReason::Topic)]).await;
    stage.expect(&[("ab", 0, &[1]), ("a", 0, &[]), ("b", 0, &[2]), ("", 0, &[1])]).await;
    stage.expect(&[("ab", 1, &[]), ("b", 1, &[2]), ("ab", 2, &[]), ("", 1, &[])]).await;
    // Row 4, upsert a with b before it. It is new again to those who want a alone, as it would have
    // been to them live.
    stage.act([publish()]).await;
    stage.expect(&[("ab", 0, &[1]), ("a", 0, &[1, 4]), ("b", 0, &[2]), ("", 0, &[1])]).await;
    stage.expect(&[("ab", 1, &[]), ("a", 1, &[4]), ("b", 2, &[]), ("a", 4, &[])]).await;
    // Rows 5 and 6: delete a, delete b, and with it the event.
    stage.act(['a', 'b'].map(|digit| unlink(digit, UnlinkReason::Topic))).await;
    stage.expect(&[("ab", 0, &[]), ("a", 3, &[]), ("b", 0, &[]), ("", 0, &[])]).await;
    // Rows 7 and 8: it comes back, and its earlier life is no matter any more.
    stage.act([publish()]).await;
    stage.expect(&[("ab", 0, &[7]), ("a", 0, &[7]), ("b", 0, &[8]), ("", 0, &[7])]).await;
    stage.expect(&[("ab", 6, &[7]), ("a", 4, &[7]), ("b", 7, &[8]), ("ab", 7, &[])]).await;
}

impl Stage {
    async fn act(&self, acts: impl IntoIterator<Item = Act>) {
        apply(&*self.store, acts.into_iter().collect()).await;
        self.settle().await;
    }

    /// Who wants these topics, or any, and comes after this row is given the event by these rows.
    async fn expect(&self, expected: &[(&str, i64, &[i64])]) {
        for (digits, after, rows) in expected {
            let mut filter = Filter::default();
            if !digits.is_empty() {
                let topics = digits.chars().map(|digit| topic(digit).to_string()).collect();
                filter.tags.insert(TagLetter::TOPIC, topics);
            }
            let rows: Vec<Seq> = rows.iter().copied().map(Seq).collect();
            let given = self.replay(&[filter], Seq(*after)).await;
            assert_eq!(given, rows, "{digits:?} after {after}");
        }
    }
}

fn note(digits: &str) -> Admitted {
    let draft = Draft::new(1, World::NOW);
    let draft = digits.chars().fold(draft, |draft, digit| draft.tag("t", topic(digit)));
    Author::numbered(1).admit(&draft, World::NOW)
}

/// The topic of 64 times one hex digit.
fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

const EVENTS: usize = 60;
const COMMANDS: usize = 1_200;
const COMMANDS_PER_BATCH: usize = 6;
const BATCHES_PER_ROUND: usize = 10;
const REPLAYS_PER_ROUND: usize = 150;

/// Histories until all that is to be met was met: what is rare comes up twice in one, and forty times in another.
const HISTORIES_MAX: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn replays_follow_the_specification_in_memory() {
    let seed = Seed::of_run("replays_follow_the_specification_in_memory");
    compare(seed, || ((), Arc::new(Model::default()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_follow_the_specification_on_sqlite() {
    compare(Seed::of_run("replays_follow_the_specification_on_sqlite"), sqlite).await;
}

async fn compare<D>(seed: Seed, open: impl Fn() -> (D, Arc<dyn Store>)) {
    let mut seen = Seen::default();
    for nth in 0..HISTORIES_MAX {
        let (_directory, store) = open();
        compare_one(store, seed.part(nth), &mut seen).await;
        if seen.is_enough() {
            println!("{seen:?} in {} histories", nth + 1);
            return;
        }
    }
    panic!("rules that come to mind first would not have been noticed: {seen:?}");
}

/// A random history in which events are linked, unlinked, deleted, purged and come back. At many
/// moments of it, random subscriptions come late by any number of rows.
async fn compare_one(store: Arc<dyn Store>, seed: Seed, seen: &mut Seen) {
    let (world, mut dice) = (World::new(seed, 0, EVENTS), seed.part(1).dice());
    let stage = Stage::new(store, &RINGS_ROWS).await;
    let commands = untrimmed(&world, &mut dice, COMMANDS);
    let batches: Vec<&[Command]> = commands.chunks(COMMANDS_PER_BATCH).collect();
    for round in batches.chunks(BATCHES_PER_ROUND) {
        for batch in round {
            stage.store.apply((*batch).into()).await.unwrap();
        }
        stage.settle().await;
        replay_some(&stage, &world, &mut dice, seen).await;
    }
}

async fn replay_some(stage: &Stage, world: &World, dice: &mut Dice, seen: &mut Seen) {
    let start = stage.store.bounds().await.unwrap().start();
    let rows = stage.store.feed(start, usize::MAX).await.unwrap();
    let spec = Spec::new(world, &rows);
    for _ in 0..REPLAYS_PER_ROUND {
        let filters = group(world, dice);
        // Near the end, where a small ring has them all, as often as anywhere.
        let late_by_max = if dice.chance(50) { rows.len() } else { rows.len().min(20) };
        let after = Seq((rows.len() - dice.below(1 + late_by_max)) as i64);
        let expected = spec.replay(&filters, after, seen);
        assert_eq!(stage.replay(&filters, after).await, expected, "{filters:?} after {after}");
    }
}

/// What the comparison has met.
#[derive(Debug, Default)]
struct Seen {
    given: usize,
    /// Rows that were new to the subscription, of events that are not there for it any more.
    gone: usize,
    /// Rows that are given although their own topic has lost the event.
    by_other_topics: usize,
}

impl Seen {
    fn is_enough(&self) -> bool {
        self.given > 300 && self.gone > 300 && self.by_other_topics > 10
    }
}

/// The rule, over the whole history: a row is replayed if it made its event new to the subscription,
/// and the event has been there ever since and matches now.
struct Spec<'a> {
    events: BTreeMap<EventId, &'a Event>,
    rows: &'a [FeedRow],
    lives: BTreeMap<EventId, Life>,
}

/// The last life of an event, over if it has no topics.
#[derive(Default)]
struct Life {
    began: Seq,
    topics: BTreeSet<TopicId>,
}

impl<'a> Spec<'a> {
    fn new(world: &'a World, rows: &'a [FeedRow]) -> Self {
        let events = world.events.iter().map(|checked| (checked.event().id(), checked.event()));
        let mut lives: BTreeMap<EventId, Life> = BTreeMap::new();
        for row in rows {
            let life = lives.entry(row.event_id).or_default();
            match row.op {
                Op::Upsert if life.topics.is_empty() => {
                    *life = Life { began: row.seq, topics: [row.topic_id.clone()].into() };
                }
                Op::Upsert => assert!(life.topics.insert(row.topic_id.clone())),
                Op::Delete => assert!(life.topics.remove(&row.topic_id)),
            }
        }
        Self { events: events.collect(), rows, lives }
    }

    fn replay(&self, filters: &[Filter], after: Seq, seen: &mut Seen) -> Vec<Seq> {
        let mut given = Vec::new();
        for row in self.rows.iter().filter(|row| row.seq > after && row.op == Op::Upsert) {
            let (event, life) = (self.events[&row.event_id], &self.lives[&row.event_id]);
            let (prior, topics): (Vec<&TopicId>, Vec<&TopicId>) =
                (row.prior.iter().collect(), life.topics.iter().collect());
            let then: Vec<&TopicId> = prior.iter().copied().chain([&row.topic_id]).collect();
            let knew = !prior.is_empty() && matches_any(filters, event, &prior);
            if knew || !matches_any(filters, event, &then) {
                continue;
            }
            let there = !topics.is_empty() && row.seq >= life.began;
            if there && matches_any(filters, event, &topics) {
                given.push(row.seq);
                seen.by_other_topics += usize::from(!life.topics.contains(&row.topic_id));
            } else {
                seen.gone += 1;
            }
        }
        seen.given += given.len();
        given
    }
}
