//! Which way a batch takes; that all of them decide alike is for the tests of the whole store.

use std::collections::BTreeSet;
use std::ops::Range;

use kukuri_core::{Facts, FeedBounds, IngestPolicy, NodeTopic, TopicId, UnixMillis};
use kukuri_event::UnixSeconds;
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::postgres::{Cluster, Durability};

use super::known::TOPICS_MAX;
use kukuri_core::Act;

use super::*;
use crate::bounds::Bounds;
use crate::facts::Loaded;
use crate::{Options, PostgresStore};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

fn topic() -> TopicId {
    TopicId::parse("kukuri:global").unwrap()
}

fn batch(act: Act) -> Arc<[Command]> {
    Arc::new([Command { at: NOW.into(), act }])
}

fn note(content: &str) -> Arc<[Command]> {
    let draft = Draft::new(1, NOW).tag("t", topic()).content(content);
    batch(Act::Publish(Author::numbered(1).admit(&draft, NOW)))
}

#[tokio::test]
async fn new_events_are_written_without_a_look() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let url = cluster.create_database();
    let options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };
    let epoch = PostgresStore::open(&url, options).await.unwrap().bounds().await.unwrap().epoch;
    let server = Server::parse(&url).unwrap();
    let topics = Topics::default();
    let mut session = Session::open(&server, Fsync::AnyForTests, epoch, 1_000).await.unwrap();
    session.run(&batch(Act::carry(topic(), "all")), &topics).await.unwrap();
    assert!(session.run_unseen(&note("a"), &topics).await.unwrap().is_none(), "nothing is known");
    session.run(&note("a"), &topics).await.unwrap();

    for new in ["b", "c"] {
        assert!(session.run_unseen(&note(new), &topics).await.unwrap().is_some(), "{new}");
    }
    assert!(session.run_unseen(&note("a"), &topics).await.unwrap().is_none(), "it is there");
    assert_eq!((session.doubtful_batches, session.crowded_batches), (DOUBTFUL_BATCHES, 0));
    for _ in 0..DOUBTFUL_BATCHES {
        assert!(session.run_unseen(&note("d"), &topics).await.unwrap().is_none(), "in doubt");
    }
    assert!(session.run_unseen(&note("d"), &topics).await.unwrap().is_some());
}

fn loaded(topics: Range<usize>) -> Loaded {
    let ids = topics.map(|nth| TopicId::parse(&format!("kukuri:{nth:064x}")).unwrap());
    let needs = ReadSet { topics: ids.collect::<BTreeSet<_>>(), ..ReadSet::default() };
    let mut facts = Facts::absent(&needs);
    for (id, row) in &mut facts.topics {
        *row = Some(NodeTopic {
            topic_id: id.clone(),
            name: String::new(),
            enabled: true,
            pinned: true,
            wanted: 0,
            ingest_policy: IngestPolicy::default(),
            created_at: UnixMillis(0),
            updated_at: UnixMillis(0),
        });
    }
    let feed = FeedBounds { epoch: Epoch(1), floor: Seq::ZERO, head: Seq::ZERO };
    let bounds = Bounds::new(feed.epoch, feed.floor, 1, Some(feed.head));
    Loaded { facts, bounds, revision: 1 }
}

#[test]
fn so_many_topics_are_known_and_no_more() {
    let known = Known::of(&loaded(0..TOPICS_MAX - 1), None);
    let known = Known::of(&loaded(TOPICS_MAX - 1..TOPICS_MAX), Some(known));
    assert_eq!(known.topics(), TOPICS_MAX);
    let known = Known::of(&loaded(TOPICS_MAX..TOPICS_MAX + 1), Some(known));
    assert_eq!(known.topics(), 1);
}
