//! What is asked of other nodes, and when.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use kukuri_core::backfill::{Agenda, Pauses, Reach, Why, Window, windows};
use kukuri_core::{IngestPolicy, Limits, NodeState, Past, TopicId, UnixMillis};
use kukuri_event::{Kind, UnixSeconds};
use proptest::prelude::*;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const DAY_SECONDS: i64 = 24 * 60 * 60;

fn days_ago(days: i64) -> UnixSeconds {
    NOW.seconds().saturating_sub(days * DAY_SECONDS)
}

fn asked(policy: &IngestPolicy, node: &NodeState, days_max: u32) -> Vec<Window> {
    let limits = &Limits::STANDARD;
    windows(&TopicId::global(), policy, Reach { node, limits, days_max, now: NOW })
}

#[test]
fn a_topic_is_asked_for_as_long_as_it_keeps_events() {
    let (node, policy) = (NodeState::FRESH, IngestPolicy::default());
    let [main, deletions, versions] = &asked(&policy, &node, 365)[..] else { panic!() };
    assert_eq!(main.kinds, None);
    assert_eq!(main.since, days_ago(30).saturating_add(1));
    assert_eq!(main.until, NOW.seconds().saturating_add(900));
    assert_eq!(deletions.kinds, Some(vec![Kind::DELETION]));
    // They are kept for longer than admission takes regular events.
    assert_eq!(deletions.since, days_ago(179));
    assert_eq!(deletions.until, days_ago(30));
    assert_eq!((versions.since, versions.until), (UnixSeconds(0), days_ago(30)));
    let kinds = versions.kinds.as_ref().unwrap();
    assert!(kinds.contains(&Kind(0)) && kinds.contains(&Kind(30_023)), "{kinds:?}");
    assert!(kinds.len() < 100, "a filter has few values");
    let short = IngestPolicy { retention_days: Some(2), ..policy.clone() };
    assert_eq!(asked(&short, &node, 365)[0].since, days_ago(2).saturating_add(1));
    // The operator's bound is about what is many; what was deleted has to be known all the same.
    let bounded = asked(&policy, &node, 1);
    assert_eq!(bounded[0].since, days_ago(1).saturating_add(1));
    assert_eq!((bounded[1].since, bounded[1].until), (days_ago(179), days_ago(1)));
}

#[test]
fn nothing_is_asked_for_that_would_be_refused_for_its_age() {
    let long = IngestPolicy { retention_days: Some(1000), ..IngestPolicy::default() };
    let node = NodeState::FRESH;
    assert_eq!(asked(&long, &node, 1000)[0].since, days_ago(179));
    // Once something was forgotten, what is so old that it may be that.
    let forgotten_until = Some(NOW.days_before(50));
    let past = Past { forgotten_until, ..Past::default() };
    let node = NodeState { past, ..node };
    let since = asked(&long, &node, 1000)[0].since;
    assert!(!node.past.may_have_held(since));
    assert!(node.past.may_have_held(since.saturating_sub(1)));
}

proptest! {
    #[test]
    fn halves_are_the_whole(since in 0_i64..1_000_000, length in 0_i64..1_000_000) {
        let (since, until) = (UnixSeconds(since), UnixSeconds(since + length));
        let window = Window { topic: TopicId::global(), kinds: None, since, until };
        match window.halves() {
            None => prop_assert_eq!(since, until),
            Some([newer, older]) => {
                prop_assert_eq!((older.since, newer.until), (since, until));
                prop_assert_eq!(older.until.saturating_add(1), newer.since);
                prop_assert!(older.since <= older.until && newer.since <= newer.until);
            }
        }
    }
}

#[test]
fn kinds_are_halved() {
    let window = asked(&IngestPolicy::default(), &NodeState::FRESH, 30).pop().unwrap();
    let [first, rest] = window.half_kinds().unwrap();
    let both = [first.kinds.unwrap(), rest.kinds.unwrap()].concat();
    assert_eq!(Some(both), window.kinds);
    let one = Window { kinds: Some(vec![Kind(0)]), ..window.clone() };
    assert_eq!(one.half_kinds(), None);
    assert_eq!(Window { kinds: None, ..window }.half_kinds(), None);
}

const PAUSES: Pauses = Pauses {
    interval: Duration::from_secs(600),
    retry: Duration::from_secs(10),
    least: Duration::from_secs(5),
};

fn at(seconds: i64) -> UnixMillis {
    UnixMillis(NOW.0 + 1000 * seconds)
}

fn topic(digit: char) -> TopicId {
    TopicId::parse(&format!("kukuri:{}", digit.to_string().repeat(64))).unwrap()
}

#[test]
fn topics_are_asked_for_when_they_come_and_again_after_a_while() {
    let mut agenda = Agenda::new(PAUSES);
    assert_eq!(agenda.next(NOW), None);
    let topics = BTreeSet::from([topic('a'), topic('b')]);
    agenda.follow(&topics, NOW);
    assert_eq!(agenda.next(NOW), Some((topic('a'), Why::Joined)));
    agenda.done(&topic('a'), at(1));
    assert_eq!(agenda.next(at(1)), Some((topic('b'), Why::Joined)));
    agenda.done(&topic('b'), at(2));
    // To follow the same topics changes nothing.
    agenda.follow(&topics, at(3));
    assert_eq!(agenda.next(at(600)), None);
    assert_eq!(agenda.next(at(601)), Some((topic('a'), Why::Scheduled)));
    agenda.follow(&BTreeSet::from([topic('b')]), at(602));
    assert_eq!(agenda.next(at(602)), Some((topic('b'), Why::Scheduled)));
    agenda.done(&topic('a'), at(602));
    agenda.done(&topic('b'), at(602));
    assert_eq!(agenda.next(at(1201)), None, "what has left does not come back");
}

#[test]
fn gaps_are_filled_soon_and_not_too_often() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.ask(&topic('a'), Why::Lagged, NOW);
    assert_eq!(agenda.next(NOW), None, "it is not carried");
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    agenda.done(&topic('a'), NOW);
    agenda.ask(&topic('a'), Why::Lagged, at(1));
    agenda.ask(&topic('a'), Why::Partition, at(2));
    assert_eq!(agenda.next(at(4)), None);
    assert_eq!(agenda.next(at(5)), Some((topic('a'), Why::Lagged)));
    agenda.done(&topic('a'), at(6));
    agenda.ask(&topic('a'), Why::Partition, at(100));
    assert_eq!(agenda.next(at(100)), Some((topic('a'), Why::Partition)));
}

#[test]
fn what_is_known_to_be_missing_comes_first() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a'), topic('b'), topic('c')]), NOW);
    agenda.ask(&topic('c'), Why::Lagged, NOW);
    agenda.ask(&topic('b'), Why::Partition, at(1));
    assert_eq!(agenda.next(at(1)), Some((topic('c'), Why::Lagged)));
    agenda.done(&topic('c'), at(2));
    assert_eq!(agenda.next(at(2)), Some((topic('a'), Why::Joined)), "it has been due for longer");
}

#[test]
fn failures_are_repeated_less_and_less_often() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    let mut now = 0;
    for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
        agenda.failed(&topic('a'), at(now));
        assert_eq!(agenda.next(at(now + pause - 1)), None, "{pause}");
        assert_eq!(agenda.next(at(now + pause)), Some((topic('a'), Why::Retried)), "{pause}");
        now += pause;
    }
    agenda.done(&topic('a'), at(now));
    agenda.failed(&topic('a'), at(now));
    assert!(agenda.next(at(now + 10)).is_some(), "what went well begins anew");
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    agenda.done(&topic('a'), at(1_000_000));
    assert_eq!(agenda.next(NOW), Some((topic('a'), Why::Scheduled)));
}
