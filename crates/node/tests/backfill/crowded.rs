//! Seconds that have many events: anybody can write any time on as many as they like.

use std::slice::from_ref;
use std::sync::Arc;

use kukuri_client::sync::IDS_MAX;
use kukuri_core::{Admitted, TopicId};
use kukuri_node::backfill::{Blame, Bounds};
use kukuri_relay::RelayLimits;
use kukuri_store::Store;

use crate::rig::{Homes, Node, limits, note, note_with, topic};

/// No read may cost more rows than this, which is less than the crowds have.
const ROWS_MAX: usize = 40;

/// Notes of one second.
fn crowd(topic: &TopicId, numbers: std::ops::Range<u32>) -> Vec<Admitted> {
    numbers.map(|nth| note_with(topic, 1000, &[("n", &nth.to_string())])).collect()
}

/// A node whose relay and whose backfill read little at once.
async fn frugal(store: Arc<dyn Store>, topic: &TopicId) -> Node {
    let limits = RelayLimits { scan_rows_max: ROWS_MAX, ..limits() };
    let mut node = Node::over(store, from_ref(topic), limits).await;
    node.puller.own = Bounds { rows_max: ROWS_MAX, ids_max: IDS_MAX };
    // What is fetched is looked up by the same bound.
    node.puller.question_ids_max = ROWS_MAX / 2;
    node
}

/// A second with more events than one read may cost was left out by whoever had it, and before that it hid
/// everything that was older.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowded_second_is_compared() {
    let mut homes = Homes::new();
    let both = [[homes.sqlite(), homes.sqlite()], [homes.postgres().await, homes.postgres().await]];
    for [one, two] in both {
        let topic = topic('a');
        let (one, two) = (frugal(one, &topic).await, frugal(two, &topic).await);
        one.publish(crowd(&topic, 0..120)).await;
        one.publish([note(&topic, 10), note(&topic, 2000)]).await;
        two.publish(crowd(&topic, 70..180)).await;
        let pulled = two.pull(&topic, &one).await;
        assert_eq!((pulled.accepted, pulled.only_here, pulled.crowded), (72, 60, 0), "{pulled}");
        let pulled = one.pull(&topic, &two).await;
        assert_eq!((pulled.accepted, pulled.only_here, pulled.crowded), (60, 0, 0), "{pulled}");
        let shown = one.view(from_ref(&topic)).await;
        assert_eq!(shown.len(), 182);
        assert_eq!(two.view(from_ref(&topic)).await, shown);
    }
}

/// What cannot be compared at once is left out, and hides nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_that_is_too_full_hides_nothing_else() {
    let mut homes = Homes::new();
    let both = [[homes.sqlite(), homes.sqlite()], [homes.postgres().await, homes.postgres().await]];
    for [one, two] in both {
        let topic = topic('a');
        let (one, mut two) = (frugal(one, &topic).await, frugal(two, &topic).await);
        one.publish([note(&topic, 10), note(&topic, 2000)]).await;
        one.publish(crowd(&topic, 30..31)).await;
        two.publish(crowd(&topic, 0..30)).await;
        two.puller.own.ids_max = 29;
        let (pulled, done) = two.try_pull(&topic, &one.url).await;
        assert_eq!((pulled.accepted, pulled.crowded), (2, 1), "{pulled}");
        let fault = done.unwrap_err();
        let told = format!("{fault:#}");
        assert!(told.contains("1 such seconds were left out"), "{told}");
        assert_eq!(fault.blame(), Blame::Here, "the relay compares it");
        two.puller.own.ids_max = 30;
        let pulled = two.pull(&topic, &one).await;
        assert_eq!((pulled.accepted, pulled.crowded), (1, 0), "{pulled}");
    }
}
