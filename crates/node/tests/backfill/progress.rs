//! Topics that are larger than what a relay tells at once, or than one reconciliation gets through.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Admitted, TopicId, UnixMillis, UnlinkReason};
use kukuri_event::EventId;
use kukuri_node::backfill::Blame;
use kukuri_relay::{Allowance, RelayLimits};
use kukuri_store::Model;
use kukuri_testkit::generate::World;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bounds::moving;
use crate::rig::{Node, id, limits, node, note, topic};
use crate::stalling::times;
use crate::strange::{answer, body, claims, relay};

/// Less than the relay was asked for the same again before, in vain.
const WAIT_MAX: Duration = Duration::from_secs(50);
const DAY: i64 = 24 * 60 * 60;

/// Notes of thirty days, less a little.
fn spread(topic: &TopicId, events: i64) -> Vec<Admitted> {
    (1..=events).map(|nth| note(topic, nth * (30 * DAY - 1000) / events)).collect()
}

/// A node whose relay answers so many questions at once, and then ten in a second.
async fn strict(topic: &TopicId, burst: u32, limits: RelayLimits) -> Node {
    let requests_per_ip = Allowance { per_minute: 600, burst };
    let limits = RelayLimits { requests_per_ip, ..limits };
    Node::at(moving(), Arc::new(Model::default()), from_ref(topic), limits).await
}

/// A relay charges for each page that it reads. Where there were more pages than it allows at once, it refused,
/// was asked the same again, and refused again, so that nothing of a large topic ever came.
#[tokio::test]
async fn a_topic_of_more_pages_than_the_rate_comes() {
    let topic = topic('a');
    // Pages of 20.
    let one = strict(&topic, 6, RelayLimits { scan_rows_max: 40, ..limits() }).await;
    one.publish(spread(&topic, 300)).await;
    let mut two = Node::start(from_ref(&topic)).await;
    two.puller.question_ids_max = 20;
    let pulled = timeout(WAIT_MAX, two.pull(&topic, &one)).await.unwrap();
    assert_eq!(pulled.accepted, 300, "{pulled}");
    assert_eq!(two.view(from_ref(&topic)).await, one.view(from_ref(&topic)).await);
}

/// The same of messages, where the ids that are named are known here and so no fewer the next time.
#[tokio::test]
async fn a_topic_of_more_messages_than_the_rate_is_compared() {
    let topic = topic('a');
    // Messages of some 120 ids.
    let one = strict(&topic, 5, RelayLimits { message_bytes_max: 8 * 1024, ..limits() }).await;
    let (two, events) = (node(&topic).await, spread(&topic, 1500));
    one.publish(events.clone()).await;
    two.publish(events.clone()).await;
    let purge = Act::Unlink {
        topic: topic.clone(),
        events: events.iter().map(id).collect(),
        reason: UnlinkReason::Before(UnixMillis(i64::MAX)),
    };
    let _outcome = two.lane.run(purge).await.unwrap();
    let pulled = timeout(WAIT_MAX, two.pull(&topic, &one)).await.unwrap();
    assert!(pulled.known >= 1500, "{pulled}");
    assert_eq!((pulled.fetched, pulled.crowded), (0, 0), "{pulled}");
}

/// Each reconciliation began with what is newest, so that a relay that answers no more than some questions was
/// never asked about what is old.
#[tokio::test]
async fn the_next_one_goes_on_where_the_last_one_ended() {
    let topic = topic('a');
    let (old, new) = (note(&topic, 25 * DAY), note(&topic, 10));
    let dated: Vec<(i64, EventId)> =
        [(25 * DAY, &old), (10, &new)].map(|(age, event)| (World::NOW.0 - age, id(event))).into();
    let bodies: Vec<Value> = [&old, &new].map(body).into();
    let url = relay(move |message| match message[0].as_str() {
        Some("NEG-OPEN" | "NEG-MSG")
            if message[1].as_str().unwrap().parse::<u32>().unwrap() > 10 =>
        {
            vec![json!(["NEG-ERR", message[1], "error: not now"])]
        }
        Some("NEG-OPEN") if times(&message[2]).count() as i64 > DAY => {
            vec![json!(["NEG-ERR", message[1], "blocked: this query is too big"])]
        }
        Some("NEG-OPEN") => {
            let times = times(&message[2]);
            let named = dated.iter().filter(|(at, _)| times.contains(at));
            let named: Vec<EventId> = named.map(|(_, id)| *id).collect();
            vec![claims(&named, message)]
        }
        Some("REQ") => answer(&bodies, message),
        _ => Vec::new(),
    })
    .await;
    let two = node(&topic).await;
    let (first, _) = two.try_pull(&topic, &url).await;
    assert_eq!(first.accepted, 1, "what is new comes first: {first}");
    let mut passes = 1;
    while two.view(from_ref(&topic)).await.len() < 2 {
        passes += 1;
        assert!(passes < 20, "what is old never comes");
        let _ended = two.try_pull(&topic, &url).await;
    }
    assert!(passes > 2, "it was more than one gets through");
}

/// Windows that are too big for ourselves were held against the relay, as if it compared too little.
#[tokio::test]
async fn our_own_bounds_are_not_the_fault_of_the_relay() {
    let topic = topic('a');
    let (one, mut two) = (node(&topic).await, node(&topic).await);
    two.publish(spread(&topic, 700)).await;
    one.publish(spread(&topic, 700)).await;
    one.publish([note(&topic, 29 * DAY)]).await;
    // It takes more halves than a relay may want.
    two.puller.own.ids_max = 1;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!((pulled.accepted, pulled.crowded), (1, 0), "{pulled}");
    assert!(pulled.windows >= 700, "{}", pulled.windows);
    two.puller.own.ids_max = 0;
    let (pulled, done) = two.try_pull(&topic, &one.url).await;
    assert_eq!((pulled.crowded, pulled.crowded_here), (701, 701), "{pulled}");
    assert_eq!(done.unwrap_err().blame(), Blame::Here);
}
