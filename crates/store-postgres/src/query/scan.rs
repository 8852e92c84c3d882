//! Walking an index from the newest event on, along several keys at once, no further than the
//! answer needs.
//!
//! Each round reads a stretch of every key that may still matter. A key matters while it can hold
//! events that are not older than the last one wanted; stretches grow, so that rounds stay few.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use kukuri_store::Hit;
use sqlx::postgres::PgConnection;

use super::moment::Moment;
use super::stretch::{self, Asked, IndexRow, Place};
use super::{Budget, Source, Wanted};
use crate::error::Fault;

const STRETCH_MIN: usize = 16;
const STRETCH_GROWTH: usize = 4;

/// A row that may be a hit.
struct Candidate {
    place: Place,
    hit: Hit,
}

/// How far one key has been read.
struct Key {
    key: i64,
    /// The last row that was read.
    place: Place,
    /// How many rows were read at that place. They are read again, because an index abbreviates ids
    /// and there may be more.
    rows_at_place: usize,
    take: usize,
    done: bool,
}

/// A walk along the keys of one source.
pub(super) struct Scan<'a> {
    pub wanted: &'a Wanted<'a>,
    source: Source,
    keys: Vec<Key>,
    candidates: BTreeMap<Seq, Candidate>,
    /// Whether candidates have conditions that only their bodies can tell.
    pub in_full: bool,
    /// Whether more was read than the budget had.
    pub overdrawn: bool,
}

impl<'a> Scan<'a> {
    /// Without other conditions every row is a hit; with them, `rows_per_hit` are read for one at
    /// first.
    pub fn new(wanted: &'a Wanted<'a>, source: Source, rows_per_hit: usize) -> Self {
        let filter = wanted.filter;
        let tags = filter.other_tags().count();
        let in_full = tags > usize::from(matches!(source, Source::Tag { .. }));
        let exact = matches!(source, Source::Topics(_))
            && filter.kinds.is_none()
            && filter.authors.is_none()
            && !in_full;
        let keys = source.keys();
        let rows = if exact {
            // The event that it goes on after comes once more.
            wanted.limit.saturating_add(1 + usize::from(wanted.query.after.is_some()))
        } else {
            wanted.limit.saturating_mul(rows_per_hit).max(STRETCH_MIN)
        };
        let take = match keys.len() {
            0 | 1 => rows,
            // Twice its share: keys are not equally busy.
            many => rows.saturating_mul(2).div_ceil(many).clamp(STRETCH_MIN.min(rows), rows),
        };
        let place = wanted.first_place();
        let key = |key| Key { key, place, rows_at_place: 0, take, done: false };
        Self {
            wanted,
            source,
            keys: keys.into_iter().map(key).collect(),
            candidates: BTreeMap::new(),
            in_full,
            overdrawn: false,
        }
    }

    /// The keys that may hold more of the answer.
    fn open_keys(&self) -> Vec<usize> {
        let mut places: Vec<Place> = self.candidates.values().map(|c| c.place).collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let last = places.get(self.wanted.limit - 1);
        let matters = |key: &Key| !key.done && last.is_none_or(|last| key.place >= *last);
        let open = self.keys.iter().enumerate().filter(|(_, key)| matters(key));
        open.map(|(nth, _)| nth).collect()
    }

    /// Whether nothing that was not read can belong to the answer.
    pub fn complete(&self) -> bool {
        self.open_keys().is_empty()
    }

    pub fn into_hits(self) -> Vec<Hit> {
        self.candidates.into_values().map(|candidate| candidate.hit).collect()
    }

    pub fn retain(&mut self, keep: impl Fn(&Seq) -> bool) {
        self.candidates.retain(|seq, _| keep(seq));
    }

    /// Reads the next stretch of the open keys, of which there are some. Returns the moment, and what
    /// candidates there are now that were not there before.
    pub async fn read(
        &mut self,
        connection: &mut PgConnection,
        known: Seq,
        budget: &mut Budget,
    ) -> Result<(Moment, BTreeSet<Seq>), Fault> {
        let open = self.open_keys();
        let share = budget.rows / open.len() + 1;
        let mut takes = Vec::with_capacity(open.len());
        for nth in &open {
            let key = &mut self.keys[*nth];
            takes.push(key.take.min(share) + key.rows_at_place);
            key.take = key.take.saturating_mul(STRETCH_GROWTH);
        }
        let asked = open.iter().zip(&takes).map(|(nth, take)| {
            let key = &self.keys[*nth];
            Asked { key: key.key, place: key.place, take: *take }
        });
        let (now, stretches) =
            stretch::read(connection, self.wanted, &self.source, asked.collect(), known).await?;
        let (mut new, mut rows) = (BTreeSet::new(), 0);
        for (nth, stretch) in stretches {
            for row in &stretch {
                if let Some(hit) = self.hit(row)
                    && self
                        .candidates
                        .insert(hit.event, Candidate { place: row.place, hit })
                        .is_none()
                {
                    new.insert(hit.event);
                }
            }
            rows += self.keys[open[nth]].advance(&stretch, takes[nth]);
        }
        self.overdrawn = rows > budget.rows;
        budget.spend(rows);
        Ok((now, new))
    }

    /// The event of a row, unless a condition fails that its columns can tell.
    fn hit(&self, row: &IndexRow) -> Option<Hit> {
        let columns = row.columns.as_ref()?;
        let filter = self.wanted.filter;
        let in_topics = match &self.source {
            Source::Authors { topics: Some(topics), .. } => {
                columns.topic_no.is_some_and(|topic_no| topics.contains(&topic_no))
            }
            _ => true,
        };
        let holds = in_topics
            && columns.expires_at.is_none_or(|end| end > self.wanted.now)
            && filter.kinds.as_ref().is_none_or(|kinds| kinds.contains(&columns.kind))
            && filter.authors.as_ref().is_none_or(|authors| {
                columns.pubkey.is_some_and(|pubkey| authors.contains(&pubkey))
            });
        let (created_at, id) = (UnixSeconds(row.place.0), columns.id);
        let hit = Hit { event: row.seq, created_at, id };
        (holds && self.wanted.query.is_ahead(&hit)).then_some(hit)
    }
}

impl Key {
    /// Notes what was read, of `take` rows that were asked for; returns how many were new.
    fn advance(&mut self, stretch: &[IndexRow], take: usize) -> usize {
        let new = stretch.len().saturating_sub(self.rows_at_place);
        self.done = stretch.len() < take;
        if let Some(last) = stretch.iter().map(|row| row.place).min() {
            self.place = last;
            self.rows_at_place = stretch.iter().filter(|row| row.place == last).count();
        }
        new
    }
}
