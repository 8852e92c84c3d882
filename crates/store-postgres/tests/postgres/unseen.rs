//! Batches that are written without a look, by what the last batch has left behind: whatever another
//! process has done meanwhile decides all the same.

use kukuri_core::{Act, Duplicate, Outcome, Rejection, UnlinkReason};
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft};

use crate::rig::{self, NOW, apply, enable, feed, note, notes, open, publish, store, topic};

const KNOWN: Outcome = Outcome::Duplicate(Duplicate::Known);

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_there_is_met() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    publish(&store, &notes(1, 3)).await.unwrap();
    // Once by who knows the revision, and once more while it looks first.
    for again in 0..2 {
        let batch = [note(2, again), note(1, 1), note(3, again), note(2, again)];
        let outcomes = publish(&store, &batch).await.unwrap();
        assert_eq!(outcomes, [Outcome::Accepted, KNOWN, Outcome::Accepted, KNOWN]);
    }
    assert_eq!(feed(&store).await.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_wrote_is_met() {
    let cluster = rig::cluster();
    let (ours, name) = store(&cluster).await;
    let theirs = open(&cluster.url(&name)).await;
    // Both have written, and both have come to know what they left behind.
    for nth in 0..40 {
        assert_eq!(publish(&ours, &[note(1, nth)]).await.unwrap(), [Outcome::Accepted]);
        if nth % 20 == 0 {
            assert_eq!(publish(&theirs, &[note(2, nth)]).await.unwrap(), [Outcome::Accepted]);
            assert_eq!(publish(&ours, &[note(2, nth)]).await.unwrap(), [KNOWN]);
        }
    }
    assert_eq!(feed(&ours).await.len(), 42, "without a hole and nothing twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_came_first_is_met() {
    let cluster = rig::cluster();
    let (store, _) = store(&cluster).await;
    publish(&store, &notes(1, 3)).await.unwrap();
    let unseen = note(1, 50);
    let draft = Draft::new(5, NOW).tag("t", topic()).tag("e", unseen.event().id().to_hex());
    let deletion = Author::numbered(1).admit(&draft, NOW);
    assert_eq!(publish(&store, &[deletion]).await.unwrap(), [Outcome::Accepted]);
    let outcomes = publish(&store, &[note(1, 51), unseen]).await.unwrap();
    assert_eq!(outcomes[0], Outcome::Accepted);
    assert!(matches!(outcomes[1], Outcome::Refused(Rejection::Deleted)), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_another_process_removed_is_met() {
    let cluster = rig::cluster();
    let (ours, name) = store(&cluster).await;
    let theirs = open(&cluster.url(&name)).await;
    let accepted = publish(&ours, &[note(1, 1)]).await.unwrap();
    assert_eq!(accepted, publish(&ours, &[note(1, 2)]).await.unwrap());
    let mut closed = Act::carry(topic(), "test");
    if let Act::SetTopic { enabled, .. } = &mut closed {
        *enabled = false;
    }
    let events = feed(&ours).await.iter().map(|row| row.event_id).collect();
    let unlink = Act::Unlink { topic: topic(), events, reason: UnlinkReason::Topic };
    apply(&theirs, NOW.into(), vec![closed, unlink]).await.unwrap();
    let refused = publish(&ours, &[note(1, 3)]).await.unwrap();
    assert!(matches!(refused[..], [Outcome::Refused(_)]), "{refused:?}");
    enable(&theirs).await;
    assert_eq!(publish(&ours, &[note(1, 4)]).await.unwrap(), [Outcome::Accepted]);
    let topics = ours.topics().await.unwrap();
    assert_eq!(topics[0].1.events, 1, "usage was not that of before");
}
