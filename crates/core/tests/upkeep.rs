//! Policies as they are stored, limits at n and n + 1, and what a plan looks for.

use kukuri_core::ladder::Step;
use kukuri_core::{
    Allowance, Backfill, Capacity, Cutoffs, IngestPolicy, Keeping, Look, NodeState, NodeTopic,
    OnFull, Priority, Retention, Shelf, State, Stats, Storage, TopicId, UnixMillis, Usage, plan,
};
use kukuri_event::Kind;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const NOW: UnixMillis = UnixMillis(1_000 * DAY_MS);

fn days_ago(days: i64) -> UnixMillis {
    UnixMillis(NOW.0 - days * DAY_MS)
}

fn topic(digit: char, ingest_policy: IngestPolicy) -> NodeTopic {
    let text = format!("kukuri:{}", digit.to_string().repeat(64));
    NodeTopic {
        topic_id: TopicId::parse(&text).expect("64 hex digits make a topic"),
        name: String::new(),
        enabled: true,
        pinned: true,
        wanted: 0,
        ingest_policy,
        created_at: UnixMillis(0),
        updated_at: UnixMillis(0),
    }
}

/// Policies that were stored when there was less to say are read as if nothing was said.
#[test]
fn policies_are_stored_by_what_differs() {
    let json = |policy: &IngestPolicy| serde_json::to_string(policy).expect("plain data");
    assert_eq!(json(&IngestPolicy::default()), "{}");
    let all = IngestPolicy {
        retention_days: Some(1),
        max_events: Some(2),
        max_bytes: Some(3),
        max_lag_seconds: Some(4),
        backfill: Backfill::Off,
        priority: Priority::Low,
        on_full: OnFull::Refuse,
    };
    let text = r#"{"retention_days":1,"max_events":2,"max_bytes":3,"max_lag_seconds":4,"backfill":"off","priority":"low","on_full":"refuse"}"#;
    assert_eq!(json(&all), text);
    for policy in [IngestPolicy::default(), all] {
        assert_eq!(serde_json::from_str::<IngestPolicy>(&json(&policy)).ok(), Some(policy));
    }
    assert!(serde_json::from_str::<IngestPolicy>(r#"{"max_event":2}"#).is_err());
    let old = serde_json::from_str::<Allowance>("{}").ok();
    assert_eq!(old, Some(Allowance::STANDARD));
    let (full, spent) = (Storage::Full { reserve_bytes: 5 }, Storage::Spent { reserve_bytes: 1 });
    for storage in [full, spent] {
        let short = Allowance { storage, ..Allowance::STANDARD };
        let text = serde_json::to_string(&short).expect("plain data");
        assert_eq!(serde_json::from_str::<Allowance>(&text).ok(), Some(short));
    }
}

#[test]
fn a_capacity_is_reached_at_its_limit_and_exceeded_above_it() {
    let usage = |events, bytes| Usage { events, bytes };
    let events = Capacity { max_events: Some(3), max_bytes: None };
    assert!(events.has_room(usage(2, u64::MAX), 9) && !events.has_room(usage(3, 0), 0));
    assert!(!events.is_exceeded(usage(3, u64::MAX)) && events.is_exceeded(usage(4, 0)));
    let bytes = Capacity { max_events: None, max_bytes: Some(100) };
    assert!(bytes.has_room(usage(9, 90), 10) && !bytes.has_room(usage(9, 90), 11));
    assert!(!bytes.is_exceeded(usage(9, 100)) && bytes.is_exceeded(usage(9, 101)));
    assert!(Capacity::default().has_room(usage(u64::MAX, u64::MAX), u64::MAX));
}

#[test]
fn what_an_event_is_says_how_it_ages() {
    use State::*;
    for (kind, state, shelf) in [
        (1, Effective, Shelf::Regular),
        (1, Deleted, Shelf::Regular),
        (5, Effective, Shelf::Deletion),
        (5, Expired, Shelf::Deletion),
        (0, Effective, Shelf::Current),
        (30_023, Effective, Shelf::Current),
        (0, Superseded, Shelf::History),
        (10_002, Deleted, Shelf::History),
        (30_023, Expired, Shelf::History),
    ] {
        assert_eq!(Shelf::of_kind(Kind(kind), state), shelf, "{kind} {state:?}");
    }
}

#[test]
fn cutoffs_follow_from_node_and_topic() {
    let cutoffs = |retention_days| {
        let policy = IngestPolicy { retention_days, ..IngestPolicy::default() };
        Retention::STANDARD.cutoffs(&policy, NOW)
    };
    let expected = |regular, deletion, history| Cutoffs {
        regular: Some(days_ago(regular)),
        deletion: Some(days_ago(deletion)),
        history: Some(days_ago(history)),
        current: None,
    };
    assert_eq!(cutoffs(None), expected(30, 180, 7));
    assert_eq!(cutoffs(Some(3)), expected(3, 180, 3));
    assert_eq!(cutoffs(Some(365)), expected(365, 365, 7));
    assert_eq!(cutoffs(Some(0)).latest(), Some(NOW));
    assert_eq!(Cutoffs::all(NOW).of(Shelf::Current), Some(NOW));
}

#[test]
fn a_plan_looks_where_something_can_be() {
    let limited =
        |on_full| IngestPolicy { max_events: Some(2), on_full, ..IngestPolicy::default() };
    let used = |events| Usage { events, bytes: 10 * events };
    let topics = [
        (topic('a', IngestPolicy::default()), used(9)),
        (topic('b', limited(OnFull::Evict)), used(2)),
        (topic('c', limited(OnFull::Evict)), used(3)),
        (topic('d', limited(OnFull::Refuse)), used(3)),
        (topic('e', IngestPolicy::default()), used(0)),
    ];
    let node = NodeState { usage: used(17), ..NodeState::FRESH };
    let made = plan(Stats { topics: &topics, node: &node }, Keeping::STANDARD, NOW);
    let id = |nth: usize| topics[nth].0.topic_id.clone();
    let cutoffs = Retention::STANDARD.cutoffs(&IngestPolicy::default(), NOW);
    let aged = (0..4).map(|nth| Look::Aged { topic: id(nth), cutoffs });
    let mut expected = vec![Look::Expired];
    expected.extend(aged);
    expected.push(Look::OldestOfTopic(id(2)));
    expected.push(Look::Forgettable { before: days_ago(180) });
    expected.push(Look::FeedRows { until: days_ago(30) });
    assert_eq!(made, expected);
}

#[test]
fn a_plan_brings_the_node_within_its_limits() {
    let target = |allowance: Allowance, usage| {
        let node = NodeState { usage, allowance, ..NodeState::FRESH };
        let made = plan(Stats { topics: &[], node: &node }, Keeping::STANDARD, NOW);
        made.into_iter().find_map(|look| match look {
            Look::OldestOfNode { to } => Some(to),
            _ => None,
        })
    };
    let capacity = Capacity { max_events: Some(1000), max_bytes: None };
    let limited = Allowance { capacity, ..Allowance::STANDARD };
    let usage = |events| Usage { events, bytes: 1_000_000 };
    assert_eq!(target(limited, usage(1000)), None);
    let to = Usage { events: 1000, bytes: u64::MAX };
    assert_eq!(target(limited, usage(1001)), Some(to));
    assert_eq!(target(Allowance { on_full: OnFull::Refuse, ..limited }, usage(1001)), None);
    let last = Allowance { step: Step::EvictOldest, ..limited };
    let to = Usage { events: 495, bytes: 990_000 };
    assert_eq!(target(last, usage(500)), Some(to), "a hundredth at a time");
    assert_eq!(target(last, Usage::default()), None);
}
