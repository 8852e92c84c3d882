//! What goes on to another swarm, and what stays.

use std::sync::Arc;

use kukuri_core::{Act, Admitted, Outcome, Source};
use kukuri_gossip::GossipStats;
use kukuri_store::conformance::signing::{Author, Draft, admit_from};
use kukuri_store::{Model, Store};
use kukuri_testkit::generate::World;

use crate::rig::{Homes, Node, Stranger, draft, next_message, note, say, topic};

/// One node is in one swarm, one in both, one in the other: an event of both topics crosses the one in the
/// middle once, and never comes back.
async fn crosses([one, two, three]: [Arc<dyn Store>; 3]) {
    let (a, b) = (topic('a'), topic('b'));
    let one = Node::over(one, std::slice::from_ref(&a), &[]).await;
    let two = Node::over(two, &[a.clone(), b.clone()], &[&one]).await;
    let three = Node::over(three, std::slice::from_ref(&b), &[&two]).await;
    one.until_joined(&a, 1).await;
    three.until_joined(&b, 1).await;
    let event = note(&[a.clone(), b.clone()], "for both");
    one.publish(&event).await;
    three.until_holds(&event).await;
    let rows = two.rows().await;
    let crossed: Vec<_> =
        rows.iter().map(|row| (&row.topic_id, row.source, row.via.as_ref())).collect();
    assert_eq!(crossed, [(&a, Source::Gossip, Some(&a)), (&b, Source::Gossip, Some(&a))]);
    let rows = three.rows().await;
    assert_eq!((rows.len(), rows[0].via.as_ref()), (1, Some(&b)));
    // What comes after it in the same order shows that nothing else was on its way.
    let last = note(std::slice::from_ref(&b), "back");
    three.publish(&last).await;
    two.until_holds(&last).await;
    let first = note(std::slice::from_ref(&a), "forth");
    two.publish(&first).await;
    one.until_holds(&first).await;
    let expected = [(&one, 1, 1), (&two, 2, 2), (&three, 1, 1)];
    for (node, broadcasts, accepted) in expected {
        let reached =
            |stats: &GossipStats| stats.broadcasts == broadcasts && stats.accepted == accepted;
        node.until_stats("each event once", reached).await;
    }
    assert!([&one, &two, &three].iter().all(|node| node.stats().duplicates == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_two_topics_is_bridged_once_and_never_back() {
    let homes = Homes::new();
    for stores in homes.three_of_each().await {
        crosses(stores).await;
    }
}

/// What a stranger in the swarm hears is all that goes out.
#[tokio::test(flavor = "multi_thread")]
async fn imports_backfill_and_protected_events_stay_and_ephemeral_ones_go() {
    let t = [topic('a')];
    let node = Node::with(Arc::new(Model::default()), &t, |_| {}).await;
    let before = note(&t, "before anyone listened");
    node.publish(&before).await;
    let stranger = Stranger::new().await;
    let (_sender, mut receiver) = stranger.join(&node, &t[0]).await;
    node.until_joined(&t[0], 1).await;
    let from = |content: &str, source| admit_from(&note(&t, content), source);
    node.publish(&from("imported", Source::Import)).await;
    node.publish(&from("backfilled", Source::Backfill)).await;
    node.publish(&from("made here", Source::Node)).await;
    let protected = Draft {
        tags: vec![vec!["-".into()], vec!["t".into(), t[0].to_string()]],
        ..draft(&t, "p")
    };
    let protected = Author::numbered(1).admit(&protected, World::NOW);
    node.publish(&protected).await;
    let fleeting = Draft::new(20_001, World::NOW).tag("t", &t[0]);
    let fleeting: Admitted = Author::numbered(1).admit(&fleeting, World::NOW);
    assert_eq!(node.lane.run(Act::Publish(fleeting.clone())).await, Ok(Outcome::Ephemeral));
    assert_eq!(next_message(&mut receiver).await, fleeting.body().json().as_bytes());
    let paid = from("paid for", Source::Paid);
    node.publish(&paid).await;
    assert_eq!(next_message(&mut receiver).await, paid.body().json().as_bytes());
    let plain = note(&t, "by a client");
    node.publish(&plain).await;
    assert_eq!(next_message(&mut receiver).await, plain.body().json().as_bytes());
    let stats = node.stats();
    assert_eq!((stats.broadcasts, stats.kept_back), (3, 1), "{stats:?}");
}

/// The earlier client's envelope, with a date that is written out.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_earlier_client_sends_is_taken_in() {
    let t = [topic('a')];
    let node = Node::with(Arc::new(Model::default()), &t, |_| {}).await;
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&node, &t[0]).await;
    let event = note(&t, "from another time");
    let seconds = format!("\"created_at\":{}", World::NOW);
    assert_eq!(World::NOW.0, 1_700_000_000);
    let dated = "\"created_at\":\"2023-11-14T22:13:20+00:00\"";
    let payload = event.body().json().replace(&seconds, dated);
    assert!(payload.contains(dated));
    let size = u16::try_from(payload.len()).unwrap().to_le_bytes();
    let (id, head, tail) = ([7; 32], [0, 251, size[0], size[1]], [0, 3, b'a', b'b', b'c', 0]);
    say(&sender, [&id[..], &head, payload.as_bytes(), &tail].concat()).await;
    node.until_holds(&event).await;
    assert_eq!(node.rows().await[0].via.as_ref(), Some(&t[0]));
}
