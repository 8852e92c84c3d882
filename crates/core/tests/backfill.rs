//! What is asked of other nodes, and when.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use kukuri_core::backfill::{Agenda, Covered, Part, Pauses, Reach, Why, Window, windows};
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
        let (topic, part) = (TopicId::global(), Part::Recent);
        let window = Window { topic, part, kinds: None, since, until };
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

fn next(agenda: &Agenda<TopicId>, now: UnixMillis) -> Option<(TopicId, Why)> {
    agenda.next(now, |_| true)
}

#[test]
fn what_may_not_be_asked_now_lets_others_go_first() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a'), topic('b')]), NOW);
    let but_a = |key: &TopicId| *key != topic('a');
    assert_eq!(agenda.next(NOW, but_a), Some((topic('b'), Why::Joined)));
    agenda.done(&topic('b'), NOW);
    assert_eq!(agenda.next(NOW, but_a), None);
    assert_eq!(next(&agenda, NOW), Some((topic('a'), Why::Joined)));
}

#[test]
fn topics_are_asked_for_when_they_come_and_again_after_a_while() {
    let mut agenda = Agenda::new(PAUSES);
    assert_eq!(next(&agenda, NOW), None);
    let topics = BTreeSet::from([topic('a'), topic('b')]);
    agenda.follow(&topics, NOW);
    assert_eq!(next(&agenda, NOW), Some((topic('a'), Why::Joined)));
    agenda.done(&topic('a'), at(1));
    assert_eq!(next(&agenda, at(1)), Some((topic('b'), Why::Joined)));
    agenda.done(&topic('b'), at(2));
    // To follow the same topics changes nothing.
    agenda.follow(&topics, at(3));
    assert_eq!(next(&agenda, at(600)), None);
    assert_eq!(next(&agenda, at(601)), Some((topic('a'), Why::Scheduled)));
    agenda.follow(&BTreeSet::from([topic('b')]), at(602));
    assert_eq!(next(&agenda, at(602)), Some((topic('b'), Why::Scheduled)));
    agenda.done(&topic('a'), at(602));
    agenda.done(&topic('b'), at(602));
    assert_eq!(next(&agenda, at(1201)), None, "what has left does not come back");
}

#[test]
fn gaps_are_filled_soon_and_not_too_often() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.ask(&topic('a'), Why::Lagged, NOW);
    assert_eq!(next(&agenda, NOW), None, "it is not carried");
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    agenda.done(&topic('a'), NOW);
    agenda.ask(&topic('a'), Why::Lagged, at(1));
    agenda.ask(&topic('a'), Why::Partition, at(2));
    assert_eq!(next(&agenda, at(4)), None);
    assert_eq!(next(&agenda, at(5)), Some((topic('a'), Why::Lagged)));
    agenda.done(&topic('a'), at(6));
    agenda.ask(&topic('a'), Why::Partition, at(100));
    assert_eq!(next(&agenda, at(100)), Some((topic('a'), Why::Partition)));
}

/// What is missed while a relay is asked may not be in its answer.
#[test]
fn gaps_that_are_told_meanwhile_are_filled_afterwards() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a'), topic('b'), topic('c')]), NOW);
    for key in [topic('a'), topic('b'), topic('c')] {
        agenda.begin(&key);
    }
    assert_eq!(next(&agenda, at(1)), None, "all are being asked");
    agenda.ask(&topic('a'), Why::Lagged, at(1));
    agenda.ask(&topic('b'), Why::Partition, at(1));
    assert_eq!(next(&agenda, at(1)), None);
    agenda.done(&topic('a'), at(2));
    agenda.failed(&topic('b'), at(2));
    assert_eq!(next(&agenda, at(6)), None);
    assert_eq!(next(&agenda, at(7)), Some((topic('a'), Why::Lagged)));
    agenda.begin(&topic('a'));
    assert_eq!(next(&agenda, at(7)), Some((topic('b'), Why::Partition)));
    agenda.begin(&topic('b'));
    agenda.done(&topic('a'), at(8));
    assert_eq!(next(&agenda, at(600)), None, "it was asked for once more");
    agenda.leave(&topic('c'));
    assert_eq!(next(&agenda, at(8)), Some((topic('c'), Why::Joined)), "it is as due as it was");
}

#[test]
fn what_is_known_to_be_missing_comes_first() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a'), topic('b'), topic('c')]), NOW);
    agenda.ask(&topic('c'), Why::Lagged, NOW);
    agenda.ask(&topic('b'), Why::Partition, at(1));
    assert_eq!(next(&agenda, at(1)), Some((topic('c'), Why::Lagged)));
    agenda.done(&topic('c'), at(2));
    assert_eq!(next(&agenda, at(2)), Some((topic('a'), Why::Joined)), "it has been due for longer");
}

#[test]
fn failures_are_repeated_less_and_less_often() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    let mut now = 0;
    for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
        agenda.failed(&topic('a'), at(now));
        assert_eq!(next(&agenda, at(now + pause - 1)), None, "{pause}");
        assert_eq!(next(&agenda, at(now + pause)), Some((topic('a'), Why::Retried)), "{pause}");
        now += pause;
    }
    agenda.done(&topic('a'), at(now));
    agenda.failed(&topic('a'), at(now));
    assert!(next(&agenda, at(now + 10)).is_some(), "what went well begins anew");
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut agenda = Agenda::new(PAUSES);
    agenda.follow(&BTreeSet::from([topic('a')]), NOW);
    agenda.done(&topic('a'), at(1_000_000));
    assert_eq!(next(&agenda, NOW), Some((topic('a'), Why::Scheduled)));
}

/// The seconds of a part that windows ask for, newest first.
fn times(windows: &[Window], part: Part) -> Vec<(i64, i64)> {
    let of_part = windows.iter().filter(|window| window.part == part);
    of_part.map(|window| (window.since.0, window.until.0)).collect()
}

/// What a reconciliation has gone through is not asked for again by the next one, but for what is new since.
#[test]
fn what_was_gone_through_is_spared_once() {
    let all = asked(&IngestPolicy::default(), &NodeState::FRESH, 365);
    let [main, deletions, versions] = &all[..] else { panic!() };
    let (now, hour) = (NOW.seconds(), 3600);
    assert_eq!(Covered::by(now, None, []), None);
    // It has ended in the middle of the first part.
    let middle = days_ago(10);
    let left = [&Window { until: middle, ..main.clone() }, deletions, versions];
    let covered = Covered::by(now, None, left).unwrap();
    let later = now.saturating_add(5);
    let rest = covered.spare(all.clone(), later);
    let new = (now.0 - hour, main.until.0);
    assert_eq!(times(&rest, Part::Recent), [new, (main.since.0, middle.0)]);
    assert_eq!(rest[2..], all[1..]);
    // The next one has ended in what is new, and then further on.
    let left = [&rest[0], &rest[1]];
    assert_eq!(Covered::by(later, Some(covered), left), Some(covered));
    let older = middle.saturating_sub(9);
    let further = Covered::by(later, Some(covered), [&Window { until: older, ..main.clone() }]);
    let rest = further.unwrap().spare(all.clone(), later);
    let new = (now.0 + 5 - hour, main.until.0);
    assert_eq!(times(&rest, Part::Recent), [new, (main.since.0, older.0)]);
    // Parts that were gone through are asked for what is new alone.
    let covered =
        Covered::by(now, further, [&Window { until: UnixSeconds(7), ..versions.clone() }]);
    let rest = covered.unwrap().spare(all.clone(), later);
    assert_eq!(times(&rest, Part::Recent), [(now.0 - hour, main.until.0)]);
    assert_eq!(times(&rest, Part::Deletions), []);
    assert_eq!(times(&rest, Part::Versions), [(0, 7)]);
    // A clock that was set back says nothing about what was asked for.
    assert_eq!(covered.unwrap().spare(all.clone(), now.saturating_sub(1)), all);
}

proptest! {
    /// Wherever it ended, what is left is asked for, and what was not gone through.
    #[test]
    fn nothing_that_is_left_is_spared(part in 0_usize..3, back in 0_i64..4000, later in 0_i64..9000) {
        let all = asked(&IngestPolicy::default(), &NodeState::FRESH, 365);
        let until = all[part].until.saturating_sub(back * 1000);
        let now = NOW.seconds();
        let front = Window { until, ..all[part].clone() };
        let left: Vec<&Window> = [&front].into_iter().chain(&all[part + 1..]).collect();
        let rest = Covered::by(now, None, left).unwrap().spare(all.clone(), now.saturating_add(later));
        let asks = |part: Part, at: i64| {
            rest.iter().any(|w| w.part == part && w.since.0 <= at && at <= w.until.0)
        };
        for (nth, window) in all.iter().enumerate() {
            for at in [window.since.0, until.0 - 1, until.0, now.0 - 3600, now.0, window.until.0] {
                let is_left = nth > part || (nth == part && at <= until.0) || at > now.0 - 3600;
                if is_left && (window.since.0..=window.until.0).contains(&at) {
                    prop_assert!(asks(window.part, at), "{at} of {window:?} in {rest:?}");
                }
            }
        }
    }
}
