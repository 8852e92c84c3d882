//! Numbers and texts that others rely on: what is stored, what is sent, and what is documented.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kukuri_core::{
    Cursor, CursorError, Duplicate, Epoch, FeedBounds, Fence, Keep, Keeping, Lease, Limits,
    MarkState, Op, Outcome, Reason, Rejection, Removed, Retention, Seq, Source, State,
    TAG_VALUE_INDEXED_BYTES_MAX, UnixMillis,
};
use kukuri_event::ParseError;

/// Every refusal. A new one does not compile until it has a place here, and then has to be documented.
fn rejections() -> Vec<Rejection> {
    use Rejection::*;
    let all = vec![
        TooLarge,
        Malformed(ParseError::EmptyTag),
        TooManyTags,
        TagValueTooLong,
        TooManyTopics,
        TooManyTargets,
        P2pOnly,
        AuthKind,
        MissingTopic,
        BadTopic,
        TopicNotHandled,
        TooNew,
        TooOld,
        MissingD,
        Expired,
        RateLimited,
        IdMismatch,
        BadSignature,
        AuthRequired,
        Restricted,
        Blocked,
        Deleted,
        StorageFull,
        NodeFull,
        TopicFull,
        TopicPaused,
        NoBackfill,
    ];
    for (nth, rejection) in all.iter().enumerate() {
        let place = match rejection {
            TooLarge => 0,
            Malformed(_) => 1,
            TooManyTags => 2,
            TagValueTooLong => 3,
            TooManyTopics => 4,
            TooManyTargets => 5,
            P2pOnly => 6,
            AuthKind => 7,
            MissingTopic => 8,
            BadTopic => 9,
            TopicNotHandled => 10,
            TooNew => 11,
            TooOld => 12,
            MissingD => 13,
            Expired => 14,
            RateLimited => 15,
            IdMismatch => 16,
            BadSignature => 17,
            AuthRequired => 18,
            Restricted => 19,
            Blocked => 20,
            Deleted => 21,
            StorageFull => 22,
            NodeFull => 23,
            TopicFull => 24,
            TopicPaused => 25,
            NoBackfill => 26,
        };
        assert_eq!(place, nth, "{rejection:?}");
    }
    all
}

fn duplicates() -> [Outcome; 3] {
    use Duplicate::*;
    let all = [Known, Stale, NotKept];
    // Does not compile while one is missing.
    all.map(|which| match which {
        Known | Stale | NotKept => Outcome::Duplicate(which),
    })
}

/// The wire text of a refusal; what the sender wrote stands for itself.
fn wire(rejection: &Rejection) -> String {
    match rejection {
        Rejection::Malformed(_) => "invalid: malformed event: …".to_owned(),
        other => other.to_string(),
    }
}

/// The rows of the table under a heading of `docs/limits.md`, cell by cell, without backticks.
fn documented(heading: &str) -> Vec<Vec<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md");
    let text = std::fs::read_to_string(&file).expect("docs/limits.md is there");
    let section = text.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("docs/limits.md has no {heading:?}"));
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    rows.map(|row| row.trim_matches('|').split('|').map(cell).collect()).collect()
}

fn columns(rows: &[Vec<String>], one: usize, other: usize) -> BTreeMap<String, String> {
    let pairs: BTreeMap<String, String> =
        rows.iter().map(|row| (row[one].clone(), row[other].clone())).collect();
    assert_eq!(pairs.len(), rows.len(), "a row stands there twice");
    pairs
}

#[test]
fn every_refusal_is_documented_with_its_text() {
    let expected = rejections().iter().map(|r| (r.name().to_owned(), wire(r))).collect();
    assert_eq!(columns(&documented("Refusals"), 0, 1), expected);
    let listed: Vec<String> =
        documented("Refusals").into_iter().map(|row| row[0].clone()).collect();
    let order: Vec<String> = rejections().iter().map(|r| r.name().to_owned()).collect();
    assert_eq!(listed, order, "the table keeps the order of the checks");
}

#[test]
fn every_text_of_an_ok_true_is_documented() {
    let expected: BTreeSet<String> = duplicates().iter().map(Outcome::message).collect();
    let listed = documented("Texts of OK true").into_iter().map(|row| row[0].clone());
    assert_eq!(listed.collect::<BTreeSet<String>>(), expected);
}

#[test]
fn every_limit_is_documented_with_its_value() {
    let Limits {
        event_bytes_max,
        tags_max,
        tag_value_bytes_max,
        topics_max,
        deletion_targets_max,
        future_seconds_max,
        dedupe_retention_days,
    } = Limits::STANDARD;
    let Retention { regular_days, history_days, deletion_days } = Retention::STANDARD;
    let Keeping { memory_days, feed_days } = Keeping::STANDARD;
    let expected = [
        ("event_bytes_max", event_bytes_max.to_string()),
        ("tags_max", tags_max.to_string()),
        ("tag_value_bytes_max", tag_value_bytes_max.to_string()),
        ("topics_max", topics_max.to_string()),
        ("deletion_targets_max", deletion_targets_max.to_string()),
        ("future_seconds_max", future_seconds_max.to_string()),
        ("dedupe_retention_days", dedupe_retention_days.to_string()),
        ("retention.regular_days", regular_days.to_string()),
        ("retention.history_days", history_days.to_string()),
        ("retention.deletion_days", deletion_days.to_string()),
        ("memory_days", memory_days.to_string()),
        ("feed_days", feed_days.to_string()),
        ("tag_value_indexed_bytes_max", TAG_VALUE_INDEXED_BYTES_MAX.to_string()),
    ];
    let expected: BTreeMap<String, String> =
        expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(columns(&documented("Limits"), 0, 1), expected);
    // What a limit refuses with is one of the refusals.
    let texts: BTreeSet<String> = rejections().iter().map(wire).collect();
    for row in documented("Limits") {
        assert!(row[3].is_empty() || texts.contains(&row[3]), "{row:?}");
    }
}

/// Clients tell refusals apart by the word before the colon, and NIP-01 lists the words.
#[test]
fn every_text_begins_with_a_word_that_clients_know() {
    let known =
        ["duplicate", "blocked", "rate-limited", "invalid", "restricted", "auth-required", "error"];
    let texts = rejections().into_iter().map(|rejection| rejection.to_string());
    for text in texts.chain(duplicates().map(|outcome| outcome.message())) {
        let (word, rest) = text.split_once(": ").expect("a word, a colon, a sentence");
        assert!(known.contains(&word) && !rest.is_empty(), "{text}");
    }
}

#[test]
fn an_ok_is_true_unless_the_event_was_refused() {
    assert!(rejections().into_iter().all(|rejection| !Outcome::Refused(rejection).is_ok()));
    assert!(!Outcome::TopicInUse.is_ok() && !Outcome::HeldElsewhere.is_ok());
    let lease = Lease { fence: Fence(1), holder: None, until: UnixMillis(0) };
    let own = [Outcome::Removed(Removed::default()), Outcome::Held(lease)];
    let good = [Outcome::Accepted, Outcome::Ephemeral, Outcome::Done].into_iter().chain(own);
    let good: Vec<Outcome> = good.collect();
    assert!(good.iter().chain(&duplicates()).all(Outcome::is_ok));
    assert!(good.iter().all(|outcome| outcome.message().is_empty()));
}

/// These numbers are in databases. They may be added to and never changed.
#[test]
fn stored_numbers_never_change() {
    macro_rules! check {
        ($name:ident: $($variant:ident $code:literal $word:literal),+) => {
            let expected = [$(($name::$variant, $code, $word)),+];
            assert_eq!($name::ALL.len(), expected.len());
            for (value, code, word) in expected {
                assert_eq!((value.code(), value.as_str()), (code, word));
                assert_eq!($name::from_code(code), Some(value));
            }
            assert_eq!(($name::from_code(-1), $name::from_code(99)), (None, None));
        };
    }
    check!(Op: Upsert 1 "upsert", Delete 2 "delete");
    check!(Reason: Nip09 1 "nip09", Expiration 2 "expiration", Superseded 3 "superseded",
        Retention 4 "retention", Capacity 5 "capacity", Takedown 6 "takedown", Topic 7 "topic");
    check!(Source: Ws 1 "ws", Gossip 2 "gossip", Backfill 3 "backfill", Import 4 "import",
        Paid 5 "paid", Node 6 "node");
    check!(State: Effective 1 "effective", Superseded 2 "superseded", Deleted 3 "deleted",
        Expired 4 "expired");
    check!(Keep: Standard 0 "standard", Longer 1 "longer");
    check!(MarkState: Effective 1 "effective", Deleted 2 "deleted", Expired 3 "expired",
        Purged 4 "purged", Evicted 5 "evicted");
}

#[test]
fn a_cursor_is_good_from_the_floor_to_the_head() {
    let epoch = Epoch(7);
    let bounds = FeedBounds { epoch, floor: Seq(3), head: Seq(5) };
    let check = |epoch, seq| bounds.check(Cursor { epoch, seq: Seq(seq) });
    assert_eq!(check(epoch, 2), Err(CursorError::Truncated { floor: Seq(3) }));
    assert_eq!([3, 4, 5].map(|seq| check(epoch, seq)), [Ok(()); 3]);
    let diverged = Err(CursorError::Diverged { head: Seq(5) });
    assert_eq!(check(epoch, 6), diverged);
    assert_eq!([2, 4].map(|seq| check(Epoch(8), seq)), [diverged; 2]);
    assert_eq!(bounds.check(bounds.start()), Ok(()));
}
