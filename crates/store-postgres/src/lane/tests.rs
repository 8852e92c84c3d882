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
    assert!(!is_written_unseen(&mut session, &note("a"), &topics).await, "nothing is known");
    session.run(&note("a"), &topics).await.unwrap();

    for new in ["b", "c"] {
        assert!(is_written_unseen(&mut session, &note(new), &topics).await, "{new}");
    }
    assert!(!is_written_unseen(&mut session, &note("a"), &topics).await, "it is there");
    assert_eq!((session.doubtful_batches, session.crowded_batches), (DOUBTFUL_BATCHES, 0));
    for _ in 0..DOUBTFUL_BATCHES {
        assert!(!is_written_unseen(&mut session, &note("d"), &topics).await, "in doubt");
    }
    assert!(is_written_unseen(&mut session, &note("d"), &topics).await);
}

/// Whether a batch could be written without a look; if not, nothing was written.
async fn is_written_unseen(session: &mut Session, batch: &[Command], topics: &Topics) -> bool {
    let needs = needs(batch);
    let mut foreseen = session.foresight.take(&needs);
    session.run_unseen(batch, topics, &needs, &mut foreseen).await.unwrap().is_some()
}

#[tokio::test]
async fn what_was_foreseen_leaves_without_a_look() {
    let (cluster, topics) = (Cluster::start(Durability::Fast).unwrap(), Topics::default());
    let (server, [mut session]) = sessions(&cluster, &topics).await;
    let mut reader = server.connect(Role::Setup).await.unwrap();
    let notes = ["a", "b", "c"].map(note);
    for note in &notes {
        session.run(note, &topics).await.unwrap();
    }
    let [a, b, c] = notes.map(|note| needs(&note).events);
    let mut look = async |session: &Session, events: &BTreeSet<EventId>| {
        let places = Foresight::default().places(events);
        let foreseen = facts::foresee(&mut reader, &topics.numbers, events, places).await.unwrap();
        session.foresight.keep(foreseen);
    };
    assert!(!is_written_unseen(&mut session, &unlink(&a), &topics).await, "it was not foreseen");
    look(&session, &a).await;
    let both = a.union(&b).copied().collect();
    assert!(
        !is_written_unseen(&mut session, &unlink(&both), &topics).await,
        "one was not foreseen"
    );
    look(&session, &a).await;
    let mixed = [&unlink(&a)[..], &note("d")].concat();
    assert!(is_written_unseen(&mut session, &mixed, &topics).await, "beside one that is new");
    look(&session, &b).await;
    let forgotten = batch(Act::Unlink {
        topic: topic(),
        events: b.iter().copied().collect(),
        reason: UnlinkReason::Topic,
    });
    // Beside one that is new: alone, nothing would be written, whatever was looked for.
    let mixed = [&forgotten[..], &note("e")].concat();
    assert!(!is_written_unseen(&mut session, &mixed, &topics).await, "it is forgotten as well");

    look(&session, &c).await;
    let foreseen = session.foresight.take(&records(&c)).unwrap();
    assert_eq!(purge(&mut session, &topics, c.clone()).await, 1);
    session.foresight.keep(foreseen);
    assert!(!is_written_unseen(&mut session, &unlink(&c), &topics).await, "it has left since");
}

fn unlink(events: &BTreeSet<EventId>) -> Arc<[Command]> {
    let (events, reason) =
        (events.iter().copied().collect(), UnlinkReason::Before(UnixMillis(i64::MAX)));
    batch(Act::Unlink { topic: topic(), events, reason })
}

/// Lets go of the event of a batch, and says how many have left.
async fn purge(session: &mut Session, topics: &Topics, events: BTreeSet<EventId>) -> u64 {
    match &session.run(&unlink(&events), topics).await.unwrap().outcomes[..] {
        [Outcome::Removed(removed)] => removed.events,
        other => panic!("{other:?}"),
    }
}

fn records(events: &BTreeSet<EventId>) -> ReadSet {
    ReadSet { records: events.clone(), ..ReadSet::default() }
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
    let mut look = async |events: &BTreeSet<EventId>| {
        let places = Foresight::default().places(events);
        facts::foresee(&mut reader, &topics.numbers, events, places).await.unwrap()
    };
    let is_true = |session: &Session, events: &BTreeSet<EventId>| {
        let foreseen = session.foresight.take(&records(events)).expect("it was foreseen");
        foreseen.is_true_at(session.known.as_ref().unwrap().revision(), &session.changed)
    };

    one.foresight.keep(look(&a).await);
    one.run(&note("another"), &topics).await.unwrap();
    assert!(is_true(&one, &a), "others have come since");

    let early = look(&a).await;
    one.foresight.keep(look(&a).await);
    assert_eq!(purge(&mut one, &topics, a.clone()).await, 1);
    assert!(one.foresight.take(&records(&a)).is_none());
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

/// Some are found by their numbers and others by their ids, and what was forgotten, or never was, by neither.
#[tokio::test]
async fn events_are_foreseen_by_number_and_by_id() {
    let (cluster, topics) = (Cluster::start(Durability::Fast).unwrap(), Topics::default());
    let (server, [mut session]) = sessions(&cluster, &topics).await;
    let mut reader = server.connect(Role::Setup).await.unwrap();
    let mut ids = Vec::new();
    for nth in 0..40 {
        let note = note(&format!("{nth}"));
        let rows = session.run(&note, &topics).await.unwrap().rows;
        ids.push((rows[0].event_id, rows[0].seq));
    }
    // Who has another one's number is found by nothing.
    let nobody = (EventId::from_bytes([7; 32]), ids[8].1);
    ids.push(nobody);
    let events: BTreeSet<EventId> = ids.iter().map(|(id, _)| *id).collect();
    let mut stored = events.clone();
    stored.remove(&nobody.0);
    let foresight = Foresight::default();
    for (noted, by_number, by_id) in [
        (vec![], 0, 41),
        (vec![1, 2, 5, 40], 4, 37),
        (vec![0, 39], 0, 41), // too far from each other
        ((0..41).collect(), 40, 0),
    ] {
        foresight.note_numbers(noted.iter().map(|nth: &usize| ids[*nth]));
        let places = foresight.places(&events);
        let numbers: u32 = places.numbers.bits.iter().map(|bits| bits.count_ones()).sum();
        assert_eq!((numbers, places.ids.len()), (by_number, by_id), "{noted:?}");
        let found = facts::foresee(&mut reader, &topics.numbers, &events, places).await.unwrap();
        assert!(found.facts().records.keys().eq(&stored), "{noted:?}");
        assert_eq!(foresight.places(&events).ids.len(), 41, "each is needed once");
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
