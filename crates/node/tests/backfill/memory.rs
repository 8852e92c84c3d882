//! What was here does not come back, and is not fetched to find that out.

use std::slice::from_ref;

use kukuri_core::{Act, Outcome, Source, UnixMillis, UnlinkReason};
use kukuri_event::Event;
use kukuri_node::backfill::{Allowed, Ended};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::generate::World;

use crate::rig::{ANY, Node, id, note, note_with, topic};

#[tokio::test]
async fn what_was_purged_is_not_fetched_again() {
    let topic = topic('a');
    let (one, two) = (Node::start(from_ref(&topic)).await, Node::start(from_ref(&topic)).await);
    let events: Vec<_> = (1..=700).map(|age| note(&topic, age)).collect();
    one.publish(events.iter().cloned()).await;
    let first = two.pull(&topic, &one).await;
    assert_eq!((first.named, first.fetched, first.accepted), (700, 700, 700));
    let rows = two.store.feed(two.store.bounds().await.unwrap().start(), 10_000).await.unwrap();
    assert!(rows.iter().all(|row| row.source == Source::Backfill), "{:?}", rows[0]);
    let purge = Act::Unlink {
        topic: topic.clone(),
        events: events.iter().map(id).collect(),
        reason: UnlinkReason::Before(UnixMillis(i64::MAX)),
    };
    assert!(matches!(two.lane.run(purge).await, Ok(Outcome::Removed(_))));
    assert!(two.view(from_ref(&topic)).await.is_empty());
    let second = two.pull(&topic, &one).await;
    assert_eq!((second.named, second.known, second.fetched), (700, 700, 0));
    assert!(two.view(&[topic]).await.is_empty());
}

/// A deletion of what never came is by id and author, and nobody knows the author of an id: the event is
/// fetched once, and refused. So is one that only its author may publish (NIP-70).
#[tokio::test]
async fn what_is_refused_is_fetched_once() {
    let topic = topic('a');
    let (one, two) = (Node::start(from_ref(&topic)).await, Node::start(from_ref(&topic)).await);
    let doomed = note(&topic, 10);
    let protected = Draft::new(1, World::NOW).tag("t", &topic).tag("-", "");
    let protected = Author::numbered(1).admit(&protected, World::NOW);
    one.publish([doomed.clone(), protected]).await;
    let deletion = Draft::new(5, World::NOW).tag("t", &topic).tag("e", id(&doomed));
    two.publish([Author::numbered(1).admit(&deletion, World::NOW)]).await;
    let first = two.pull(&topic, &one).await;
    assert_eq!((first.fetched, first.accepted, first.refused()), (2, 0, 2));
    assert_eq!(first.refused.keys().collect::<Vec<_>>(), [&"deleted", &"restricted"]);
    let second = two.pull(&topic, &one).await;
    assert_eq!((second.named, second.known, second.fetched), (2, 2, 0));
    // Anybody can ask for the deletion of anything: of a stranger it means nothing.
    let kept = note(&topic, 20);
    one.publish([kept.clone()]).await;
    let foreign = Draft::new(5, World::NOW).tag("t", &topic).tag("e", id(&kept));
    two.publish([Author::numbered(2).admit(&foreign, World::NOW)]).await;
    assert_eq!(two.pull(&topic, &one).await.accepted, 1);
}

/// A topic that is carried later gets the events that are here already, without fetching them.
#[tokio::test]
async fn what_is_at_hand_is_linked() {
    let (a, b) = (topic('a'), topic('b'));
    let one = Node::start(&[a.clone(), b.clone()]).await;
    let mut two = Node::start(from_ref(&a)).await;
    // More than are handed on together.
    let both: Vec<_> = (1..=300).map(|age| note_with(&a, age, &[("t", b.as_str())])).collect();
    one.publish(both.clone()).await;
    two.publish(both).await;
    let _outcome = two.lane.run(Act::carry(b.clone(), "")).await.unwrap();
    assert!(two.view(from_ref(&b)).await.is_empty());
    // They count for the budget as those do that are fetched.
    two.puller.allowed = Allowed { events_max: 20, ..ANY };
    let some = two.pull(&b, &one).await;
    assert_eq!((some.named, some.at_hand, some.accepted), (300, 20, 20));
    assert_eq!(some.ended, Ended::OverBudget);
    two.puller.allowed = ANY;
    let rest = two.pull(&b, &one).await;
    assert_eq!((rest.named, rest.at_hand, rest.fetched, rest.accepted), (280, 280, 0, 280));
    let topics = [a, b];
    assert_eq!(two.view(&topics).await, one.view(&topics).await);
}

/// Old events are not asked for, but what was deleted of those that are here is, and so are old versions.
#[tokio::test]
async fn deletions_and_versions_are_older_than_the_rest() {
    const DAY: i64 = 24 * 60 * 60;
    let topic = topic('a');
    let (one, two) = (Node::start(from_ref(&topic)).await, Node::start(from_ref(&topic)).await);
    let (old, doomed) = (note(&topic, 40 * DAY), note(&topic, 45 * DAY));
    let at = |days: i64| World::NOW.saturating_sub(days * DAY);
    let deletion = Draft::new(5, at(35)).tag("t", &topic).tag("e", id(&doomed));
    let deletion = Author::numbered(1).admit(&deletion, World::NOW);
    let profile = Author::numbered(1).admit(&Draft::new(0, at(400)).tag("t", &topic), World::NOW);
    one.publish([old.clone(), doomed.clone(), deletion.clone(), profile.clone()]).await;
    two.publish([doomed]).await;
    let pulled = two.pull(&topic, &one).await;
    assert_eq!((pulled.fetched, pulled.accepted), (2, 2), "{pulled}");
    let shown: Vec<String> = two.view(&[topic]).await.into_keys().collect();
    let mut expected = [id(&deletion).to_hex(), id(&profile).to_hex()];
    expected.sort();
    assert_eq!(shown, expected);
    assert!(Event::parse(old.body().json()).is_ok());
}
