//! Which part of a topic's history is asked for.

use kukuri_event::{Filter, Kind, TagLetter, UnixSeconds, Values};

use crate::{IngestPolicy, Limits, NodeState, TopicId, UnixMillis};

/// Versions are kept for as long as they are current, however old they are, and no filter can ask for
/// what has versions: these are the kinds that are asked for from before the time that a topic keeps.
const VERSION_KINDS: [(u16, u16); 20] = [
    (0, 0),
    (3, 3),
    (10_000, 10_015),
    (10_019, 10_020),
    (10_030, 10_030),
    (10_050, 10_051),
    (10_063, 10_063),
    (30_000, 30_010),
    (30_015, 30_024),
    (30_030, 30_030),
    (30_078, 30_078),
    (30_311, 30_315),
    (30_402, 30_403),
    (30_617, 30_618),
    (30_818, 30_819),
    (31_922, 31_925),
    (31_989, 31_990),
    (34_550, 34_550),
    (39_000, 39_006),
    (39_089, 39_089),
];

/// The parts of a topic's history, in the order in which they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All that the topic would keep.
    Recent,
    /// Deletions that are older, and still kept.
    Deletions,
    /// Versions that are older.
    Versions,
}

/// A time of a part of a topic's history, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub topic: TopicId,
    pub part: Part,
    /// `None` asks for all.
    pub kinds: Option<Vec<Kind>>,
    pub since: UnixSeconds,
    pub until: UnixSeconds,
}

impl Window {
    pub fn filter(&self) -> Filter {
        let mut filter = Filter {
            kinds: self.kinds.as_ref().map(|kinds| kinds.iter().copied().collect()),
            since: Some(self.since),
            until: Some(self.until),
            ..Filter::default()
        };
        filter.tags.insert(TagLetter::TOPIC, Values::from([self.topic.to_string()]));
        filter
    }

    pub(super) fn has_time(&self) -> bool {
        self.since <= self.until
    }

    /// Its two halves, the newer one first; `None` if it is a second long.
    pub fn halves(&self) -> Option<[Self; 2]> {
        let length = self.until.0.saturating_sub(self.since.0);
        if length < 1 {
            return None;
        }
        let middle = UnixSeconds(self.since.0 + length / 2);
        let newer = Self { since: middle.saturating_add(1), ..self.clone() };
        Some([newer, Self { until: middle, ..self.clone() }])
    }

    /// The same time, with half of the kinds each; `None` unless it names several.
    pub fn half_kinds(&self) -> Option<[Self; 2]> {
        let kinds = self.kinds.as_ref().filter(|kinds| kinds.len() > 1)?;
        let (first, rest) = kinds.split_at(kinds.len() / 2);
        Some([first, rest].map(|kinds| Self { kinds: Some(kinds.to_vec()), ..self.clone() }))
    }
}

/// What bounds how far back anything is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    pub node: &'a NodeState,
    pub limits: &'a Limits,
    /// The operator's own bound.
    pub days_max: u32,
    pub now: UnixMillis,
}

/// What to ask for of a topic: what it would keep and admission would take. Deletions are asked for as
/// far back as they are kept, since what they delete may be here; and versions of all times.
pub fn windows(topic: &TopicId, policy: &IngestPolicy, reach: Reach<'_>) -> Vec<Window> {
    let Reach { node, limits, days_max, now } = reach;
    let cutoffs = node.allowance.retention.cutoffs(policy, now);
    // What is older may have been forgotten, and is refused.
    let oldest = limits.oldest(now.seconds());
    let accepted = |at: UnixSeconds| !node.past.may_have_held(at);
    let oldest = match accepted(oldest) {
        true => oldest,
        false => first_where(oldest, limits.newest(now.seconds()), accepted),
    };
    let from = |cutoff: Option<UnixMillis>| {
        cutoff.map_or(oldest, |cutoff| cutoff.seconds().saturating_add(1)).max(oldest)
    };
    let own = now.days_before(days_max).seconds().saturating_add(1);
    let (since, deletions_since) = (from(cutoffs.regular).max(own), from(cutoffs.deletion));
    let (until, before) = (limits.newest(now.seconds()), since.saturating_sub(1));
    let window =
        |part, kinds, since, until| Window { topic: topic.clone(), part, kinds, since, until };
    let versions = VERSION_KINDS.iter().flat_map(|(first, last)| (*first..=*last).map(Kind));
    [
        window(Part::Recent, None, since, until),
        window(Part::Deletions, Some(vec![Kind::DELETION]), deletions_since, before),
        window(Part::Versions, Some(versions.collect()), UnixSeconds(0), before),
    ]
    .into_iter()
    .filter(Window::has_time)
    .collect()
}

/// The first time from which on something holds, by halves; the last one if it holds nowhere.
fn first_where(
    mut from: UnixSeconds,
    mut to: UnixSeconds,
    holds: impl Fn(UnixSeconds) -> bool,
) -> UnixSeconds {
    while from < to {
        let middle = UnixSeconds(from.0 + (to.0 - from.0) / 2);
        if holds(middle) {
            to = middle;
        } else {
            from = middle.saturating_add(1);
        }
    }
    to
}
