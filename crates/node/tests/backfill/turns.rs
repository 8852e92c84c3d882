//! Several relays, of which some are slow.

use std::slice::from_ref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kukuri_client::sync::PeerConfig;
use kukuri_core::backfill::Why;
use kukuri_node::backfill::{
    Allowed, BackfillSettings, Backfiller, Gap, Puller, RELAYS_AT_ONCE_MAX,
};
use kukuri_store::{Clock, Model};
use kukuri_testkit::condition::until;
use tokio::time::timeout;

use crate::bounds::{WAIT_MAX, again, moving};
use crate::rig::{ANY, Node, limits, note, topic};
use crate::strange::relay;

/// Who asks relays that may take as long as they like.
fn patient(node: &Node, from: Vec<String>, head_start: Duration) -> Backfiller {
    let hour = Duration::from_secs(3600);
    let waits = PeerConfig { answer_wait_max: hour, ..PeerConfig::STANDARD };
    let allowed = Allowed { time_max: hour, ..ANY };
    let puller = Puller { waits, allowed, ..again(node) };
    Backfiller::new(puller, BackfillSettings { from, interval: hour, head_start, allowed })
}

/// Relays that never answer, and how often they were asked. They are asked first, by their names.
async fn silent(count: usize) -> (Vec<String>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut urls = Vec::new();
    for _ in 0..count {
        let counted = Arc::clone(&asked);
        let url = relay(move |message| {
            counted.fetch_add(usize::from(message[0] == "NEG-OPEN"), Ordering::Relaxed);
            Vec::new()
        });
        urls.push(url.await);
    }
    (urls, asked)
}

/// By another name, which comes after those.
fn last(node: &Node) -> String {
    node.url.replace("127.0.0.1", "localhost")
}

/// Relays were asked one after the other about one topic after the other: one that took all the time that a
/// reconciliation has, held up all others and all topics.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_relay_holds_up_nobody_else() {
    let (a, b) = (topic('a'), topic('b'));
    let topics = [a.clone(), b.clone()];
    let one = Node::start(&topics).await;
    one.publish([note(&a, 1), note(&b, 2)]).await;
    let two = Node::at(moving(), Arc::new(Model::default()), &topics, limits()).await;
    // As many as may be asked at once, less one.
    let (mut from, asked) = silent(RELAYS_AT_ONCE_MAX - 1).await;
    from.push(last(&one));
    let backfiller = patient(&two, from, Duration::from_millis(1));
    let (gaps, mut state) = (backfiller.gaps(), backfiller.state());
    let running = tokio::spawn(backfiller.run());
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 2)).await.unwrap().unwrap();
    until("all slow ones are asked", || asked.load(Ordering::Relaxed) == 3).await;
    // So are gaps that are told meanwhile.
    one.publish([note(&b, 3)]).await;
    gaps.tell(Gap { topic: b.clone(), why: Why::Lagged, from: None });
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 3)).await.unwrap().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3, "each has one question at a time");
    running.abort();
    assert!(running.await.is_err());
}

/// However many relays are named and however slow they are, one that the operator has chosen has its turn.
#[tokio::test(flavor = "multi_thread")]
async fn named_relays_leave_room_for_chosen_ones() {
    let topic = topic('a');
    let one = Node::start(from_ref(&topic)).await;
    one.publish([note(&topic, 1)]).await;
    let two = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits()).await;
    let (named, asked) = silent(RELAYS_AT_ONCE_MAX).await;
    let backfiller = patient(&two, vec![last(&one)], Duration::from_millis(1));
    let (gaps, mut state) = (backfiller.gaps(), backfiller.state());
    for url in named {
        gaps.tell(Gap { topic: topic.clone(), why: Why::Partition, from: Some(url) });
    }
    let running = tokio::spawn(backfiller.run());
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 1)).await.unwrap().unwrap();
    until("some slow ones are asked", || asked.load(Ordering::Relaxed) == 2).await;
    running.abort();
    assert!(running.await.is_err());
}

/// Two relays that have the same are not both fetched from, unless the first one takes long.
#[tokio::test(flavor = "multi_thread")]
async fn what_two_relays_have_is_fetched_once() {
    let topic = topic('a');
    let (one, other) = (Node::start(from_ref(&topic)).await, Node::start(from_ref(&topic)).await);
    for node in [&one, &other] {
        node.publish((1..=300).map(|age| note(&topic, age))).await;
    }
    let two = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits()).await;
    let from = vec![one.url.clone(), other.url.clone()];
    let backfiller = patient(&two, from, Duration::from_secs(3600));
    let mut state = backfiller.state();
    let running = tokio::spawn(backfiller.run());
    timeout(WAIT_MAX, state.wait_for(|state| state.passes == 2)).await.unwrap().unwrap();
    assert_eq!((state.borrow().fetched, state.borrow().accepted), (300, 300));
    running.abort();
    assert!(running.await.is_err());
}

/// A panic in one reconciliation ended the task of all of them, and with it the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciliation_that_panics_is_tried_again() {
    let topic = topic('a');
    let one = Node::start(from_ref(&topic)).await;
    one.publish([note(&topic, 1)]).await;
    let two = Node::at(moving(), Arc::new(Model::default()), from_ref(&topic), limits()).await;
    // Its clock panics wherever it is looked at by another task than the one that runs them all.
    let (own, panics) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
    let (known, counted, clock) = (Arc::clone(&own), Arc::clone(&panics), moving());
    let clock: Clock = Arc::new(move || {
        let elsewhere = known.get().is_some_and(|own| tokio::task::try_id() != Some(*own));
        if elsewhere && counted.fetch_add(1, Ordering::Relaxed) < 2 {
            panic!("on purpose");
        }
        clock()
    });
    let (from, interval) = (vec![one.url.clone()], Duration::from_secs(1));
    let settings = BackfillSettings { from, interval, head_start: interval, allowed: ANY };
    let backfiller = Backfiller::new(Puller { clock, ..again(&two) }, settings);
    let mut state = backfiller.state();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        gone.await.unwrap();
        backfiller.run().await;
    });
    own.set(running.id()).unwrap();
    go.send(()).unwrap();
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 1)).await.unwrap().unwrap();
    assert_eq!(state.borrow().passes_failed, 2, "each panic is a failure of one of them");
    assert!(panics.load(Ordering::Relaxed) >= 2);
    assert!(!running.is_finished());
    running.abort();
    assert!(running.await.is_err());
}
