//! The order of results. A score is the weighted sum of how well the text fits, how fresh and how
//! popular the event is, each between 0 and 1.

use kukuri_event::UnixSeconds;

use crate::query::Query;
use crate::text::length;

pub const TEXT_WEIGHT: f64 = 0.55;
pub const FRESHNESS_WEIGHT: f64 = 0.25;
pub const POPULARITY_WEIGHT: f64 = 0.20;

/// After this time an event is half as fresh.
pub const FRESHNESS_HALF_LIFE_SECONDS: f64 = 3.0 * 24.0 * 3600.0;
/// An event with so many endorsements is as popular as can be.
pub const POPULARITY_MAX: u32 = 100;

/// How quickly repetition stops to count, and how much the length of a text matters (BM25).
const SATURATION: f64 = 1.2;
const LENGTH_SHARE: f64 = 0.75;
/// A text of so many units is of ordinary length.
const LENGTH_TYPICAL_UNITS: f64 = 60.0;

/// Scores are whole numbers, so that they compare and travel exactly.
const SCORE_SCALE: f64 = 1_000_000.0;

/// From 0 to a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(pub u32);

/// What is known of a document that has all terms of a query.
pub struct Features<'a> {
    pub created_at: UnixSeconds,
    pub popularity: u32,
    pub trail: &'a [u8],
}

/// `None` if the document has the terms, but not together where they must be.
pub fn score(query: &Query, now: UnixSeconds, features: &Features<'_>) -> Option<Score> {
    let text = text(query, features.trail)?;
    let sum = TEXT_WEIGHT * text
        + FRESHNESS_WEIGHT * freshness(now, features.created_at)
        + POPULARITY_WEIGHT * popularity(features.popularity);
    Some(Score((sum * SCORE_SCALE).round() as u32))
}

fn text(query: &Query, trail: &[u8]) -> Option<f64> {
    let relative_length = length(trail) as f64 / LENGTH_TYPICAL_UNITS;
    let dampening = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * relative_length);
    let mut sum = 0.0;
    for chunk in query.chunks() {
        match chunk.occurrences(trail) {
            0 => return None,
            count => sum += count as f64 / (count as f64 + dampening),
        }
    }
    Some(sum / query.chunks().len() as f64)
}

fn freshness(now: UnixSeconds, created_at: UnixSeconds) -> f64 {
    let age_seconds = now.0.saturating_sub(created_at.0).max(0) as f64;
    (-age_seconds / FRESHNESS_HALF_LIFE_SECONDS).exp2()
}

fn popularity(endorsements: u32) -> f64 {
    let endorsements = endorsements.min(POPULARITY_MAX);
    f64::from(endorsements).ln_1p() / f64::from(POPULARITY_MAX).ln_1p()
}
