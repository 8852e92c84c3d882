//! What one node takes in, all have: once each, and without loops.

use std::sync::Arc;

use kukuri_core::backfill::Why;
use kukuri_core::{Act, Op, Outcome, Source, TopicId};
use kukuri_store::Store;
use kukuri_testkit::condition::wait_for_async;

use crate::rig::{Homes, LIMIT, Node, note, topic};

#[derive(Clone, Copy, Debug)]
enum Shape {
    Line,
    Ring,
}

/// Every event is stored once at every node, and was broadcast once, by the one that a client gave it to.
async fn spreads(nodes: &[Node], t: &TopicId) {
    for (nth, from) in nodes.iter().enumerate() {
        let event = note(std::slice::from_ref(t), &format!("from {nth}"));
        from.publish(&event).await;
        for node in nodes {
            node.until_holds(&event).await;
        }
    }
    for (nth, node) in nodes.iter().enumerate() {
        let rows = node.rows().await;
        assert_eq!(rows.len(), nodes.len(), "each event has one row");
        for (of, row) in rows.iter().enumerate() {
            let own = of == nth;
            let (source, via) = if own { (Source::Ws, None) } else { (Source::Gossip, Some(t)) };
            assert_eq!((row.op, row.source, row.via.as_ref()), (Op::Upsert, source, via));
        }
        node.until_stats("one broadcast", |stats| stats.broadcasts == 1).await;
        node.until_stats("two events", |stats| stats.accepted == 2).await;
        let stats = node.stats();
        // The library drops what it has seen: nothing comes back, by whatever way.
        assert_eq!((stats.received, stats.duplicates), (2, 0), "{stats:?}");
        assert_eq!((stats.mutes, stats.refused, stats.unreadable), (0, 0, 0), "{stats:?}");
    }
}

async fn told(shape: Shape, [one, two, three]: [Arc<dyn Store>; 3]) {
    let t = [topic('a')];
    let one = Node::over(one, &t, &[]).await;
    let two = Node::over(two, &t, &[&one]).await;
    let known: &[&Node] = match shape {
        Shape::Line => &[&two],
        Shape::Ring => &[&one, &two],
    };
    let three = Node::over(three, &t, known).await;
    for node in [&one, &two, &three] {
        node.until_joined(&t[0], 1).await;
    }
    two.until_joined(&t[0], 2).await;
    spreads(&[one, two, three], &t[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn along_a_line_every_event_comes_once_to_everyone() {
    let homes = Homes::new();
    for stores in homes.three_of_each().await {
        told(Shape::Line, stores).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn around_a_ring_every_event_comes_once_to_everyone() {
    let homes = Homes::new();
    for stores in homes.three_of_each().await {
        told(Shape::Ring, stores).await;
    }
}

/// More than a swarm lets wait, at once: it stays in the feed until it is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_said_in_full() {
    const EVENTS: usize = 3000;
    let t = [topic('a')];
    let one = Node::start(&t, &[]).await;
    let two = Node::start(&t, &[&one]).await;
    one.until_joined(&t[0], 1).await;
    let acts = (0..EVENTS).map(|nth| Act::Publish(note(&t, &format!("burst {nth}"))));
    let answers = one.lane.submit_all(acts.collect()).await.unwrap().await;
    assert!(answers.iter().all(|answer| *answer == Ok(Outcome::Accepted)));
    one.until_stats("a burst", |stats| stats.broadcasts == EVENTS as u64).await;
    assert_eq!(one.stats().out_dropped, 0, "{:?}", one.stats());
    // What the library drops on its way is asked for, and told of: none is lost in silence.
    two.until_stats("its arrival", |stats| stats.lags > 0 || stats.accepted == EVENTS as u64).await;
    println!("{:?}", two.stats());
    let lagged = two.told().iter().any(|(_, why, _)| *why == Why::Lagged);
    assert_eq!(lagged, two.stats().lags > 0, "{:?}", two.stats());
}

/// A burst in one topic is said at its own pace, and what is published in another one meanwhile does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_in_one_topic_delays_no_other() {
    const EVENTS: usize = 10_000;
    let (a, b) = ([topic('a')], [topic('b')]);
    let t = [topic('a'), topic('b')];
    let one = Node::start(&t, &[]).await;
    let two = Node::start(&t, &[&one]).await;
    for topic in &t {
        one.until_joined(topic, 1).await;
        two.until_joined(topic, 1).await;
    }
    let acts = (0..EVENTS).map(|nth| Act::Publish(note(&a, &format!("burst {nth}"))));
    let acts: Vec<Act> = acts.collect();
    let parts = acts.chunks(2000);
    for part in parts {
        let answers = one.lane.submit_all(part.to_vec()).await.unwrap().await;
        assert!(answers.iter().all(|answer| *answer == Ok(Outcome::Accepted)));
    }
    let event = note(&b, "in between");
    one.publish(&event).await;
    let broadcast = || {
        let topics = one.gossip.status().topics;
        let of = topics.iter().find(|of| of.topic_id == t[0].as_str());
        of.map_or(0, |of| of.broadcasts)
    };
    let other = async || {
        let topics = one.gossip.status().topics;
        let of = topics.iter().find(|of| of.topic_id == t[1].as_str());
        of.is_some_and(|of| of.broadcasts == 1).then(broadcast)
    };
    let before = wait_for_async("the other topic", LIMIT, other).await.unwrap();
    println!("{before} of {EVENTS} were said before it");
    assert!((before as usize) < EVENTS, "it waited for all of them");
    one.until_stats("all", |stats| stats.broadcasts == EVENTS as u64 + 1).await;
    assert_eq!(one.stats().out_dropped, 0);
    two.until_holds(&event).await;
}
