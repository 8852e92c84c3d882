//! What is known to be missing, and who sees to it.

use std::sync::Arc;

use kukuri_core::backfill::Why;
use kukuri_node::backfill::{Backfiller, Gap};
use kukuri_store::{Model, Store};
use tokio::time::timeout;

use crate::bounds::{WAIT_MAX, backfiller, moving, shown};
use crate::rig::{Homes, Node, limits, node, note, topic};

/// A gap that was told to a process that stands by was noted nowhere, and the one that does backfill does not
/// hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_stands_by_keeps_gaps_until_its_turn() {
    for stores in Homes::new().shared().await {
        keeps_gaps(stores).await;
    }
}

async fn keeps_gaps([first, second]: [Arc<dyn Store>; 2]) {
    let (a, b) = (topic('a'), topic('b'));
    let (known, named) = (Node::start(&[a.clone(), b.clone()]).await, node(&a).await);
    known.publish([note(&a, 1), note(&b, 2)]).await;
    let first = Node::at(moving(), first, &[a.clone(), b.clone()], limits()).await;
    let second = Node::at(moving(), second, &[], limits()).await;
    let from = vec![known.url.clone()];
    let (doing, standing_by) = (backfiller(&first, from.clone()), backfiller(&second, from));
    let (holder, mut done) = (doing.holder(), doing.state());
    let doing = tokio::spawn(doing.run());
    timeout(WAIT_MAX, done.wait_for(|state| state.accepted == 2)).await.unwrap().unwrap();
    let (gaps, mut state) = (standing_by.gaps(), standing_by.state());
    let standing_by = tokio::spawn(standing_by.run());
    known.publish([note(&b, 3)]).await;
    named.publish([note(&a, 4)]).await;
    let url = named.url.clone();
    gaps.tell(Gap { topic: a.clone(), why: Why::Partition, from: Some(url) });
    timeout(WAIT_MAX, state.wait_for(|state| state.gaps_waiting == 1)).await.unwrap().unwrap();
    // The first one is kept from one look to the next; what is of no topic of ours is not.
    gaps.tell(Gap { topic: topic('c'), why: Why::Lagged, from: None });
    gaps.tell(Gap { topic: b.clone(), why: Why::Lagged, from: None });
    timeout(WAIT_MAX, state.wait_for(|state| state.gaps_waiting == 2)).await.unwrap().unwrap();
    assert_eq!((state.borrow().holds, state.borrow().passes), (false, 0));
    assert_eq!(done.borrow().accepted, 2, "the next time by itself is an hour away");
    doing.abort();
    assert!(doing.await.is_err());
    Backfiller::release(&first.lane, holder).await;
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 2)).await.unwrap().unwrap();
    assert_eq!((state.borrow().gaps_waiting, state.borrow().gaps_dropped), (0, 0));
    for (topic, events) in [(&a, 2), (&b, 2)] {
        shown(&second, topic, events).await;
    }
    standing_by.abort();
    assert!(standing_by.await.is_err());
}

/// A relay that a peer has told of has everything by then, and more later: it is not forgotten when it was asked once.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_named_is_asked_again_when_something_was_missed() {
    let a = topic('a');
    let named = node(&a).await;
    named.publish([note(&a, 1)]).await;
    let here =
        Node::at(moving(), Arc::new(Model::default()), std::slice::from_ref(&a), limits()).await;
    let backfiller = backfiller(&here, Vec::new());
    let (gaps, mut state) = (backfiller.gaps(), backfiller.state());
    let running = tokio::spawn(backfiller.run());
    // However often it is told: once it is on its way, nothing is dropped.
    for _ in 0..10_000 {
        gaps.tell(Gap { topic: a.clone(), why: Why::Joined, from: Some(named.url.clone()) });
    }
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 1)).await.unwrap().unwrap();
    named.publish([note(&a, 2)]).await;
    gaps.tell(Gap { topic: a.clone(), why: Why::Lagged, from: None });
    timeout(WAIT_MAX, state.wait_for(|state| state.accepted == 2)).await.unwrap().unwrap();
    assert_eq!(state.borrow().gaps_dropped, 0);
    shown(&here, &a, 2).await;
    running.abort();
    assert!(running.await.is_err());
}
