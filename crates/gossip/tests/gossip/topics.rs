//! Swarms follow the topics that are carried, and heal.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kukuri_core::TopicId;
use kukuri_core::backfill::Why;
use kukuri_gossip::{NodeKey, PeerHint};
use kukuri_store::{Model, Store};
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::port::lasting_port;

use crate::rig::{Homes, LIMIT, Node, note, numbered, topic};

/// A topic that is carried is received within two seconds (`kukuri-bench gossip` says in how many); on a machine that
/// does other things, too, it is awaited for longer.
const JOINED_WITHIN: Duration = Duration::from_secs(10);

/// Tries after which a swarm asks for new connections, and not only to be let in.
const IN_VAIN: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_joined_when_it_is_carried_and_left_when_it_is_not() {
    let homes = Homes::new();
    for [one, two, _] in homes.three_of_each().await {
        follows_its_topics(one, two).await;
    }
}

async fn follows_its_topics(one: Arc<dyn Store>, two: Arc<dyn Store>) {
    let (a, others) = (topic('a'), ['b', 'c', 'd'].map(topic));
    let one = Node::over(one, &[std::slice::from_ref(&a), &others[..]].concat(), &[]).await;
    let two = Node::over(two, std::slice::from_ref(&a), &[&one]).await;
    two.until_joined(&a, 1).await;
    for b in &others {
        assert_eq!(one.neighbours(b), 0);
        one.publish(&note(std::slice::from_ref(b), "too early")).await;
        let start = Instant::now();
        two.carry(b, true).await;
        let joined = async || (two.neighbours(b) == 1 && one.neighbours(b) == 1).then_some(());
        wait_for_async("it has joined", JOINED_WITHIN, joined).await.unwrap();
        let event = note(std::slice::from_ref(b), "in time");
        one.publish(&event).await;
        two.until_holds(&event).await;
        println!("received {:?} after it was carried", start.elapsed());
    }
    let [b, ..] = &others;
    two.carry(b, false).await;
    let left = async || (one.neighbours(b) == 0).then_some(());
    wait_for_async("it has left", LIMIT, left).await.unwrap();
    assert_eq!(two.gossip.status().topics.len(), others.len());
    assert_eq!((one.neighbours(&a), two.neighbours(&a)), (1, 1), "other swarms are as they were");
    let joined = |topic: &TopicId| (topic.clone(), Why::Joined, None);
    let all = [&a].into_iter().chain(&others).map(joined);
    assert_eq!(two.told(), all.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_topics_are_joined_at_once_and_one_more_than_allowed_is_left_out() {
    let homes = Homes::new();
    for [one, two, _] in homes.three_of_each().await {
        joins_two_hundred(one, two).await;
    }
}

async fn joins_two_hundred(one: Arc<dyn Store>, two: Arc<dyn Store>) {
    let topics: Vec<TopicId> = (0..200).map(numbered).collect();
    let one = Node::over(one, &topics, &[]).await;
    let peer = one.hint();
    let two = Node::with(two, &[], |config| {
        config.peers = vec![peer];
        config.topics_max = 200;
    })
    .await;
    for t in &topics {
        two.carry(t, true).await;
    }
    let start = Instant::now();
    let joined = async || {
        (two.gossip.status().joined() == 200 && one.gossip.status().joined() == 200).then_some(())
    };
    wait_for_async("all swarms", JOINED_WITHIN, joined).await.unwrap();
    println!("200 topics were joined {:?} after the last was carried", start.elapsed());
    for (nth, t) in topics.iter().enumerate() {
        one.publish(&note(std::slice::from_ref(t), &format!("{nth}"))).await;
    }
    two.until_stats("one event of each", |stats| stats.accepted == 200).await;
    assert_eq!(two.gossip.status().left_out, 0);
    two.carry(&numbered(200), true).await;
    let left_out = async || (two.gossip.status().left_out == 1).then_some(());
    wait_for_async("one is left out", LIMIT, left_out).await.unwrap();
    two.carry(&numbered(0), false).await;
    let taken_up = async || {
        let status = two.gossip.status();
        let last = numbered(200);
        status.topics.iter().any(|topic| topic.topic_id == last.as_str()).then_some(())
    };
    wait_for_async("it has taken the place of another", LIMIT, taken_up).await.unwrap();
}

/// A peer that is not there when the node starts is dialled until it is; and when it has gone and come back,
/// both find each other again.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_comes_late_or_comes_back_is_found() {
    let t = [topic('a')];
    let address = SocketAddr::from(([127, 0, 0, 1], lasting_port().unwrap()));
    let later = Node::with(Arc::new(Model::default()), &t, |config| config.listen = address).await;
    let hint: PeerHint = later.hint();
    let key = std::fs::read(later.directory().join("key")).unwrap();
    later.gossip.close().await;
    let node =
        Node::with(Arc::new(Model::default()), &t, |config| config.peers = vec![hint.clone()])
            .await;
    node.until_stats("a dial that fails", |stats| stats.dials_failed >= 1).await;
    for round in 0..2 {
        // Who says goodbye to nobody that answers lets go of its socket a moment later.
        let free = async || UdpSocket::bind(address).ok().map(drop);
        wait_for_async("the address", LIMIT, free).await.unwrap();
        let back = Node::with(Arc::new(Model::default()), &t, |config| {
            config.listen = address;
            NodeKey::in_directory(&config.directory).unwrap();
            std::fs::write(config.directory.join("key"), &key).unwrap();
        })
        .await;
        assert_eq!(back.hint(), hint, "the same key is the same node");
        back.until_joined(&t[0], 1).await;
        node.until_joined(&t[0], 1).await;
        let event = note(&t, &format!("round {round}"));
        back.publish(&event).await;
        node.until_holds(&event).await;
        let why = if round == 0 { Why::Joined } else { Why::Partition };
        assert_eq!(node.told().last().unwrap().1, why);
        back.gossip.close().await;
        let alone = async || (node.neighbours(&t[0]) == 0).then_some(());
        wait_for_async("it is alone", LIMIT, alone).await.unwrap();
    }
}

/// Every topic that stays alone had all connections closed that led nowhere, each time that it had asked in vain: with
/// many topics, a connection never lived long enough to lead anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_topics_are_alone_connections_are_made_anew_once_in_a_while() {
    let [a, b, c] = ['a', 'b', 'c'].map(topic);
    let peer = Node::start(&[topic('f')], &[]).await;
    let node = Node::start(std::slice::from_ref(&a), &[&peer]).await;
    // One after the other, so that each asks for it at another moment, when there is a connection again.
    for (before, next) in [(&a, &b), (&b, &c)] {
        let tried = async || (node.tries(before) >= 2).then_some(());
        wait_for_async("a try in vain", LIMIT, tried).await.unwrap();
        node.carry(next, true).await;
    }
    let in_vain = async || [&a, &b, &c].iter().all(|t| node.tries(t) > IN_VAIN).then_some(());
    wait_for_async("all have asked for new connections", LIMIT, in_vain).await.unwrap();
    node.until_stats("a second dial", |stats| stats.dials == 2).await;
    let connected = async || (node.gossip.status().connected.len() == 1).then_some(());
    wait_for_async("the connection is there", LIMIT, connected).await.unwrap();
    assert_eq!((node.stats().dials, node.stats().dials_failed), (2, 0));
    // What is made anew leads somewhere: the peer carries one of them now.
    peer.carry(&c, true).await;
    node.until_joined(&c, 1).await;
}

/// A node that was told of nobody remembers who has come to it, and finds them again by itself.
#[tokio::test(flavor = "multi_thread")]
async fn neighbours_are_remembered() {
    let t = [topic('a')];
    let one = Node::start(&t, &[]).await;
    let two = Node::start(&t, &[&one]).await;
    one.until_joined(&t[0], 1).await;
    let remembered = async || std::fs::read_to_string(one.directory().join("neighbours.json")).ok();
    let book = wait_for_async("a book", LIMIT, remembered).await.unwrap();
    assert!(book.contains(&two.hint().id.to_string()), "{book}");
    let third = Node::with(Arc::new(Model::default()), &t, |config| {
        std::fs::write(config.directory.join("neighbours.json"), &book).unwrap();
    })
    .await;
    third.until_joined(&t[0], 1).await;
    two.until_joined(&t[0], 2).await;
}

/// A relay is believed to be where a peer says only if the operator has named the peer.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_named_may_say_where_its_relay_is() {
    let t = [topic('a')];
    let store = || Arc::new(Model::default());
    let one =
        Node::with(store(), &t, |config| config.announce = Some("ws://127.0.0.1:1".into())).await;
    let peer = one.hint();
    let two = Node::with(store(), &t, |config| {
        config.announce = Some("ws://127.0.0.1:2".into());
        config.peers = vec![peer];
    })
    .await;
    let heard = (t[0].clone(), Why::Joined, Some("ws://127.0.0.1:1".to_owned()));
    let told = async || two.told().contains(&heard).then_some(());
    wait_for_async("a relay", LIMIT, told).await.unwrap();
    // The other one has heard as much by now: the two greet each other at the same moment.
    let event = note(&t, "afterwards");
    two.publish(&event).await;
    one.until_holds(&event).await;
    assert!(one.told().iter().all(|(_, _, from)| from.is_none()), "{:?}", one.told());
    assert_eq!(one.stats().unreadable, 0);
}
