//! How much is asked for and taken in, and who may stop it.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kukuri_core::backfill::Why;
use kukuri_core::ladder::{Cause, Move, Reason, Step};
use kukuri_core::{Act, Backfill, IngestPolicy, Task, TopicId, UnixMillis};
use kukuri_node::backfill::{Allowed, BackfillSettings, Backfiller, Ended, Gap, Pulled, Puller};
use kukuri_relay::{Allowance, RelayLimits};
use kukuri_store::{Clock, Model, node_state};
use kukuri_testkit::condition::{until, wait_for_async};
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::rig::{ANY, Node, id, limits, note, topic, watch};
use crate::strange::{claims, relay};

pub const WAIT_MAX: Duration = Duration::from_secs(60);

async fn pair(topic: &TopicId, events: i64) -> (Node, Node) {
    let one = Node::start(from_ref(topic)).await;
    one.publish((1..=events).map(|age| note(topic, age))).await;
    (one, Node::start(from_ref(topic)).await)
}

/// Moves the ladder of a node.
async fn climb(node: &Node, from: Step, to: Step) {
    let reason = Reason::Pressure(Cause::Events { events: 10, events_max: 9 });
    let moved = Move { from, to, at: UnixMillis(1), reason };
    let _outcome = node.lane.run(Act::Climb(moved)).await.unwrap();
    assert_eq!(node_state(&*node.store).await.unwrap().allowance.step, to);
}

async fn set_policy(node: &Node, topic: &TopicId, ingest_policy: IngestPolicy) {
    let set = Act::SetTopic {
        topic_id: topic.clone(),
        name: String::new(),
        enabled: true,
        pinned: true,
        wanted: 0,
        ingest_policy,
    };
    let _outcome = node.lane.run(set).await.unwrap();
}

#[tokio::test]
async fn the_budget_of_one_reconciliation() {
    let topic = topic('a');
    for (events_max, ended) in
        [(99, Ended::OverBudget), (100, Ended::Done), (101, Ended::Done), (0, Ended::OverBudget)]
    {
        let (one, mut two) = pair(&topic, 100).await;
        two.puller.allowed = Allowed { events_max, ..ANY };
        let pulled = two.pull(&topic, &one).await;
        assert_eq!((pulled.fetched, pulled.ended), (events_max.min(100), ended), "{events_max}");
        // What is left comes with the next one.
        two.puller.allowed = ANY;
        let rest = two.pull(&topic, &one).await;
        assert_eq!((rest.fetched, rest.ended), (100 - pulled.fetched, Ended::Done));
    }
}

/// So many events take no less time than the rate says; how much longer is the machine's business.
#[tokio::test]
async fn the_rate_is_kept() {
    let topic = topic('a');
    let (one, mut two) = pair(&topic, 30).await;
    two.puller.allowed = Allowed { per_second: 20, ..ANY };
    let pulled = two.pull(&topic, &one).await;
    assert_eq!(pulled.accepted, 30);
    assert!(pulled.elapsed >= Duration::from_millis(1400), "{:?}", pulled.elapsed);
}

#[tokio::test]
async fn a_policy_that_says_no_is_obeyed() {
    let topic = topic('a');
    let (one, two) = pair(&topic, 3).await;
    let off = IngestPolicy { backfill: Backfill::Off, ..IngestPolicy::default() };
    set_policy(&two, &topic, off).await;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!((pulled.ended, pulled.fetched), (Ended::NotAllowed, 0));
    set_policy(&two, &topic, IngestPolicy::default()).await;
    assert_eq!(two.pull(&topic, &one).await.accepted, 3);
}

#[tokio::test]
async fn the_ladder_stops_it() {
    let topic = topic('a');
    let (one, two) = pair(&topic, 3).await;
    climb(&two, Step::None, Step::StopBackfill).await;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!((pulled.ended, pulled.fetched), (Ended::Stopped, 0));
    assert_eq!(pulled.traffic, Pulled::default().traffic, "nobody was asked");
    climb(&two, Step::StopBackfill, Step::None).await;
    assert_eq!(two.pull(&topic, &one).await.accepted, 3);
}

/// In the middle of it, too: what has come by then is in, and the rest comes when the pressure is gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_ladder_stops_what_is_under_way() {
    let topic = topic('a');
    let (one, mut two) = pair(&topic, 600).await;
    two.puller.allowed = Allowed { per_second: 100, ..ANY };
    let (two, watch) = (Arc::new(two), watch());
    let pulling = {
        let (two, topic, watch, url) =
            (Arc::clone(&two), topic.clone(), watch.clone(), one.url.clone());
        tokio::spawn(async move {
            let mut pulled = Pulled::default();
            let topic = two.topic(&topic).await;
            two.puller.pull(&topic, &url, &watch, &mut pulled).await.map(|()| pulled)
        })
    };
    until("the first event", || watch.bar.position() > 0).await;
    climb(&two, Step::None, Step::StopBackfill).await;
    let pulled = timeout(WAIT_MAX, pulling).await.unwrap().unwrap().unwrap();
    assert_eq!(pulled.ended, Ended::Stopped);
    assert!((1..600).contains(&pulled.accepted), "{pulled}");
    climb(&two, Step::StopBackfill, Step::None).await;
    let mut rest = Pulled::default();
    let puller = Puller { allowed: ANY, ..again(&two) };
    puller.pull(&two.topic(&topic).await, &one.url, &crate::rig::watch(), &mut rest).await.unwrap();
    assert_eq!(pulled.accepted + rest.accepted, 600);
}

pub fn again(node: &Node) -> Puller {
    let Puller { store, lane, clock, limits, topicless, .. } = &node.puller;
    Puller {
        store: Arc::clone(store),
        lane: Arc::clone(lane),
        clock: Arc::clone(clock),
        limits: limits.clone(),
        topicless: *topicless,
        own: node.puller.own,
        chunks_in_lane_max: 2,
        question_ids_max: node.puller.question_ids_max,
        waits: node.puller.waits,
        allowed: ANY,
        memory: Arc::default(),
    }
}

/// A relay that compares few ids at once is asked about shorter times, and everything comes.
#[tokio::test]
async fn what_is_too_big_is_asked_for_in_parts() {
    let topic = topic('a');
    let limits = RelayLimits { neg_ids_max: 50, filter_values_max: 20, ..limits() };
    let one = Node::over(Arc::new(Model::default()), from_ref(&topic), limits).await;
    one.publish((1..=300).map(|age| note(&topic, age * 60))).await;
    let two = Node::start(from_ref(&topic)).await;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!((pulled.named, pulled.accepted), (300, 300));
    assert_eq!(two.pull(&topic, &one).await.named, 0);
}

/// A relay that is asked too much is asked again a little later.
#[tokio::test]
async fn a_relay_that_wants_it_slower_is_waited_for() {
    let topic = topic('a');
    let requests_per_ip = Allowance { per_minute: 600, burst: 6 };
    let limits = RelayLimits { requests_per_ip, ..limits() };
    // A rate comes back with time alone.
    let one = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits).await;
    one.publish((1..=400).map(|age| note(&topic, age))).await;
    let mut two = Node::start(from_ref(&topic)).await;
    // Twenty questions are more than the relay takes at once.
    two.puller.question_ids_max = 20;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!(pulled.accepted, 400);
}

pub fn backfiller(node: &Node, from: Vec<String>) -> Backfiller {
    let interval = Duration::from_secs(3600);
    let head_start = Duration::from_secs(3600);
    Backfiller::new(again(node), BackfillSettings { from, interval, head_start, allowed: ANY })
}

pub async fn shown(node: &Node, topic: &TopicId, events: usize) {
    let all = wait_for_async("all events", WAIT_MAX, async || {
        (node.view(from_ref(topic)).await.len() >= events).then_some(())
    });
    all.await.unwrap();
}

/// A clock that goes on as time does.
pub fn moving() -> Clock {
    let begun = std::time::Instant::now();
    Arc::new(move || World::now().saturating_add(begun.elapsed()))
}

/// One instance does it; what is missing when it starts comes by itself, and what a gap names when it is
/// told. Another instance goes on when the first one lets go.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_are_filled() {
    let topic = topic('a');
    let (one, _) = pair(&topic, 3).await;
    let two = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits()).await;
    let doing = backfiller(&two, vec![one.url.clone()]);
    let (gaps, holder, mut state) = (doing.gaps(), doing.holder(), doing.state());
    let running = tokio::spawn(doing.run());
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 3)).await.unwrap().unwrap();
    let held = node_state(&*two.store).await.unwrap().leases.get(Task::Backfill).unwrap();
    assert_eq!(held.holder, Some(holder));
    // The next time by itself is an hour away.
    one.publish([note(&topic, 10)]).await;
    gaps.tell(Gap { topic: topic.clone(), why: Why::Lagged, from: None });
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 4)).await.unwrap().unwrap();
    // Another one stands by, and knows of no relay but the one that it is told of.
    let other = backfiller(&two, Vec::new());
    let (gaps, mut standing_by) = (other.gaps(), other.state());
    gaps.tell(Gap { topic: topic.clone(), why: Why::Partition, from: Some(one.url.clone()) });
    let following = tokio::spawn(other.run());
    one.publish([note(&topic, 11)]).await;
    running.abort();
    assert!(running.await.is_err());
    assert!(!standing_by.borrow().holds);
    Backfiller::release(&two.lane, holder).await;
    timeout(WAIT_MAX, standing_by.wait_for(|state| state.accepted == 1)).await.unwrap().unwrap();
    following.abort();
    assert!(following.await.is_err());
    assert_eq!((state.borrow().passes_failed, standing_by.borrow().passes_failed), (0, 0));
    shown(&two, &topic, 5).await;
}

/// A relay that somebody has named was forgotten before it was asked, so that one failure lost what it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_named_relay_that_fails_is_asked_again() {
    let topic = topic('a');
    let missed = note(&topic, 1);
    let (named, body) = ([id(&missed)], missed.body().json().to_owned());
    let body: Value = serde_json::from_str(&body).unwrap();
    let asked = AtomicUsize::new(0);
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN") if asked.fetch_add(1, Ordering::Relaxed) < 2 => {
            vec![json!(["NEG-ERR", message[1], "error: not now"])]
        }
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&named, message)],
        Some("REQ") => vec![json!(["EVENT", message[1], body]), json!(["EOSE", message[1]])],
        _ => Vec::new(),
    })
    .await;
    let node = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits()).await;
    let (from, interval) = (Vec::new(), Duration::from_secs(1));
    let settings = BackfillSettings { from, interval, head_start: interval, allowed: ANY };
    let backfiller = Backfiller::new(again(&node), settings);
    let (gaps, mut state) = (backfiller.gaps(), backfiller.state());
    gaps.tell(Gap { topic: topic.clone(), why: Why::Partition, from: Some(url) });
    let running = tokio::spawn(backfiller.run());
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 1)).await.unwrap().unwrap();
    assert_eq!(state.borrow().passes_failed, 2);
    running.abort();
    assert!(running.await.is_err());
}

/// However many gaps are told, nobody waits; they are kept by topic, and topics that find no room are counted.
#[tokio::test]
async fn gaps_of_too_many_topics_are_counted() {
    let node = Node::start(&[topic('a')]).await;
    let backfiller = backfiller(&node, Vec::new());
    let (gaps, state) = (backfiller.gaps(), backfiller.state());
    let gap = |nth: usize| {
        let topic = TopicId::parse(&format!("kukuri:{nth:064x}")).unwrap();
        Gap { topic, why: Why::Lagged, from: None }
    };
    (0..4096).for_each(|nth| gaps.tell(gap(nth)));
    (0..4096).for_each(|nth| gaps.tell(gap(nth)));
    assert_eq!(state.borrow().gaps_dropped, 0);
    gaps.tell(gap(4096));
    assert_eq!(state.borrow().gaps_dropped, 1);
}
