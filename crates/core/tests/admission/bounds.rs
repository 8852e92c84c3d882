//! Every limit at n and at n + 1.

use kukuri_core::admission::Age;
use kukuri_core::{Limits, Rejection};
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};

use crate::{NOW, Trial, note, of_kind, refusal, topic};

/// How many refusals there are. The test of `docs/limits.md` counts them by the enum itself.
pub const REJECTIONS: usize = 22;

const LIMITS: Limits = Limits::STANDARD;
const DAY: i64 = 86_400;

/// The draft, padded so that its text is so many bytes long.
fn of_bytes(bytes: usize) -> Draft {
    let empty = Author::numbered(1).sign(&note()).len();
    note().content("x".repeat(bytes - empty))
}

#[test]
fn an_event_has_64_kib() {
    assert_eq!(refusal(of_bytes(LIMITS.event_bytes_max)), None);
    assert_eq!(refusal(of_bytes(LIMITS.event_bytes_max + 1)), Some(Rejection::TooLarge));
}

/// Blanks count: what came is what had to be carried and read.
#[test]
fn the_size_is_that_of_the_text_as_it_came() {
    let mut trial = Trial::of(of_bytes(LIMITS.event_bytes_max));
    trial.spoil.push(|text| format!("{text} "));
    assert_eq!(trial.refusal(), Some(Rejection::TooLarge));
}

#[test]
fn an_event_has_2000_tags() {
    let tagged = |count| {
        let more = (1..count).map(|_| vec!["x".to_owned()]);
        Draft { tags: note().tags.into_iter().chain(more).collect(), ..note() }
    };
    assert_eq!(refusal(tagged(LIMITS.tags_max)), None);
    assert_eq!(refusal(tagged(LIMITS.tags_max + 1)), Some(Rejection::TooManyTags));
}

#[test]
fn a_single_letter_value_has_1_kib() {
    let most = LIMITS.tag_value_bytes_max;
    let long = Some(Rejection::TagValueTooLong);
    for letter in ["x", "X", "e", "d", "t"] {
        assert_eq!(refusal(note().tag(letter, "x".repeat(most))), None, "{letter}");
        assert_eq!(refusal(note().tag(letter, "x".repeat(most + 1))), long, "{letter}");
    }
    assert_eq!(refusal(note().tag("x", "é".repeat(most / 2))), None);
    assert_eq!(refusal(note().tag("x", "é".repeat(most / 2) + "x")), long);
    // Nobody can ask for these, so no index has to hold them.
    assert_eq!(refusal(note().tag("word", "x".repeat(most + 1))), None);
    let mut second = note();
    second.tags.push(vec!["x".to_owned(), String::new(), "x".repeat(most + 1)]);
    assert_eq!(refusal(second), None);
}

#[test]
fn an_event_has_16_topics() {
    let on = |count| (1..count).fold(note(), |draft, nth| draft.tag("t", topic(nth)));
    let hashtags = |draft: Draft| (0..50).fold(draft, |draft, nth| draft.tag("t", nth));
    assert_eq!(refusal(hashtags(on(LIMITS.topics_max))), None);
    assert_eq!(refusal(on(LIMITS.topics_max + 1)), Some(Rejection::TooManyTopics));
}

#[test]
fn a_deletion_has_200_targets() {
    let mixed = |nth| if nth % 2 == 0 { "e" } else { "a" };
    let naming = |kind, count| (0..count).fold(of_kind(kind), |d, nth| d.tag(mixed(nth), ""));
    assert_eq!(refusal(naming(5, LIMITS.deletion_targets_max)), None);
    assert_eq!(
        refusal(naming(5, LIMITS.deletion_targets_max + 1)),
        Some(Rejection::TooManyTargets)
    );
    assert_eq!(refusal(naming(1, LIMITS.deletion_targets_max + 1)), None);
}

fn written_at(kind: u16, created_at: UnixSeconds) -> Draft {
    Draft { created_at, ..of_kind(kind).tag("d", "") }
}

#[test]
fn an_event_may_come_15_minutes_early() {
    for kind in [1, 0, 30_023, 20_001] {
        let newest = NOW.saturating_add(LIMITS.future_seconds_max);
        assert_eq!(refusal(written_at(kind, newest)), None, "{kind}");
        let beyond = written_at(kind, newest.saturating_add(1));
        assert_eq!(refusal(beyond), Some(Rejection::TooNew), "{kind}");
    }
    assert_eq!(refusal(written_at(1, UnixSeconds(i64::MAX))), Some(Rejection::TooNew));
}

#[test]
fn a_regular_event_may_come_179_days_late() {
    let oldest = NOW.saturating_sub(179 * DAY);
    let older = oldest.saturating_sub(1);
    for kind in [1, 5, 7, 20_001] {
        assert_eq!(refusal(written_at(kind, oldest)), None, "{kind}");
        assert_eq!(refusal(written_at(kind, older)), Some(Rejection::TooOld), "{kind}");
    }
    for kind in [0, 3, 10_002, 30_023] {
        assert_eq!(refusal(written_at(kind, UnixSeconds(0))), None, "{kind}");
    }
    let any_age = Trial { age: Age::Any, ..Trial::of(written_at(1, UnixSeconds(0))) };
    assert_eq!(any_age.refusal(), None);
    let too_new = written_at(1, NOW.saturating_add(LIMITS.future_seconds_max + 1));
    let any_age = Trial { age: Age::Any, ..Trial::of(too_new) };
    assert_eq!(any_age.refusal(), Some(Rejection::TooNew));
}

#[test]
fn an_event_expires_when_its_second_begins() {
    let ending = |end: UnixSeconds| note().tag("expiration", end);
    assert_eq!(refusal(ending(NOW)), Some(Rejection::Expired));
    assert_eq!(refusal(ending(NOW.saturating_add(1))), None);
    assert_eq!(refusal(ending(UnixSeconds(0))), Some(Rejection::Expired));
    assert_eq!(refusal(note().tag("expiration", "soon")), None);
}

#[test]
fn an_addressable_event_has_a_d() {
    assert_eq!(refusal(of_kind(30_023)), Some(Rejection::MissingD));
    assert_eq!(refusal(of_kind(30_023).tag("d", "")), None);
    let mut bare = of_kind(30_023);
    bare.tags.push(vec!["d".to_owned()]);
    assert_eq!(refusal(bare), None);
    assert_eq!(refusal(of_kind(10_002)), None);
}

#[test]
fn some_kinds_never_come_in() {
    for kind in [39_020, 39_021, 39_022] {
        assert_eq!(refusal(of_kind(kind).tag("d", "")), Some(Rejection::P2pOnly), "{kind}");
    }
    for kind in [39_019, 39_023] {
        assert_eq!(refusal(of_kind(kind).tag("d", "")), None, "{kind}");
    }
    assert_eq!(refusal(of_kind(22_242)), Some(Rejection::AuthKind));
}
