//! The ladder over any history of pressure: how it moves, and that it neither skips nor flaps.

use std::time::Duration;

use kukuri_core::ladder::{
    Cause, DiskLoad, Dwell, Ladder, LagLimit, Limits, Load, Move, Pressure, RELEASE_PERCENT,
    Reason, Standing, Step, eviction_helps, pressure,
};
use kukuri_core::{TopicId, UnixMillis, Usage};
use proptest::prelude::*;

const DWELL: Dwell = Dwell { climb: Duration::from_secs(60), descend: Duration::from_secs(300) };

/// Pressure without figures, in the order of how much it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Low,
    Between,
    High,
}

impl Level {
    fn pressure(self) -> Pressure {
        match self {
            Self::Low => Pressure::Low,
            Self::Between => Pressure::Between,
            Self::High => Pressure::High(vec![Cause::Events { events: 2, events_max: 1 }]),
        }
    }
}

/// A time and what is seen then.
type Sight = (UnixMillis, Level);

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![3 => Just(Level::High), 3 => Just(Level::Low), 1 => Just(Level::Between)]
}

/// Levels hold for a while, and are looked at in uneven intervals.
fn history() -> impl Strategy<Value = Vec<Sight>> {
    let stretch = (level(), prop::collection::vec(1..90_000_i64, 1..12));
    prop::collection::vec(stretch, 1..12).prop_map(|stretches| {
        let mut at = 1_000_000;
        let mut sights = Vec::new();
        for (level, gaps) in stretches {
            for gap in gaps {
                at += gap;
                sights.push((UnixMillis(at), level));
            }
        }
        sights
    })
}

fn steps(ladder: &mut Ladder, sights: &[Sight]) -> Vec<Step> {
    let step = |(at, level): &Sight| {
        let _ = ladder.observe(*at, &level.pressure());
        ladder.step()
    };
    sights.iter().map(step).collect()
}

fn moves(ladder: &mut Ladder, sights: &[Sight]) -> Vec<Move> {
    sights.iter().filter_map(|(at, level)| ladder.observe(*at, &level.pressure())).collect()
}

fn standing_at(step: Step) -> Standing {
    Standing { step, last_move: None }
}

fn dwell_of(moved: &Move) -> Duration {
    if moved.to > moved.from { DWELL.climb } else { DWELL.descend }
}

/// What is wrong with a list of moves over a history, if anything. Knows the rules, and not how they
/// are kept.
fn fault(start: Step, sights: &[Sight], moves: &[Move]) -> Option<String> {
    let mut step = start;
    let mut before: Option<UnixMillis> = None;
    for moved in moves {
        if moved.from != step || (moved.to.code() - moved.from.code()).abs() != 1 {
            return Some(format!("from {step:?}: {moved:?}"));
        }
        let up = moved.to > moved.from;
        let (level, reason) = if up { (Level::High, "events") } else { (Level::Low, "relief") };
        if moved.reason.name() != reason {
            return Some(format!("the reason does not fit: {moved:?}"));
        }
        if before.is_some_and(|before| before.until(moved.at) < dwell_of(moved)) {
            return Some(format!("sooner after the last move than it may: {moved:?}"));
        }
        // Whatever was seen during the dwell, back to the sight at which it began, was the same.
        let seen = sights.iter().rev().skip_while(|(at, _)| *at > moved.at);
        let mut reached = false;
        for (at, seen) in seen {
            if *seen != level {
                break;
            }
            reached |= at.until(moved.at) >= dwell_of(moved);
        }
        if !reached {
            return Some(format!("the condition had not held: {moved:?}"));
        }
        (step, before) = (moved.to, Some(moved.at));
    }
    None
}

fn any_step() -> impl Strategy<Value = Step> {
    prop::sample::select(Step::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// One step at a time, each after its dwell and for its reason.
    #[test]
    fn never_skips_and_never_flaps(start in any_step(), sights in history()) {
        let mut ladder = Ladder::resume(standing_at(start), DWELL, Step::EvictOldest);
        let moves = moves(&mut ladder, &sights);
        prop_assert_eq!(fault(start, &sights, &moves), None);
    }

    /// And it does move whenever it is due: three dwells of pressure reach the top from anywhere, and
    /// three of relief the ground.
    #[test]
    fn it_reaches_the_top_and_returns(start in any_step(), sights in history()) {
        let mut ladder = Ladder::resume(standing_at(start), DWELL, Step::EvictOldest);
        let _ = steps(&mut ladder, &sights);
        let mut at = sights.last().expect("a history is never empty").0;
        for (level, dwell, end) in [
            (Level::High, DWELL.climb, Step::EvictOldest),
            (Level::Low, DWELL.descend, Step::None),
        ] {
            // One sight to see that it began, and then as many as three dwells take.
            for _ in 0..=3 * dwell.as_secs() / DWELL.climb.as_secs() {
                at = at.saturating_add(DWELL.climb);
                let _ = ladder.observe(at, &level.pressure());
            }
            prop_assert_eq!(ladder.step(), end);
        }
    }

    /// More pressure, whenever it is, never means a lower step at any time.
    #[test]
    fn the_step_is_monotone_in_pressure(
        start in any_step(),
        sights in history(),
        raised in prop::collection::vec(level(), 144),
    ) {
        let more: Vec<Sight> =
            sights.iter().zip(&raised).map(|((at, one), two)| (*at, *one.max(two))).collect();
        let of = |sights| steps(&mut Ladder::resume(standing_at(start), DWELL, Step::EvictOldest), sights);
        let (low, high) = (of(&sights[..]), of(&more[..]));
        prop_assert!(low.iter().zip(&high).all(|(low, high)| low <= high), "{:?} {:?}", low, high);
    }

    /// A restart at any moment keeps the step, through the text that is stored, and its moves go on
    /// from there by the same rules.
    #[test]
    fn a_restart_is_continuous(start in any_step(), sights in history(), cut in 0..144_usize) {
        let (before, after) = sights.split_at(cut.min(sights.len()));
        let mut first = Ladder::resume(standing_at(start), DWELL, Step::EvictOldest);
        let mut all = moves(&mut first, before);
        let kept = serde_json::to_string(first.standing()).expect("a standing is plain data");
        let kept: Standing = serde_json::from_str(&kept).expect("what was written is read");
        prop_assert_eq!(&kept, first.standing());
        let mut second = Ladder::resume(kept, DWELL, Step::EvictOldest);
        prop_assert_eq!(second.step(), first.step());
        all.extend(moves(&mut second, after));
        prop_assert_eq!(fault(start, &sights, &all), None);
    }

    /// Greater loads, or less room, never mean less pressure.
    #[test]
    fn pressure_follows_the_load(
        load in (0..200_u64, 0..200_u64, 0..200_u64, 0..200_u64),
        more in (0..50_u64, 0..50_u64, 0..50_u64, 0..50_u64),
    ) {
        let of = |(bytes, events, free, lag_seconds)| {
            pressure(&limits(), &Load {
                usage: Usage { events, bytes },
                disk: Some(free_bytes(free)),
                lag_seconds,
            })
        };
        let rank = |pressure: &Pressure| match pressure {
            Pressure::Low => 0,
            Pressure::Between => 1,
            Pressure::High(_) => 2,
        };
        let greater = (load.0 + more.0, load.1 + more.1, load.2.saturating_sub(more.2), load.3 + more.3);
        prop_assert!(rank(&of(load)) <= rank(&of(greater)));
    }
}

fn limits() -> Limits {
    Limits {
        soft_bytes_max: Some(100),
        soft_events_max: Some(100),
        disk_free_bytes_min: 90,
        lags: vec![LagLimit { topic: TopicId::global(), lag_seconds_max: 100 }],
    }
}

/// A disk that gets nothing back.
const fn free_bytes(free_bytes: u64) -> DiskLoad {
    DiskLoad { free_bytes, vacant_bytes: 0, held_bytes: 0 }
}

const CALM: Load =
    Load { usage: Usage { events: 0, bytes: 0 }, disk: Some(free_bytes(200)), lag_seconds: 0 };

/// The checker above has to notice each of these, or its silence would mean nothing.
#[test]
fn faulty_moves_are_noticed() {
    let seconds = |seconds: i64| UnixMillis(seconds * 1000);
    let sights: Vec<Sight> = (0..1000).map(|nth| (seconds(nth), Level::High)).collect();
    let moved = |from, to, at, reason| Move { from, to, at: seconds(at), reason };
    let high = || Reason::Pressure(Cause::Events { events: 2, events_max: 1 });
    use Step::{EvictOldest, None as Ground, StopBackfill, StopLowPriority};
    let first = || moved(Ground, StopBackfill, 60, high());
    let good = [first(), moved(StopBackfill, StopLowPriority, 120, high())];
    assert_eq!(fault(Ground, &sights, &good), None);
    let bad = [
        vec![moved(Ground, StopLowPriority, 60, high())],
        vec![moved(StopBackfill, StopLowPriority, 60, high())],
        vec![moved(Ground, StopBackfill, 59, high())],
        vec![first(), moved(StopBackfill, StopLowPriority, 119, high())],
        vec![moved(Ground, StopBackfill, 60, Reason::Relief)],
    ];
    for moves in bad {
        assert!(fault(Ground, &sights, &moves).is_some(), "{moves:?}");
    }
    let relief = vec![moved(EvictOldest, StopLowPriority, 400, Reason::Relief)];
    assert!(fault(EvictOldest, &sights, &relief).is_some(), "there was no relief");
}

#[test]
fn every_limit_counts_at_n_and_n_plus_1() {
    let usage = |events, bytes| Load { usage: Usage { events, bytes }, ..CALM };
    let at_limit = [
        usage(100, 0),
        usage(0, 100),
        Load { disk: Some(free_bytes(90)), ..CALM },
        Load { lag_seconds: 100, ..CALM },
    ];
    let beyond = [
        (usage(101, 0), "events"),
        (usage(0, 101), "bytes"),
        (Load { disk: Some(free_bytes(89)), ..CALM }, "disk"),
        (Load { lag_seconds: 101, ..CALM }, "lag"),
    ];
    for load in at_limit {
        assert_eq!(pressure(&limits(), &load), Pressure::Between, "{load:?}");
    }
    for (load, name) in beyond {
        let Pressure::High(causes) = pressure(&limits(), &load) else { panic!("{load:?}") };
        let [cause] = &causes[..] else { panic!("{causes:?}") };
        assert_eq!(cause.name(), name);
        let said = cause.to_string();
        assert!(said.contains("than"), "{said}");
    }
}

#[test]
fn pressure_is_gone_at_the_margin_and_not_above_it() {
    assert_eq!(RELEASE_PERCENT, 90);
    let usage = |events| Load { usage: Usage { events, bytes: 0 }, ..CALM };
    assert_eq!(pressure(&limits(), &usage(90)), Pressure::Low);
    assert_eq!(pressure(&limits(), &usage(91)), Pressure::Between);
    let disk = |free| Load { disk: Some(free_bytes(free)), ..CALM };
    assert_eq!(pressure(&limits(), &disk(100)), Pressure::Low);
    assert_eq!(pressure(&limits(), &disk(99)), Pressure::Between);
    let none = Limits {
        soft_bytes_max: None,
        soft_events_max: None,
        disk_free_bytes_min: 0,
        lags: Vec::new(),
    };
    let full = Load {
        usage: Usage { events: u64::MAX, bytes: u64::MAX },
        disk: Some(free_bytes(0)),
        lag_seconds: u64::MAX,
    };
    assert_eq!(pressure(&none, &full), Pressure::Low, "no limit, no pressure");
}

/// Of several causes the one that is furthest beyond its limit is told first.
#[test]
fn the_worst_cause_is_told_first() {
    let load = Load { usage: Usage { events: 150, bytes: 140 }, lag_seconds: 149, ..CALM };
    let names = |load: &Load| match pressure(&limits(), load) {
        Pressure::High(causes) => causes.iter().map(Cause::name).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(names(&load), ["events", "lag", "bytes"]);
    let full = Load { disk: Some(free_bytes(0)), ..load };
    assert_eq!(names(&full), ["disk", "events", "lag", "bytes"]);
}

/// A disk that is short whatever leaves, or a consumer that is behind, keeps nobody from the last step for whom it
/// is of help.
#[test]
fn what_is_beyond_help_does_not_hide_what_is_not() {
    let load = Load {
        usage: Usage { events: 0, bytes: 101 },
        disk: Some(free_bytes(9)),
        lag_seconds: 900,
    };
    let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
    let mut look = |nth: i64| ladder.observe(UnixMillis(60_000 * nth), &pressure(&limits(), &load));
    let moves: Vec<Move> = (0..5).filter_map(&mut look).collect();
    let told = moves.iter().map(|moved| (moved.to, moved.reason.name()));
    let expected = [
        (Step::StopBackfill, "disk"),
        (Step::StopLowPriority, "disk"),
        (Step::EvictOldest, "bytes"),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn a_dwell_that_is_a_millisecond_short_moves_nothing() {
    let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
    let high = Level::High.pressure();
    assert_eq!(ladder.observe(UnixMillis(0), &high), None);
    assert_eq!(ladder.observe(UnixMillis(59_999), &high), None);
    assert!(ladder.observe(UnixMillis(60_000), &high).is_some());
}

/// A clock that was set back by an hour kept the ladder still for that hour.
#[test]
fn a_clock_that_is_set_back_begins_the_dwell_anew() {
    let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
    let high = Level::High.pressure();
    assert_eq!(ladder.observe(UnixMillis(3_600_000), &high), None);
    assert_eq!(ladder.observe(UnixMillis(1_000), &high), None);
    assert!(ladder.observe(UnixMillis(61_000), &high).is_some());
}

/// A machine that slept for an hour has not felt anything for that hour.
#[test]
fn time_in_which_nobody_looked_does_not_count() {
    let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
    let high = Level::High.pressure();
    assert_eq!(ladder.observe(UnixMillis(0), &high), None);
    assert_eq!(ladder.observe(UnixMillis(60_001), &high), None);
    assert!(ladder.observe(UnixMillis(120_001), &high).is_some());
}

/// A node that refuses what is too much has one step fewer, also where it stood on that one before.
#[test]
fn nobody_climbs_beyond_the_top() {
    let top = Step::StopLowPriority;
    for start in [Step::None, top, Step::EvictOldest] {
        let mut ladder = Ladder::resume(standing_at(start), DWELL, top);
        assert_eq!(ladder.step(), start.min(top));
        for nth in 0..10 {
            let _ = ladder.observe(UnixMillis(60_000 * nth), &Level::High.pressure());
        }
        assert_eq!(ladder.step(), top);
    }
}

/// What leaves on the last step leaves until the ladder may come down again, and for nothing else.
#[test]
fn eviction_helps_until_the_pressure_is_gone() {
    let usage = |events, bytes| Load { usage: Usage { events, bytes }, ..CALM };
    let disk = |free_bytes, vacant_bytes, held_bytes| {
        let disk = Some(DiskLoad { free_bytes, vacant_bytes, held_bytes });
        Load { disk, ..CALM }
    };
    for (load, helps) in [
        (usage(90, 90), false),
        (usage(91, 0), true),
        (usage(0, 91), true),
        (usage(101, 0), true),
        (disk(99, 0, 1), true),
        (disk(100, 0, 90), false),
        (disk(50, 0, 50), true),
        (disk(50, 0, 49), false),
        (disk(50, 49, 1), true),
        // It will have enough in a moment.
        (disk(50, 50, 50), false),
        (disk(0, 0, 0), false),
        (Load { lag_seconds: 101, ..CALM }, false),
        (Load { lag_seconds: 101, ..usage(91, 0) }, false),
        (Load { lag_seconds: 101, ..usage(101, 0) }, true),
        (Load { disk: Some(free_bytes(0)), ..usage(91, 0) }, false),
    ] {
        assert_eq!(eviction_helps(&limits(), &load), helps, "{load:?}");
    }
}

/// A disk on which all events together would not make enough room, or on which there will be enough without,
/// lets none leave.
#[test]
fn a_disk_that_is_beyond_help_stops_at_the_second_step() {
    for (vacant_bytes, held_bytes, highest) in [
        (0, 50, Step::EvictOldest),
        (0, 49, Step::StopLowPriority),
        (49, 1, Step::EvictOldest),
        (50, 50, Step::StopLowPriority),
    ] {
        let disk = Some(DiskLoad { free_bytes: 50, vacant_bytes, held_bytes });
        let load = Load { disk, ..CALM };
        let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
        for nth in 0..10 {
            let _ = ladder.observe(UnixMillis(60_000 * nth), &pressure(&limits(), &load));
        }
        assert_eq!(ladder.step(), highest, "{load:?}");
    }
}

/// Events that leave are of no help to a consumer that is behind.
#[test]
fn a_consumer_that_is_behind_makes_no_event_leave() {
    let topic = kukuri_core::TopicId::global();
    let lag = Pressure::High(vec![Cause::Lag { topic, lag_seconds: 2, lag_seconds_max: 1 }]);
    let mut ladder = Ladder::resume(Standing::GROUND, DWELL, Step::EvictOldest);
    for nth in 0..10 {
        let _ = ladder.observe(UnixMillis(60_000 * nth), &lag);
    }
    assert_eq!(ladder.step(), Step::StopLowPriority);
}

/// What the last step is of no help for was taken for the minute that another cause has to last.
#[test]
fn a_cause_that_comes_late_has_a_dwell_of_its_own() {
    let seconds = |seconds: i64| UnixMillis(seconds * 1000);
    let behind = Load { lag_seconds: 101, ..CALM };
    let both = Load { usage: Usage { events: 101, bytes: 0 }, ..behind };
    let mut ladder = Ladder::resume(standing_at(Step::StopLowPriority), DWELL, Step::EvictOldest);
    let mut look = |at, load| ladder.observe(seconds(at), &pressure(&limits(), load));
    for at in (0..600).step_by(10) {
        assert_eq!(look(at, &behind), None);
    }
    for at in (600..650).step_by(10) {
        assert_eq!(look(at, &both), None, "after {at} seconds");
    }
    let moved = look(650, &both).expect("it has lasted since the last look without it");
    assert_eq!((moved.to, moved.reason.name()), (Step::EvictOldest, "events"));
}

/// What is stored may be added to and never changed.
#[test]
fn what_is_stored_never_changes() {
    let words = ["none", "stop_backfill", "stop_low_priority", "evict_oldest"];
    for ((step, word), code) in Step::ALL.iter().zip(words).zip(0..) {
        assert_eq!((step.as_str(), step.code()), (word, code));
        assert_eq!(serde_json::to_value(step).expect("plain data"), word);
    }
    let cause = Cause::Lag { topic: TopicId::global(), lag_seconds: 7, lag_seconds_max: 5 };
    let last_move = Move {
        from: Step::None,
        to: Step::StopBackfill,
        at: UnixMillis(9),
        reason: Reason::Pressure(cause),
    };
    let standing = Standing { step: Step::StopBackfill, last_move: Some(last_move) };
    let text = r#"{"step":"stop_backfill","last_move":{"from":"none","to":"stop_backfill","at":9,"reason":{"pressure":{"lag":{"topic":"kukuri:global","lag_seconds":7,"lag_seconds_max":5}}}}}"#;
    assert_eq!(serde_json::to_string(&standing).expect("plain data"), text);
    assert_eq!(serde_json::from_str::<Standing>(text).expect("it was written"), standing);
    let ground: Standing = serde_json::from_str(r#"{"step":"none"}"#).expect("it was written");
    assert_eq!(ground, Standing::GROUND);
}
