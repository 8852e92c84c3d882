//! Of two reasons to refuse an event, the earlier in the list is given.

use kukuri_core::Rejection;
use kukuri_core::admission::{Rate, Verdict};
use kukuri_event::{Kind, ParseError};

use crate::{NOW, Trial, note, topic};

/// One thing wrong with an event.
struct Defect {
    name: &'static str,
    /// Defects that share a word here cannot be had together.
    excludes: &'static [&'static str],
    apply: fn(&mut Trial),
}

/// All refusals of the doors, in the order of the design's list.
const DEFECTS: &[Defect] = &[
    Defect {
        name: "too_large",
        excludes: &[],
        apply: |trial| trial.draft.content = "x".repeat(70_000),
    },
    Defect {
        name: "malformed",
        excludes: &[],
        apply: |trial| trial.spoil.push(|text| text.replacen('{', "{\"sig\":\"\",", 1)),
    },
    Defect {
        name: "too_many_tags",
        excludes: &[],
        apply: |trial| {
            let tags = (0..2001).map(|_| vec!["x".to_owned()]);
            trial.draft.tags.extend(tags);
        },
    },
    Defect {
        name: "tag_value_too_long",
        excludes: &[],
        apply: |trial| trial.draft.tags.push(vec!["x".to_owned(), "x".repeat(1025)]),
    },
    Defect {
        name: "too_many_topics",
        excludes: &["topics"],
        apply: |trial| {
            let tags = (1..=16).map(|nth| vec!["t".to_owned(), topic(nth).to_string()]);
            trial.draft.tags.extend(tags);
        },
    },
    Defect {
        name: "too_many_targets",
        excludes: &["kind"],
        apply: |trial| {
            trial.draft.kind = Kind(5);
            trial.draft.tags.extend((0..201).map(|_| vec!["e".to_owned()]));
        },
    },
    Defect {
        name: "p2p_only",
        excludes: &["kind", "regular"],
        apply: |trial| trial.draft.kind = Kind(39_021),
    },
    Defect {
        name: "auth_kind",
        excludes: &["kind"],
        apply: |trial| trial.draft.kind = Kind(22_242),
    },
    Defect {
        name: "missing_topic",
        excludes: &["topics"],
        apply: |trial| trial.draft.tags.retain(|tag| tag[0] != "t"),
    },
    Defect {
        name: "bad_topic",
        excludes: &["topics"],
        apply: |trial| {
            trial.draft.tags.retain(|tag| tag[0] != "t");
            trial.draft.tags.push(vec!["t".to_owned(), "kukuri:nonsense".to_owned()]);
        },
    },
    Defect { name: "topic_not_handled", excludes: &[], apply: |trial| trial.handles = |_| false },
    Defect {
        name: "too_new",
        excludes: &["time"],
        apply: |trial| trial.draft.created_at = NOW.saturating_add(901),
    },
    Defect {
        name: "too_old",
        excludes: &["time", "regular"],
        apply: |trial| trial.draft.created_at = NOW.saturating_sub(180 * 86_400),
    },
    Defect {
        name: "missing_d",
        excludes: &["kind", "regular"],
        apply: |trial| trial.draft.kind = Kind(30_023),
    },
    Defect {
        name: "expired",
        excludes: &[],
        apply: |trial| trial.draft.tags.push(vec!["expiration".to_owned(), NOW.to_string()]),
    },
    Defect { name: "rate_limited", excludes: &[], apply: |trial| trial.rate = Rate::Exceeded },
    Defect {
        name: "id_mismatch",
        excludes: &[],
        apply: |trial| {
            trial.spoil.push(|text| {
                let (before, id) = text.split_once(r#""id":""#).expect("an event has an id");
                let digit = if id.starts_with('0') { '1' } else { '0' };
                format!(r#"{before}"id":"{digit}{}"#, &id[1..])
            });
        },
    },
    Defect {
        name: "bad_signature",
        excludes: &[],
        apply: |trial| {
            trial.spoil.push(|text| {
                let (before, sig) = text.split_once(r#""sig":""#).expect("an event has one");
                let digit = if sig.starts_with('0') { '1' } else { '0' };
                format!(r#"{before}"sig":"{digit}{}"#, &sig[1..])
            });
        },
    },
    Defect {
        name: "auth_required",
        excludes: &["verdict"],
        apply: |trial| trial.verdict = Verdict::AuthRequired,
    },
    Defect {
        name: "restricted",
        excludes: &["verdict"],
        apply: |trial| trial.verdict = Verdict::Restricted,
    },
    Defect {
        name: "blocked",
        excludes: &["verdict"],
        apply: |trial| trial.verdict = Verdict::Blocked,
    },
];

fn name(rejection: Option<Rejection>) -> &'static str {
    rejection.map_or("admitted", |rejection| rejection.name())
}

#[test]
fn a_good_event_is_admitted() {
    let admitted = Trial::of(note()).run().expect("nothing is wrong with it");
    assert_eq!(admitted.topics(), [topic(0)]);
}

#[test]
fn every_refusal_of_the_doors_can_be_reached() {
    for defect in DEFECTS {
        let mut trial = Trial::of(note());
        (defect.apply)(&mut trial);
        assert_eq!(name(trial.refusal()), defect.name);
    }
    // The lane alone knows of this one.
    let doors = DEFECTS.len();
    assert_eq!(doors + 1, crate::bounds::REJECTIONS, "all refusals but the lane's own are here");
}

#[test]
fn the_earlier_refusal_is_given() {
    let mut pairs = 0;
    for (nth, earlier) in DEFECTS.iter().enumerate() {
        for later in &DEFECTS[nth + 1..] {
            if earlier.excludes.iter().any(|word| later.excludes.contains(word)) {
                continue;
            }
            // Whichever is made first, the order of the checks decides.
            for order in [[earlier, later], [later, earlier]] {
                let mut trial = Trial::of(note());
                order.iter().for_each(|defect| (defect.apply)(&mut trial));
                let (earlier, later) = (earlier.name, later.name);
                assert_eq!(name(trial.refusal()), earlier, "{earlier} and {later}");
            }
            pairs += 1;
        }
    }
    assert!(pairs > 150, "only {pairs} pairs were tried");
}

#[test]
fn a_malformed_event_says_what_is_wrong() {
    let mut trial = Trial::of(note());
    trial.spoil.push(|text| text.replace("\"kind\":1", "\"kind\":65536"));
    let refusal = trial.refusal().expect("the kind is out of range");
    assert_eq!(refusal, Rejection::Malformed(ParseError::Range { field: "kind" }));
    assert_eq!(refusal.to_string(), "invalid: malformed event: kind is out of range");
}
