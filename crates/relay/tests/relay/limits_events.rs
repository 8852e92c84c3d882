//! The limits of events, which every door shares, as they are felt on a socket: at n and at n + 1.
//! The size of an event is in `limits.rs`.

use kukuri_core::Limits;
use kukuri_relay::{OpenGate, RelayLimits};
use kukuri_store::conformance::signing::Draft;

use crate::rig::{Rig, ago, author, draft, limited, note, signed, topic};

const DAY_SECONDS: i64 = 24 * 60 * 60;

const LIMITS: Limits = Limits {
    tags_max: 5,
    tag_value_bytes_max: 80,
    topics_max: 2,
    deletion_targets_max: 3,
    future_seconds_max: 60,
    dedupe_retention_days: 3,
    ..Limits::STANDARD
};

/// Publishes what just fits and what just does not.
async fn try_at(fits: &[Draft], does_not: &[Draft], why: &str) {
    let config = limited(|limits| RelayLimits { events: LIMITS, ..limits });
    let rig = Rig::with(config, OpenGate).await;
    let mut client = rig.client().await;
    for draft in fits {
        client.publish_ok(&signed(draft)).await;
    }
    for draft in does_not {
        client.refused(&signed(draft), why).await;
    }
}

/// A note of the first topic with these tags as well.
fn with(tags: &[(&str, &str)]) -> Draft {
    tags.iter().fold(note(""), |note, (name, value)| note.tag(name, value))
}

#[tokio::test]
async fn tags() {
    let four = [("r", "1"), ("alt", "2"), ("r", "3"), ("r", "4")];
    let five = [&four[..], &[("r", "5")]].concat();
    try_at(&[with(&four)], &[with(&five)], "invalid: too many tags").await;
}

/// Bytes count, not characters, and only of what a filter can ask for: the first value of a tag
/// with one letter.
#[tokio::test]
async fn values_of_tags() {
    let (longest, too_long) = ("é".repeat(40), "é".repeat(40) + "x");
    let mut second = note("");
    second.tags.push(vec!["r".to_owned(), "short".to_owned(), too_long.clone()]);
    let fits = [with(&[("r", &longest)]), with(&[("alt", &too_long)]), second];
    let does_not = [with(&[("r", &too_long)]), with(&[("R", &too_long)])];
    try_at(&fits, &does_not, "invalid: tag value too long").await;
}

/// Repeats count, hashtags do not.
#[tokio::test]
async fn topics() {
    let (one, two, three) = (topic(1), topic(2), topic(3));
    let fits = [with(&[("t", &two)]), with(&[("t", &two), ("t", "cats"), ("t", "dogs")])];
    let does_not = [with(&[("t", &two), ("t", &three)]), with(&[("t", &one), ("t", &one)])];
    try_at(&fits, &does_not, "invalid: too many topics").await;
}

/// Only a deletion has targets.
#[tokio::test]
async fn targets_of_deletions() {
    let (event, address) = ("ab".repeat(32), format!("30000:{}:d", author(1).pubkey()));
    let three = [("e", event.as_str()), ("a", &address), ("e", &event)];
    let four = [&three[..], &[("a", &address)]].concat();
    let deletion =
        |targets: &[(&str, &str)]| Draft { kind: draft(5, "", &[]).kind, ..with(targets) };
    let fits = [deletion(&three), with(&four)];
    try_at(&fits, &[deletion(&four)], "invalid: too many deletion targets").await;
}

#[tokio::test]
async fn the_future() {
    let fits = [note("now"), ago(-60, note("soon"))];
    try_at(&fits, &[ago(-61, note("later"))], "invalid: created_at too far in the future").await;
}

/// Ids are remembered for three days, so a day less is how old an event may be. Versions may have
/// any age: what is known of them is never forgotten.
#[tokio::test]
async fn the_past() {
    let one = topic(1);
    let of = |kind: u16| draft(kind, "", &[&["t", one.as_str()], &["d", ""]]);
    let oldest = 2 * DAY_SECONDS;
    let fits = [
        ago(oldest, of(1)),
        ago(oldest, of(20_001)),
        ago(oldest + 1, of(0)),
        ago(oldest + 1, of(30_000)),
        ago(of(10_003).created_at.0, of(10_003)),
    ];
    let does_not = [ago(oldest + 1, of(1)), ago(oldest + 1, of(20_001)), ago(oldest + 1, of(5))];
    try_at(&fits, &does_not, "invalid: created_at too old").await;
}

/// An event is there until its time comes, and not when it has come.
#[tokio::test]
async fn expiration() {
    let now = note("").created_at.0;
    let until = |end: i64| with(&[("expiration", &end.to_string())]);
    try_at(&[until(now + 1)], &[until(now), until(now - 1)], "invalid: expired").await;
}
