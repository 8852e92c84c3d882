//! What left does not come back, by whatever door and however late: while its id is remembered because it
//! is, and later because it is too old.

use std::time::Duration;

use kukuri_core::{IngestPolicy, Keeping, Source, UnixMillis};
use kukuri_event::UnixSeconds;
use kukuri_node::upkeep::UpkeepSettings;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::spec::Event;

use crate::home::Home;
use crate::rig::{DAY, LEASE_OVER, Node, SETTINGS, START, Time, doctor, topic};

const DOORS: [Source; 5] =
    [Source::Ws, Source::Gossip, Source::Backfill, Source::Import, Source::Paid];
const TOPICS: [char; 4] = ['a', 'b', 'c', 'd'];

/// Days after which everything is offered again: around the ends of retention and of memory, where a
/// second decides.
const DAYS: [u32; 8] = [31, 100, 178, 179, 180, 181, 365, 800];
const MOMENTS: [i64; 3] = [-1, 0, 1];

/// An event that left, and what it is answered while it is remembered.
struct Gone {
    how: &'static str,
    text: String,
    answers: &'static [&'static str],
}

fn draft(kind: u16, digit: char, nth: i64) -> Draft {
    // As far ahead of the clock as may be, which makes them the youngest of their time.
    let created_at = START.saturating_add(15 * 60 - nth);
    Draft::new(kind, created_at).tag("t", topic(digit)).tag("nth", nth)
}

fn article(digit: char, nth: i64) -> Draft {
    draft(30_023, digit, nth).tag("d", nth)
}

fn request(digit: char, name: &str, value: String) -> String {
    let at = START.saturating_add(15 * 60);
    author().sign(&Draft::new(5, at).tag("t", topic(digit)).tag(name, value))
}

fn author() -> Author {
    Author::numbered(1)
}

fn id(text: &str) -> String {
    Event::read(text).id
}

const NOT_KEPT: &[&str] = &["duplicate: seen before, no longer kept"];
const DELETED: &[&str] = &["blocked: deleted by its author", NOT_KEPT[0], STALE];
const STALE: &str = "duplicate: a newer version is stored";
const REPLACED: &[&str] = &["duplicate: already have this event", NOT_KEPT[0], STALE];
const EXPIRED: &[&str] = &["invalid: expired"];

/// Lets events in and sees them leave, each in its way.
async fn leave(node: &mut Node) -> Vec<Gone> {
    let sign = |draft: &Draft| author().sign(draft);
    let soon = START.saturating_add(60 * 60).0;
    let tricks = |draft: Draft| sign(&draft.tag("expiration", soon));
    let [aged, purged, deleted] =
        [1, 2, 3].map(|nth| sign(&draft(1, if nth == 2 { 'c' } else { 'a' }, nth)));
    let [evicted, evicted_article] = [sign(&draft(1, 'b', 4)), sign(&article('b', 5))];
    let purged_article = sign(&article('c', 6));
    let [by_id, by_address] = [7, 8].map(|nth| sign(&article('a', nth)));
    let (expired, expired_article) = (tricks(draft(1, 'a', 9)), tricks(article('a', 10)));
    let replaced = sign(&draft(30_023, 'a', 12).tag("d", "x"));
    let newer = sign(&draft(30_023, 'a', 11).tag("d", "x"));
    let early = sign(&draft(1, 'a', 13));
    let early_article = sign(&article('a', 14));
    let address = format!("30023:{}:8", author().pubkey());
    for text in [
        request('a', "e", id(&early)),
        request('a', "e", id(&early_article)),
        aged.clone(),
        purged.clone(),
        deleted.clone(),
        evicted.clone(),
        evicted_article.clone(),
        purged_article.clone(),
        by_id.clone(),
        by_address.clone(),
        expired.clone(),
        expired_article.clone(),
        replaced.clone(),
        newer,
        request('a', "e", id(&deleted)),
        request('a', "e", id(&by_id)),
        request('a', "a", address),
    ] {
        assert_eq!(node.say(&text).await, "", "{text}");
    }
    let nothing = IngestPolicy { max_events: Some(0), ..IngestPolicy::default() };
    node.set_topic('b', nothing).await;
    assert_eq!(node.purge('c').await.events, 2);
    node.keep().await;
    node.set_topic('b', IngestPolicy::default()).await;
    let gone = |how, text, answers| Gone { how, text, answers };
    vec![
        gone("aged", aged, NOT_KEPT),
        gone("purged", purged, NOT_KEPT),
        gone("evicted", evicted, NOT_KEPT),
        gone("evicted version", evicted_article, NOT_KEPT),
        gone("purged version", purged_article, NOT_KEPT),
        gone("deleted", deleted, DELETED),
        gone("version deleted by id", by_id, DELETED),
        gone("version deleted by address", by_address, DELETED),
        gone("deleted before it came", early, DELETED),
        gone("version deleted before it came", early_article, DELETED),
        gone("expired", expired, EXPIRED),
        gone("expired version", expired_article, EXPIRED),
        gone("replaced", replaced, REPLACED),
    ]
}

/// Offers everything that left by every door.
async fn come_again(node: &Node, all: &[Gone]) {
    let now = node.time.now().seconds();
    for Gone { how, text, answers } in all {
        let event = Event::read(text);
        let bound = UnixSeconds(now.0 - 179 * 24 * 60 * 60);
        let too_old = event.key().is_none() && event.created_at < bound.0;
        let arrivals = DOORS.map(|door| (text.clone(), door));
        for (said, door) in node.publish(&arrivals).await.into_iter().zip(DOORS) {
            let expected = if too_old {
                said == "invalid: created_at too old"
            } else {
                answers.contains(&said.as_str())
            };
            assert!(expected, "{how}, by {door:?} at {now}: {said:?}");
        }
    }
}

async fn visible(node: &Node) -> Vec<String> {
    let mut all = Vec::new();
    for digit in TOPICS {
        all.extend(node.visible(digit).await);
    }
    all
}

async fn nothing_comes_back(home: Home) {
    let time = Time::start();
    let mut node = Node::start(home.open().await, &time);
    for digit in TOPICS {
        node.set_topic(digit, IngestPolicy::default()).await;
    }
    let all = leave(&mut node).await;
    let begin = time.now();
    time.pass(Duration::from_secs(60 * 60));
    for days in DAYS {
        // Memories of the deletions are as old as the events, to the second.
        for second in MOMENTS {
            let at = begin.0 + i64::from(days) * DAY.as_millis() as i64 + second * 1000;
            time.pass(Duration::from_millis((at - time.now().0).unsigned_abs()));
            node.keep().await;
            come_again(&node, &all).await;
            let there = visible(&node).await;
            for Gone { how, text, .. } in &all {
                assert!(!there.contains(&id(text)), "{how}: it is back after {days} days");
            }
        }
        assert_eq!(doctor(&*node.store).await, [] as [&str; 0]);
    }
    // What came back would be noticed: there is a door that lets it.
    let [aged, ..] = &all[..] else { unreachable!("there are some") };
    assert_eq!(node.import_of_any_age(&aged.text).await, "");
    assert!(visible(&node).await.contains(&id(&aged.text)));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_back_on_sqlite() {
    nothing_comes_back(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_back_on_postgres() {
    nothing_comes_back(Home::postgres()).await;
}

/// Ids were remembered for 40 days, and are remembered for 180 from then on. What was forgotten after 40 is
/// younger than the new age rule asks for, and came back.
async fn longer_memory_lets_nothing_back(home: Home) {
    let time = Time::start();
    let mut node = Node::start(home.open().await, &time);
    let memory = |memory_days| {
        let keeping = Keeping { memory_days, ..Keeping::STANDARD };
        UpkeepSettings { keeping, ..SETTINGS }
    };
    node.resettle(memory(40));
    for digit in TOPICS {
        node.set_topic(digit, IngestPolicy::default()).await;
    }
    let all = leave(&mut node).await;
    // What was deleted before it came does come, while that is remembered.
    time.pass(31 * DAY);
    node.keep().await;
    come_again(&node, &all).await;
    time.pass(19 * DAY);
    node.keep().await;
    time.pass(LEASE_OVER);
    node.resettle(memory(180));
    for _ in 0..6 {
        for Gone { how, text, .. } in &all {
            let arrivals = DOORS.map(|door| (text.clone(), door));
            for said in node.publish(&arrivals).await {
                assert!(!said.is_empty(), "{how}: it is back {}", time.now().0);
            }
        }
        let there = visible(&node).await;
        assert!(all.iter().all(|gone| !there.contains(&id(&gone.text))));
        node.keep().await;
        time.pass(30 * DAY);
    }
    let now = time.now().seconds();
    let new = author().sign(&Draft::new(1, now).tag("t", topic('a')));
    assert_eq!(node.say(&new).await, "", "what is new is taken in");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_memory_lets_nothing_back_on_sqlite() {
    longer_memory_lets_nothing_back(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_memory_lets_nothing_back_on_postgres() {
    longer_memory_lets_nothing_back(Home::postgres()).await;
}

/// A note that its author has dated ten days ahead, and deleted before it could be sent. The request was
/// forgotten 180 days after it came, when the note was not yet too old.
async fn a_note_of_the_future_stays_deleted(home: Home) {
    let time = Time::start();
    let mut node = Node::start(home.open().await, &time);
    node.set_topic('a', IngestPolicy::default()).await;
    let ahead = START.saturating_add(10 * 24 * 60 * 60);
    let note = author().sign(&Draft::new(1, ahead).tag("t", topic('a')));
    assert_eq!(node.say(&request('a', "e", id(&note))).await, "");
    for days in [10, 178, 180, 181, 188, 189, 190, 191, 400] {
        let at = UnixMillis::from(START).0 + i64::from(days) * DAY.as_millis() as i64;
        time.pass(Duration::from_millis((at - time.now().0).unsigned_abs()));
        node.keep().await;
        let expected = match days {
            ..=189 => "blocked: deleted by its author",
            _ => "invalid: created_at too old",
        };
        assert_eq!(node.say(&note).await, expected, "after {days} days");
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_of_the_future_stays_deleted_on_sqlite() {
    a_note_of_the_future_stays_deleted(Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_of_the_future_stays_deleted_on_postgres() {
    a_note_of_the_future_stays_deleted(Home::postgres()).await;
}
