//! Relays that hold us up, or say less than they could.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kukuri_client::sync::PeerConfig;
use kukuri_event::EventId;
use kukuri_node::backfill::{Allowed, Blame, Ended, Pulled};
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::rig::{ANY, id, node, note, topic, watch};
use crate::strange::{answer, asked_for, babbler, body, claims, relay};

const WAIT_MAX: Duration = Duration::from_secs(60);

fn impatient() -> PeerConfig {
    PeerConfig { answer_wait_max: Duration::from_millis(300), ..PeerConfig::STANDARD }
}

/// Anything that a relay said made the wait for its answer begin anew, so that it held up all backfill.
#[tokio::test(flavor = "multi_thread")]
async fn talk_is_no_answer() {
    let topic = topic('a');
    let named = [id(&note(&topic, 1))];
    let silent = babbler(|_| Vec::new()).await;
    let fetched_from = babbler(move |message| match message[0].as_str() {
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&named, message)],
        _ => Vec::new(),
    })
    .await;
    for url in [silent, fetched_from] {
        let mut node = node(&topic).await;
        node.puller.waits = impatient();
        let (_, done) = timeout(WAIT_MAX, node.try_pull(&topic, &url)).await.unwrap();
        let told = format!("{:#}", done.unwrap_err());
        assert!(told.contains("did not answer within"), "{told}");
    }
}

/// Nobody who is asked answers within this time.
fn patient() -> PeerConfig {
    PeerConfig { answer_wait_max: Duration::from_secs(3600), ..PeerConfig::STANDARD }
}

#[tokio::test]
async fn a_reconciliation_has_its_time() {
    let topic = topic('a');
    let url = relay(|_| Vec::new()).await;
    let mut node = node(&topic).await;
    node.puller.waits = patient();
    node.puller.allowed = Allowed { time_max: Duration::from_millis(300), ..ANY };
    let (pulled, done) = timeout(WAIT_MAX, node.try_pull(&topic, &url)).await.unwrap();
    assert_eq!(pulled.ended, Ended::OverBudget);
    let told = format!("{:#}", done.unwrap_err());
    assert!(told.contains("nothing was taken in within"), "{told}");
}

/// Whoever is to stop does not wait for a relay that is silent while it is fetched from.
#[tokio::test]
async fn a_fetch_that_brings_nothing_can_be_stopped() {
    let topic = topic('a');
    let (named, watch) = ([id(&note(&topic, 1))], watch());
    let stop = watch.stop.clone();
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&named, message)],
        Some("REQ") => {
            stop.cancel();
            Vec::new()
        }
        _ => Vec::new(),
    })
    .await;
    let mut node = node(&topic).await;
    node.puller.waits = patient();
    let (mut pulled, topic) = (Pulled::default(), node.topic(&topic).await);
    let pull = node.puller.pull(&topic, &url, &watch, &mut pulled);
    timeout(WAIT_MAX, pull).await.unwrap().unwrap();
    assert_eq!((pulled.ended, pulled.fetched), (Ended::Interrupted, 0));
}

/// A relay that says that everything is too big is asked about ever shorter times, and then no more.
#[tokio::test]
async fn too_big_comes_to_an_end() {
    let topic = topic('a');
    for words in ["this query is too big", "too many query results"] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let url = relay(move |message| match message[0].as_str() {
            Some("NEG-OPEN") => {
                counted.fetch_add(1, Ordering::Relaxed);
                vec![json!(["NEG-ERR", message[1], format!("blocked: {words}")])]
            }
            _ => Vec::new(),
        })
        .await;
        let (_, done) = node(&topic).await.try_pull(&topic, &url).await;
        let told = format!("{:#}", done.unwrap_err());
        assert!(told.contains("compares too little at once"), "{told}");
        assert_eq!(asked.load(Ordering::Relaxed), 1024);
    }
}

/// The times that a question is about.
pub fn times(filter: &Value) -> std::ops::RangeInclusive<i64> {
    filter["since"].as_i64().unwrap()..=filter["until"].as_i64().unwrap()
}

/// One second that holds more than can be compared ended the pass: nothing that was older ever came.
#[tokio::test]
async fn a_crowded_second_hides_nothing_else() {
    let topic = topic('a');
    let (crowded, old) = (World::NOW.0 - 1000, note(&topic, 2000));
    let (old_at, named, bodies) = (World::NOW.0 - 2000, [id(&old)], [body(&old)]);
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN") if times(&message[2]).contains(&crowded) => {
            vec![json!(["NEG-ERR", message[1], "blocked: this query is too big"])]
        }
        Some("NEG-OPEN") if times(&message[2]).contains(&old_at) => vec![claims(&named, message)],
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&[], message)],
        Some("REQ") => answer(&bodies, message),
        _ => Vec::new(),
    })
    .await;
    let (pulled, done) = node(&topic).await.try_pull(&topic, &url).await;
    assert_eq!((pulled.accepted, pulled.crowded), (1, 1), "{pulled}");
    let fault = done.unwrap_err();
    let told = format!("{fault:#}");
    assert!(told.contains("1 such seconds were left out"), "{told}");
    assert_eq!(fault.blame(), Blame::Relay);
}

/// A relay that answers with fewer events than it is asked for, as many do, is asked for the rest. Ids are all
/// that it is asked for besides the topic: more values may be too many.
#[tokio::test]
async fn the_rest_of_a_short_answer_is_asked_for() {
    let topic = topic('a');
    let events: Vec<_> = (1..=35).map(|age| note(&topic, age)).collect();
    let absent = EventId::from_bytes([7; 32]);
    let named: Vec<EventId> = events.iter().map(id).chain([absent]).collect();
    let bodies: Vec<Value> = events.iter().map(body).collect();
    let questions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&questions);
    let url = relay(move |message| match message[0].as_str() {
        // Those are of old versions; what is asked for must not say so.
        Some("NEG-OPEN" | "NEG-MSG") if message[1] == "1" => vec![claims(&[], message)],
        Some("NEG-OPEN") if !message[2]["kinds"].is_null() => vec![claims(&named, message)],
        Some("NEG-MSG") => vec![claims(&named, message)],
        Some("REQ") => {
            counted.fetch_add(1, Ordering::Relaxed);
            let filter = message[2].as_object().unwrap();
            let mut parts: Vec<&str> = filter.keys().map(String::as_str).collect();
            parts.sort_unstable();
            assert_eq!(parts, ["#t", "ids", "limit"]);
            assert_eq!(filter["limit"], filter["ids"].as_array().unwrap().len());
            let events = asked_for(&bodies, message).into_iter().take(10);
            let events = events.map(|body| json!(["EVENT", message[1], body]));
            events.chain([json!(["EOSE", message[1]])]).collect()
        }
        _ => Vec::new(),
    })
    .await;
    let (pulled, done) = node(&topic).await.try_pull(&topic, &url).await;
    done.unwrap();
    assert_eq!((pulled.fetched, pulled.accepted), (35, 35), "{pulled}");
    // Ten at a time; then once more for the one that nobody has; and that once for the next question.
    assert!((5..=6).contains(&questions.load(Ordering::Relaxed)), "{questions:?}");
}

/// What came before a relay refused to go on is in, and is counted.
#[tokio::test]
async fn what_came_before_it_broke_is_counted() {
    let topic = topic('a');
    let events: Vec<_> = (1..=5).map(|age| note(&topic, age)).collect();
    let named: Vec<EventId> = events.iter().map(id).collect();
    let bodies: Vec<Value> = events.iter().take(3).map(body).collect();
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN" | "NEG-MSG") => vec![claims(&named, message)],
        Some("REQ") => {
            let events = bodies.iter().map(|body| json!(["EVENT", message[1], body]));
            events.chain([json!(["CLOSED", message[1], "error: no more"])]).collect()
        }
        _ => Vec::new(),
    })
    .await;
    let (pulled, done) = node(&topic).await.try_pull(&topic, &url).await;
    assert!(format!("{:#}", done.unwrap_err()).contains("no more"));
    assert_eq!((pulled.fetched, pulled.accepted), (3, 3), "{pulled}");
}
