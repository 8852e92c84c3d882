//! Streams that strangers open: few for those who only take room, enough for those who carry topics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iroh::Endpoint;
use iroh::endpoint::{Connection, SendStream};
use kukuri_core::TopicId;
use kukuri_gossip::message::WRAPPING_BYTES_MAX;
use kukuri_gossip::nudges::NUDGES_MAX;
use kukuri_gossip::outgoing::EVENT_BYTES_MAX;
use kukuri_gossip::streams::{
    NETWORK_LINKS_MAX, NODE_LINKS_MAX, SPARE_NETWORK_MAX, STRANGER_LINKS_MAX, STREAMS_START,
    WINDOW_BYTES,
};
use kukuri_gossip::{NodeKey, PeerHint};
use kukuri_store::Model;
use kukuri_testkit::condition::wait_for_async;
use kukuri_testkit::port::lasting_port;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::rig::{LIMIT, Node, address, bare, note, numbered};

/// Who has what is expected is given no more for so long: longer than it takes until QUIC says that it waits for
/// more. On a slow machine that shows less, and what is expected takes longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Five times the two seconds that joining may take.
const JOINED_WITHIN: Duration = Duration::from_secs(10);
/// The largest length that the library takes, for which it makes room at once.
const ANNOUNCED_BYTES: usize = EVENT_BYTES_MAX + 4 * WRAPPING_BYTES_MAX;
const TOPICS: u16 = 320;

/// Opens streams on these until there are so many in all, and for a while more, and says which each of them has then.
async fn hoard(connections: &[Connection], expected: usize) -> Vec<Vec<SendStream>> {
    let held: Vec<Mutex<Vec<SendStream>>> = connections.iter().map(|_| Mutex::default()).collect();
    let hoards = connections.iter().zip(&held).map(|(connection, held)| fill(connection, held));
    let mut all = std::pin::pin!(futures_util::future::join_all(hoards));
    let count = || held.iter().map(|held| held.lock().unwrap().len()).sum::<usize>();
    let enough = async || (count() >= expected).then_some(());
    tokio::select! {
        _ = &mut all => unreachable!("there are always more"),
        enough = wait_for_async("streams", LIMIT, enough) => {
            enough.unwrap_or_else(|late| panic!("{late}: {} of {expected}", count()));
        }
    }
    let _: Result<Vec<Infallible>, _> = timeout(PATIENCE, all).await;
    held.iter().map(|held| std::mem::take(&mut *held.lock().unwrap())).collect()
}

/// Opens one stream after another, says on each that a large message follows, and sends none.
async fn fill(connection: &Connection, held: &Mutex<Vec<SendStream>>) -> Infallible {
    loop {
        let mut stream = connection.open_uni().await.unwrap();
        let topic = [7_u8; 32];
        let header = [&u32::try_from(topic.len()).unwrap().to_be_bytes()[..], &topic].concat();
        let announced = u32::try_from(ANNOUNCED_BYTES).unwrap().to_be_bytes();
        stream.write_all(&[&header[..], &announced].concat()).await.unwrap();
        held.lock().unwrap().push(stream);
    }
}

/// Connects from each of these, and says which connections are taken, once one has been refused.
async fn all_but_one(endpoints: &[Endpoint], node: &Node) -> Vec<Connection> {
    let refused = node.stats().connections_refused;
    let dials = endpoints.iter().map(|one| one.connect(address(node), iroh_gossip::ALPN));
    let dialled = futures_util::future::join_all(dials).await;
    node.until_stats("a refusal", |stats| stats.connections_refused == refused + 1).await;
    let mut taken: Vec<Connection> = dialled.into_iter().filter_map(Result::ok).collect();
    // Who is refused hears of it after the handshake.
    let heard = async || {
        taken.retain(|connection| connection.close_reason().is_none());
        (taken.len() < endpoints.len()).then_some(())
    };
    wait_for_async("word of it", LIMIT, heard).await.unwrap();
    assert_eq!(taken.len(), endpoints.len() - 1);
    taken
}

/// A stranger could open two thousand streams, announce a large message on each, and the library set aside 150 MB for
/// one connection, of which there could be hundreds. Now all connections of one address together have no
/// more than a bound, and meanwhile others are served.
#[tokio::test(flavor = "multi_thread")]
async fn who_announces_and_sends_nothing_is_given_few_streams() {
    let t = [numbered(1)];
    let node = Node::start(&t, &[]).await;
    let honest = Node::start(&t, &[&node]).await;
    honest.until_joined(&t[0], 1).await;
    // One connection more than a node may have, and one node more than the address may have.
    let hoarder = vec![bare([127, 0, 0, 2]).await; NODE_LINKS_MAX + 1];
    let mut connections = all_but_one(&hoarder, &node).await;
    let mut hoarders = Vec::new();
    for _ in NODE_LINKS_MAX..=NETWORK_LINKS_MAX {
        hoarders.push(bare([127, 0, 0, 2]).await);
    }
    connections.extend(all_but_one(&hoarders, &node).await);
    assert_eq!(connections.len(), NETWORK_LINKS_MAX);
    // The first one takes all that the address may have beyond what each begins with.
    let (start, spare) = (STREAMS_START as usize, SPARE_NETWORK_MAX as usize);
    let mut streams = hoard(&connections[..1], start + spare).await;
    assert_eq!(streams[0].len(), start + spare);
    streams.extend(hoard(&connections[1..], (NETWORK_LINKS_MAX - 1) * start).await);
    assert!(streams[1..].iter().all(|streams| streams.len() == start));
    let all: usize = streams.iter().map(Vec::len).sum();
    assert_eq!(all, NETWORK_LINKS_MAX * start + spare);
    // Those who were there before are served.
    for (from, to) in [(&node, &honest), (&honest, &node)] {
        let event = note(&t, &format!("from {}", from.hint().id));
        from.publish(&event).await;
        to.until_holds(&event).await;
    }
    assert_eq!(honest.neighbours(&t[0]), 1, "it was never cut off");
    // What was lent comes back with the end of a connection.
    connections[0].close(0_u32.into(), b"");
    let more: usize = hoard(&connections[1..], spare / 2).await.iter().map(Vec::len).sum();
    assert!((spare / 2..=spare).contains(&more), "{more} streams again");
}

/// Strangers that take all the room there is for them take none of a peer that the operator has named, even at an
/// address of which no stranger is let in any more.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_take_no_room_of_a_named_peer() {
    let t = [numbered(1)];
    let (home, port) = (TempDir::new().unwrap(), lasting_port().unwrap());
    let key = NodeKey::in_directory(home.path()).unwrap();
    let crowded = SocketAddr::from(([127, 0, 0, 2], port));
    let hint: PeerHint = format!("{}@{crowded}", key.id()).parse().unwrap();
    let store = || Arc::new(Model::default());
    // With a neighbour it closes no connections by itself.
    let neighbour = Node::start(&t, &[]).await;
    let peers = vec![hint, neighbour.hint()];
    let node = Node::with(store(), &t, |config| config.peers = peers).await;
    node.until_joined(&t[0], 1).await;
    let mut strangers = Vec::new();
    for nth in 0..=STRANGER_LINKS_MAX {
        let network = u8::try_from(2 + nth / NETWORK_LINKS_MAX).unwrap();
        strangers.push(bare([127, 0, 0, network]).await);
    }
    let connections = all_but_one(&strangers, &node).await;
    assert_eq!(connections.len(), STRANGER_LINKS_MAX);
    let late = Node::with(store(), &t, |config| {
        config.listen = crowded;
        std::fs::copy(home.path().join("key"), config.directory.join("key")).unwrap();
    })
    .await;
    late.until_joined(&t[0], 1).await;
    node.until_joined(&t[0], 2).await;
    assert!(connections.iter().all(|connection| connection.close_reason().is_none()));
    let event = note(&t, "heard");
    late.publish(&event).await;
    node.until_holds(&event).await;
}

/// QUIC keeps what comes until it is read, and by itself a megabyte for every stream. The library reads no stream while
/// it waits for the beginning of another: whoever began one and went on with the others could fill gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn who_sends_what_nobody_reads_is_stopped() {
    let t = [numbered(1)];
    let node = Node::start(&t, &[]).await;
    let honest = Node::start(&t, &[&node]).await;
    honest.until_joined(&t[0], 1).await;
    let hoarder = bare([127, 0, 0, 2]).await;
    let connection = hoarder.connect(address(&node), iroh_gossip::ALPN).await.unwrap();
    let mut first = connection.open_uni().await.unwrap();
    first.write_all(&[0, 0]).await.unwrap();
    let sent = AtomicUsize::new(2);
    let fill = async || -> Infallible {
        let mut stream = connection.open_uni().await.unwrap();
        loop {
            let bytes = stream.write(&[0; 4096]).await.unwrap();
            sent.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    let window = WINDOW_BYTES as usize;
    let mut all =
        std::pin::pin!(futures_util::future::join_all((1..STREAMS_START).map(|_| fill())));
    let is_full = async || (sent.load(Ordering::Relaxed) >= window).then_some(());
    tokio::select! {
        _ = &mut all => unreachable!("there is always more"),
        full = wait_for_async("a full window", LIMIT, is_full) => full.unwrap(),
    }
    let _: Result<Vec<Infallible>, _> = timeout(PATIENCE, all).await;
    // A byte for every nudge may come to it.
    let (sent, nudges) = (sent.load(Ordering::Relaxed), 2 * NUDGES_MAX as usize);
    assert!((window..window + nudges).contains(&sent), "{sent} bytes");
    // Nothing else is taken at all.
    assert!(timeout(PATIENCE, connection.open_bi()).await.is_err());
    assert_eq!(connection.max_datagram_size(), None);
    assert!(connection.close_reason().is_none());
    let event = note(&t, "heard");
    honest.publish(&event).await;
    node.until_holds(&event).await;
}

/// A node that nobody has named shares more topics with another than its connection begins with streams.
#[tokio::test(flavor = "multi_thread")]
async fn who_shares_many_topics_is_let_into_all_of_them() {
    let topics: Vec<TopicId> = (0..TOPICS).map(numbered).collect();
    assert!(topics.len() > 2 * STREAMS_START as usize);
    let one = Node::start(&topics, &[]).await;
    let start = Instant::now();
    let two = Node::start(&topics, &[&one]).await;
    let joined = async || {
        let all = [&one, &two].iter().all(|node| node.gossip.status().joined() == topics.len());
        all.then_some(())
    };
    wait_for_async("all swarms", JOINED_WITHIN, joined).await.unwrap();
    println!("{TOPICS} topics were joined within {:?}", start.elapsed());
    for (nth, t) in topics.iter().enumerate() {
        two.publish(&note(std::slice::from_ref(t), &format!("{nth}"))).await;
    }
    one.until_stats("one event of each", |stats| stats.accepted == u64::from(TOPICS)).await;
}

/// A node asks everyone for each of its topics. Those that nobody else carries do not keep it from the one that it
/// shares, which it comes to last.
#[tokio::test(flavor = "multi_thread")]
async fn who_carries_many_other_topics_is_let_into_those_it_shares() {
    let topics: Vec<TopicId> = (0..=TOPICS).map(numbered).collect();
    let shared = topics.last().unwrap();
    let one = Node::start(std::slice::from_ref(shared), &[]).await;
    let start = Instant::now();
    let two = Node::start(&topics, &[&one]).await;
    let joined =
        async || (one.neighbours(shared) == 1 && two.neighbours(shared) == 1).then_some(());
    wait_for_async("the swarm that both are in", JOINED_WITHIN, joined).await.unwrap();
    println!("one topic beside {TOPICS} others was joined within {:?}", start.elapsed());
    let event = note(std::slice::from_ref(shared), "heard");
    two.publish(&event).await;
    one.until_holds(&event).await;
    assert_eq!(two.stats().mutes, 0, "nobody held anybody up");
}
