//! Topics at their limits: the oldest leave or new ones are refused, by policy, and other topics do not
//! notice.

use std::time::Duration;

use kukuri_core::{IngestPolicy, OnFull, Source};
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::spec::Event;

use crate::home::Home;
use crate::rig::{Node, START, Time, doctor, topic};

const EVENTS_MAX: usize = 20;
const ROUNDS: usize = 8;
/// More than a full topic may hold, in every round.
const PER_ROUND: usize = 30;

fn note(digit: char, nth: usize) -> String {
    let created_at = UnixSeconds(START.0 + i64::try_from(nth).expect("few"));
    let draft = Draft::new(1, created_at).tag("t", topic(digit));
    Author::numbered(1).sign(&draft)
}

fn ids(texts: &[String]) -> Vec<String> {
    let mut ids: Vec<String> = texts.iter().map(|text| Event::read(text).id).collect();
    // The notes of a topic are one second apart; the newest is found first.
    ids.reverse();
    ids
}

async fn flood(node: &Node, texts: &[String]) -> Vec<String> {
    let mut said = Vec::new();
    for text in texts {
        said.extend(node.publish(&[(text.clone(), Source::Ws)]).await);
    }
    said
}

async fn full_topics(home: Home) {
    let time = Time::start();
    let node = Node::start(home.open().await, &time);
    let mut beside = Node::start(home.open().await, &time);
    let limit = |on_full| IngestPolicy {
        max_events: Some(EVENTS_MAX as u64),
        on_full,
        ..IngestPolicy::default()
    };
    node.set_topic('a', limit(OnFull::Evict)).await;
    node.set_topic('b', limit(OnFull::Refuse)).await;
    node.set_topic('c', IngestPolicy::default()).await;
    let all = |digit| (0..ROUNDS * PER_ROUND).map(move |nth| note(digit, nth)).collect::<Vec<_>>();
    let (evicting, refusing, free) = (all('a'), all('b'), all('c'));
    for round in 0..ROUNDS {
        let range = round * PER_ROUND..(round + 1) * PER_ROUND;
        // All at once, and upkeep beside them.
        let (evicted, refused, taken, ()) = tokio::join!(
            flood(&node, &evicting[range.clone()]),
            flood(&node, &refusing[range.clone()]),
            flood(&node, &free[range.clone()]),
            beside.keep(),
        );
        assert!(evicted.iter().chain(&taken).all(String::is_empty), "{evicted:?} {taken:?}");
        for (nth, said) in range.clone().zip(refused) {
            let expected = if nth < EVENTS_MAX { "" } else { "restricted: topic is full" };
            assert_eq!(said, expected, "note {nth}");
        }
        time.pass(Duration::from_secs(5));
        beside.keep().await;
        let end = range.end;
        assert_eq!(node.visible('a').await, ids(&evicting[end - EVENTS_MAX..end]));
        assert_eq!(node.visible('b').await, ids(&refusing[..EVENTS_MAX]));
        assert_eq!(node.visible('c').await, ids(&free[..end]));
        assert_eq!(node.counters().await, node.recount().await);
    }
    // Room is made by deleting, which is always possible, and by purging.
    let target = Event::read(&refusing[0]).id;
    let request = Draft::new(5, START).tag("t", topic('b')).tag("e", &target);
    assert_eq!(node.say(&Author::numbered(1).sign(&request)).await, "");
    assert!(!node.visible('b').await.contains(&target));
    assert_eq!(node.say(refusing.last().expect("some")).await, "restricted: topic is full");
    assert_eq!(node.purge('b').await.events, EVENTS_MAX as u64 + 1);
    assert_eq!(node.say(refusing.last().expect("some")).await, "");
    assert_eq!(doctor(&*node.store).await, [] as [&str; 0]);
    beside.end().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_topics_freeze_no_others_on_sqlite() {
    full_topics(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_topics_freeze_no_others_on_postgres() {
    full_topics(Home::postgres()).await;
}
