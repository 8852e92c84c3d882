//! Makes one segment of several, or writes one again without what has left. A batch of the feed takes a
//! bounded part of that along: the new segment grows key by key, and the old ones are read until it is whole.

use std::collections::{BTreeSet, HashSet};

use kukuri_feed::{Desk, DeskError};

use crate::block::{Posting, PostingKey, cut};
use crate::document::Number;
use crate::segments::{Segment, State, next};
use crate::tables::Tables;

/// So many segments of about one size become one.
const SEGMENTS_PER_MERGE: usize = 8;
/// What becomes one segment, of some 60 000 notes: some 40 MiB.
const MERGED_POSTINGS_MAX: i64 = 4 * 1024 * 1024;
/// Segments of so many are not merged any more.
const FINAL_POSTINGS_MIN: i64 = MERGED_POSTINGS_MAX / 2;
/// Blocks that a batch takes along, read and written: 2 MiB. That of a batch which writes many itself are
/// so many times as many, since each is written again once for every level: else merges would fall behind.
const MERGED_BLOCKS_MIN: usize = 1024;
const MERGED_BLOCKS_PER_BLOCK: usize = 4;
/// Blocks without a segment that a batch deletes, for each that it may merge.
const CLEARED_BLOCKS_PER_MERGED: usize = 2;
/// Documents that are looked for by one statement.
const NUMBERS_PER_STATEMENT: usize = 16 * 1024;

impl Segment {
    fn is_final(&self) -> bool {
        self.postings >= FINAL_POSTINGS_MIN
    }

    /// Those of a level have about as many postings, within the factor of a merge.
    fn level(&self) -> u32 {
        self.postings.max(1).ilog(SEGMENTS_PER_MERGE as i64)
    }

    fn is_thin(&self) -> bool {
        self.removed > 0 && self.removed * 2 >= self.documents
    }
}

/// Which segments, of all in the order of their ids, are to become one.
fn due(segments: &[Segment]) -> Vec<Segment> {
    let whole = || segments.iter().filter(|one| one.state == State::Whole);
    let open: Vec<&Segment> = whole().filter(|one| !one.is_final()).collect();
    let levels: BTreeSet<u32> = open.iter().map(|one| one.level()).collect();
    for level in levels {
        let alike = open.iter().filter(|one| one.level() == level);
        let alike: Vec<Segment> = alike.take(SEGMENTS_PER_MERGE).map(|one| **one).collect();
        if alike.len() < SEGMENTS_PER_MERGE {
            continue;
        }
        let mut postings = 0;
        let fits = |one: &Segment| {
            postings += one.postings;
            postings <= MERGED_POSTINGS_MAX
        };
        return alike.into_iter().take_while(fits).collect();
    }
    whole().find(|one| one.is_thin()).copied().into_iter().collect()
}

/// A segment that is being made, and of which ones.
struct Merge {
    made: Segment,
    next: PostingKey,
    sources: Vec<Segment>,
}

impl Merge {
    /// The one that goes on, or else one that is due.
    fn of(segments: &[Segment]) -> Option<Self> {
        for made in segments {
            if let State::Made { next } = made.state {
                let sources = segments.iter().filter(|one| one.state == State::Merging);
                return Some(Self { made: *made, next, sources: sources.copied().collect() });
            }
        }
        let sources = due(segments);
        let first = PostingKey::MIN;
        let made = Segment::empty(next(segments), State::Made { next: first });
        (!sources.is_empty()).then_some(Self { made, next: first, sources })
    }
}

impl Tables {
    /// Takes a part of a merge along, in a batch that has written so many blocks itself.
    pub(crate) async fn go_on_merging(
        &self,
        desk: &mut Desk,
        segments: &[Segment],
        blocks_written: usize,
    ) -> Result<(), DeskError> {
        let blocks_max = MERGED_BLOCKS_MIN.max(blocks_written * MERGED_BLOCKS_PER_BLOCK);
        let mut spent: Vec<Segment> = segments.to_vec();
        spent.retain(|segment| segment.state == State::Spent);
        if let Some(merge) = Merge::of(segments) {
            spent.extend(self.merge(desk, merge, blocks_max).await?);
        }
        self.clear(desk, &spent, blocks_max * CLEARED_BLOCKS_PER_MERGED).await
    }

    /// Adds the postings of some more keys to a segment that is being made. When it is whole, its sources
    /// are spent, and so is a segment of nothing; these are returned.
    async fn merge(
        &self,
        desk: &mut Desk,
        merge: Merge,
        blocks_max: usize,
    ) -> Result<Vec<Segment>, DeskError> {
        let Merge { mut made, next, mut sources } = merge;
        let end = self.end_of_part(desk, &sources, next, blocks_max).await?;
        let last = end.map_or(PostingKey::MAX, |end| PostingKey(end.0 - 1));
        let mut postings: Vec<Posting> = Vec::new();
        for segment in &sources {
            let add = |posting| postings.push(posting);
            self.postings(desk, segment.id, (next, last), add).await?;
        }
        // Made for runs that are sorted already.
        postings.sort();
        postings.dedup();
        self.leave_out(desk, &made, &sources, &mut postings).await?;
        made.add(&postings);
        made.state = match end {
            Some(next) => State::Made { next },
            None if made.postings > 0 => State::Whole,
            // Nothing is no segment, though it may have been begun as one.
            None => State::Spent,
        };
        self.write_blocks(desk, made.id, cut(&postings)).await?;
        self.put_segment(desk, &made).await?;
        let state = if end.is_some() { State::Merging } else { State::Spent };
        for source in sources.iter_mut().filter(|source| source.state != state) {
            source.state = state;
            self.put_segment(desk, source).await?;
        }
        sources.push(made);
        sources.retain(|segment| segment.state == State::Spent);
        Ok(sources)
    }

    /// With which key the part ends that a batch takes along, which is not in it; none if it is all.
    async fn end_of_part(
        &self,
        desk: &mut Desk,
        sources: &[Segment],
        next: PostingKey,
        blocks_max: usize,
    ) -> Result<Option<PostingKey>, DeskError> {
        let all: i64 = sources.iter().map(|segment| segment.postings).sum();
        // A block has one posting at least.
        if all <= blocks_max as i64 {
            return Ok(None);
        }
        let sql = format!(
            "SELECT key FROM {} WHERE segment = $1 AND key > $2 ORDER BY key LIMIT 1 OFFSET $3",
            self.blocks
        );
        let mut end = None;
        for segment in sources {
            let share = blocks_max as i64 * segment.postings / all;
            let values = [segment.id, next.0, share].map(Into::into).into();
            if let Some(row) = desk.row(&sql, values).await? {
                let key = PostingKey(row.int(0)?);
                end = Some(end.map_or(key, |end: PostingKey| end.min(key)));
            }
        }
        Ok(end)
    }

    /// Leaves out, of the next postings of a segment, those of documents that had left when it was begun.
    /// Which documents it has is told by what comes first in it.
    async fn leave_out(
        &self,
        desk: &mut Desk,
        made: &Segment,
        sources: &[Segment],
        postings: &mut Vec<Posting>,
    ) -> Result<(), DeskError> {
        let of_terms = postings.partition_point(|posting| posting.key.is_presence());
        let mut members: HashSet<Number> =
            postings[..of_terms].iter().map(|posting| posting.number).collect();
        if sources.iter().any(|segment| segment.removed > 0) {
            members = self.still_here(desk, members).await?;
        }
        let documents: i64 = sources.iter().map(|segment| segment.documents).sum();
        let here = made.documents + members.len() as i64;
        if here == documents {
            return Ok(());
        }
        if of_terms < postings.len() && made.documents > 0 {
            let presence = (PostingKey::MIN, PostingKey(-1));
            let add = |posting: Posting| {
                members.insert(posting.number);
            };
            self.postings(desk, made.id, presence, add).await?;
        }
        postings.retain(|posting| members.contains(&posting.number));
        Ok(())
    }

    /// Those of some documents that have not left.
    async fn still_here(
        &self,
        desk: &mut Desk,
        numbers: HashSet<Number>,
    ) -> Result<HashSet<Number>, DeskError> {
        let mut numbers: Vec<i64> = numbers.into_iter().map(|number| number.0).collect();
        numbers.sort_unstable();
        let mut here = HashSet::with_capacity(numbers.len());
        for some in numbers.chunks(NUMBERS_PER_STATEMENT) {
            here.extend(self.taken(desk, some).await?);
        }
        Ok(here)
    }

    /// Deletes blocks of segments whose place others have taken, and those that have none left.
    async fn clear(
        &self,
        desk: &mut Desk,
        spent: &[Segment],
        blocks_max: usize,
    ) -> Result<(), DeskError> {
        let Self { blocks, segments, .. } = self;
        let nth =
            format!("SELECT key FROM {blocks} WHERE segment = $1 ORDER BY key LIMIT 1 OFFSET $2");
        let delete = format!("DELETE FROM {blocks} WHERE segment = $1 AND key <= $2");
        let mut left = blocks_max as i64;
        for segment in spent.iter().map(|segment| segment.id) {
            if left <= 0 {
                return Ok(());
            }
            let end = desk.row(&nth, vec![segment.into(), left.into()]).await?;
            let last = end.as_ref().map_or(Ok(i64::MAX), |row| row.int(0))?;
            let deleted = desk.execute(&delete, vec![segment.into(), last.into()]).await?;
            left = left.saturating_sub_unsigned(deleted);
            if end.is_some() {
                return Ok(());
            }
            self.forget(desk, segment).await?;
            let sql = format!("DELETE FROM {segments} WHERE segment = $1");
            desk.execute(&sql, vec![segment.into()]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(id: i64, postings: i64) -> Segment {
        Segment { postings, documents: postings, ..Segment::empty(id, State::Whole) }
    }

    /// Writes segments of these sizes one after the other, each time with the merge that is due, and
    /// returns what there is in the end and how many postings were written in all.
    fn grow(sizes: impl IntoIterator<Item = i64>) -> (Vec<Segment>, i64) {
        let (mut segments, mut written) = (Vec::new(), 0);
        for size in sizes {
            segments.push(segment(next(&segments), size));
            written += size;
            let due = due(&segments);
            let sum: i64 = due.iter().map(|one| one.postings).sum();
            assert!(sum <= MERGED_POSTINGS_MAX, "no more becomes one");
            if !due.is_empty() {
                assert!(due.len() > 1, "what is alone is not written again");
                let id = next(&segments);
                segments.retain(|one| !due.contains(one));
                segments.push(segment(id, sum));
                written += sum;
            }
        }
        (segments, written)
    }

    #[test]
    fn few_segments_are_looked_through_and_few_postings_written_again() {
        // One note at a time, and a thousand.
        for (size, count) in [(65, 20_000), (65_000, 1000)] {
            let (segments, written) = grow(std::iter::repeat_n(size, count));
            let all = size * count as i64;
            let full = all / FINAL_POSTINGS_MIN + 1;
            let levels = i64::from(FINAL_POSTINGS_MIN.ilog(SEGMENTS_PER_MERGE as i64)) + 1;
            let open_max = levels * SEGMENTS_PER_MERGE as i64;
            assert!((segments.len() as i64) < full + open_max, "{}", segments.len());
            assert!(written <= all * levels, "{written} for {all}");
            assert_eq!(segments.iter().map(|one| one.postings).sum::<i64>(), all);
        }
    }

    #[test]
    fn a_segment_of_which_half_has_left_is_written_again() {
        let full = segment(1, FINAL_POSTINGS_MIN);
        let half = full.documents / 2;
        assert_eq!(due(&[Segment { removed: half - 1, ..full }]), []);
        let thin = Segment { removed: half, ..full };
        assert_eq!(due(&[segment(1, 5), thin]), [thin]);
    }
}
