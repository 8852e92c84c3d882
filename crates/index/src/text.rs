//! What is kept of a text so that it can be found: the terms that lead to it, and its units in order,
//! which tell whether words stand together and how often.

use crate::units::Units;

/// Units of a document that are kept; the rest of a longer one is not searched.
pub const UNITS_MAX: usize = 8192;

/// Stands between fields, so that no phrase reaches from one into the next.
const FIELD_END: u16 = 0;

/// A text as a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Distinct and sorted.
    pub terms: Vec<Term>,
    pub trail: Trail,
}

impl Text {
    pub fn has(&self, term: &str) -> bool {
        self.terms.binary_search(&Term::of(term)).is_ok()
    }
}

/// Stands for a word, a character, a pair of characters, a sign, a `#tag` or a `@key`: texts have many,
/// and nobody asks a text for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    pub fn of(text: &str) -> Self {
        Self(hash(text.as_bytes()))
    }
}

/// The units of a text in order, each as two bytes that stand for it. Two units that share them are
/// one in about 65 000, and then only make a text look a little more fitting than it is: it is found
/// by its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail(Vec<u8>);

/// Makes a text of its fields, the most telling first.
#[derive(Default)]
pub(crate) struct TextMaker {
    /// In any order, some of them again: sorting once is cheaper than looking each time.
    terms: Vec<Term>,
    trail: Vec<u16>,
}

impl TextMaker {
    pub(crate) fn field(&mut self, text: &str) {
        let units = Units::of(text);
        let mut before = None;
        let room = UNITS_MAX.saturating_sub(self.trail.len());
        for unit in units.list.iter().take(room) {
            let term = Term::of(units.text(unit));
            let pair = before.and_then(|before| units.pair(before, unit));
            self.terms.push(term);
            self.terms.extend(pair.map(Term::of));
            self.trail.push(stamp_of(term));
            before = Some(unit);
        }
        if !units.list.is_empty() {
            self.trail.push(FIELD_END);
        }
        self.terms.extend(units.hashtags.iter().map(|tag| Term::of(&hashtag_term(tag))));
    }

    pub(crate) fn has(&self, term: &str) -> bool {
        self.terms.contains(&Term::of(term))
    }

    pub(crate) fn term(&mut self, term: &str) {
        self.terms.push(Term::of(term));
    }

    pub(crate) fn finish(self) -> Text {
        let trail = self.trail.iter().flat_map(|stamp| stamp.to_be_bytes()).collect();
        let mut terms = self.terms;
        terms.sort_unstable();
        terms.dedup();
        Text { terms, trail: Trail(trail) }
    }
}

/// The term of a tag that is folded already.
pub(crate) fn hashtag_term(tag: &str) -> String {
    format!("#{tag}")
}

impl Trail {
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How many units a trail has.
pub(crate) fn length(trail: &[u8]) -> usize {
    trail.len() / 2
}

/// How often the units stand together in a trail.
pub(crate) fn occurrences(trail: &[u8], stamps: &[u16]) -> usize {
    if stamps.is_empty() {
        return 0;
    }
    let borders = borders(stamps);
    let (pairs, _) = trail.as_chunks::<2>();
    let (mut same, mut count) = (0, 0);
    for stamp in pairs.iter().map(|bytes| u16::from_be_bytes(*bytes)) {
        while same > 0 && stamps.get(same) != Some(&stamp) {
            same = borders[same - 1];
        }
        same += usize::from(stamps[same] == stamp);
        count += usize::from(same == stamps.len());
    }
    count
}

/// How much of what ends at each place is also the beginning, so that nothing of a trail is compared again and
/// again, whatever was chosen to be written and asked (Knuth, Morris and Pratt).
fn borders(stamps: &[u16]) -> Vec<usize> {
    let mut borders = vec![0; stamps.len()];
    let mut same = 0;
    for place in 1..stamps.len() {
        while same > 0 && stamps[place] != stamps[same] {
            same = borders[same - 1];
        }
        same += usize::from(stamps[place] == stamps[same]);
        borders[place] = same;
    }
    borders
}

/// The two bytes that stand for a unit.
pub(crate) fn stamp(unit: &str) -> u16 {
    stamp_of(Term::of(unit))
}

/// The lower ones: what a term is looked up by are upper ones.
fn stamp_of(term: Term) -> u16 {
    match term.0 as u16 {
        FIELD_END => 1,
        stamp => stamp,
    }
}

/// A fixed hash, since stores keep what it says: FNV-1a, with its bits mixed once more.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    mix(bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
}

/// Lets every bit of a number change every other.
pub(crate) fn mix(number: u64) -> u64 {
    const FACTOR: u64 = 0xff51_afd7_ed55_8ccd;
    let mixed = (number ^ (number >> 33)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However often beginnings repeat, all places are found that comparing everywhere would find.
        #[test]
        fn every_place_is_counted(
            units in prop::collection::vec(1_u16..3, 0..40),
            stamps in prop::collection::vec(1_u16..3, 1..6),
        ) {
            let trail: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            let everywhere = units.windows(stamps.len()).filter(|window| *window == stamps).count();
            prop_assert_eq!(occurrences(&trail, &stamps), everywhere);
            prop_assert_eq!(occurrences(&trail, &[]), 0);
        }
    }
}
