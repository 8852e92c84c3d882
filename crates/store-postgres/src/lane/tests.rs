//! Which way a batch takes; that all of them decide alike is for the tests of the whole store.

use std::collections::BTreeSet;
use std::ops::Range;

use kukuri_core::{
    Act, Facts, FeedBounds, IngestPolicy, NodeTopic, Outcome, TopicId, UnixMillis, UnlinkReason,
};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::postgres::{Cluster, Durability};

use super::foresight::BATCHES_MAX;
use super::known::TOPICS_MAX;
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

/// A database with one topic, and a session for each of the programs on it.
async fn sessions<const N: usize>(cluster: &Cluster, topics: &Topics) -> (Server, [Session; N]) {
    let url = cluster.create_database();
    let options = Options { fsync: Fsync::AnyForTests, ..Options::STANDARD };
    let epoch = PostgresStore::open(&url, options).await.unwrap().bounds().await.unwrap().epoch;
    let server = Server::parse(&url).unwrap();
    let mut sessions = Vec::new();
    for _ in 0..N {
        let opened = Session::open(&server, Fsync::AnyForTests, epoch, 1_000, Arc::default());
        sessions.push(opened.await.unwrap());
    }
    sessions[0].run(&batch(Act::carry(topic(), "all")), topics).await.unwrap();
    (server, sessions.try_into().ok().unwrap())
}

#[tokio::test]
async fn new_events_are_written_without_a_look() {
    let (cluster, topics) = (Cluster::start(Durability::Fast).unwrap(), Topics::default());
    let (_, [mut session]) = sessions(&cluster, &topics).await;
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

/// Lets go of the event of a batch, and says how many have left.
async fn purge(session: &mut Session, topics: &Topics, events: BTreeSet<EventId>) -> u64 {
    let (events, reason) =
        (events.into_iter().collect(), UnlinkReason::Before(UnixMillis(i64::MAX)));
    let unlink = batch(Act::Unlink { topic: topic(), events, reason });
    match &session.run(&unlink, topics).await.unwrap().outcomes[..] {
        [Outcome::Removed(removed)] => removed.events,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_foreseen_is_read_again_once_it_may_have_changed() {
    let (cluster, topics) = (Cluster::start(Durability::Fast).unwrap(), Topics::default());
    let (server, [mut one, mut other]) = sessions(&cluster, &topics).await;
    let mut reader = server.connect(Role::Setup).await.unwrap();
    let notes = ["a", "b", "c"].map(note);
    for note in &notes {
        one.run(note, &topics).await.unwrap();
    }
    let [a, b, c] = notes.map(|note| needs(&note).events);
    let expected = one.expected;
    let mut look = async |events: &BTreeSet<EventId>| {
        let needs = ReadSet { events: events.clone(), ..ReadSet::default() };
        facts::load(&mut reader, &topics, expected, &needs).await.unwrap()
    };
    let is_true = |session: &Session, events: &BTreeSet<EventId>| {
        let needs = ReadSet { events: events.clone(), ..ReadSet::default() };
        let foreseen = session.foresight.take(&needs).expect("it was foreseen");
        foreseen.at(session.known.as_ref().unwrap().revision(), &session.changed).is_ok()
    };

    one.foresight.keep(look(&a).await);
    one.run(&note("another"), &topics).await.unwrap();
    assert!(is_true(&one, &a), "others have come since");

    let early = look(&a).await;
    one.foresight.keep(look(&a).await);
    assert_eq!(purge(&mut one, &topics, a.clone()).await, 1);
    assert!(one.foresight.take(&ReadSet { events: a.clone(), ..ReadSet::default() }).is_none());
    one.foresight.keep(early);
    assert_eq!(purge(&mut one, &topics, a).await, 0, "this session has changed it");

    one.foresight.keep(look(&b).await);
    assert_eq!(purge(&mut other, &topics, b.clone()).await, 1);
    assert_eq!(purge(&mut one, &topics, b).await, 0, "another session has changed it");

    for (batches, remembered) in [(BATCHES_MAX, true), (BATCHES_MAX + 1, false)] {
        one.foresight.keep(look(&c).await);
        for nth in 0..batches {
            one.run(&note(&format!("{nth} of {batches}")), &topics).await.unwrap();
        }
        assert_eq!(is_true(&one, &c), remembered, "after {batches} batches");
    }
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
