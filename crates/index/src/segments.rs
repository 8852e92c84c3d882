//! Which documents have which term. Each batch writes its postings, sorted, as a segment that is never
//! changed; of many small segments one larger is made, so that few have to be looked through and each
//! posting is written a few times only.
//!
//! A document that leaves is gone from its table, and its postings lead nowhere. A segment of which half
//! has left is written again without them.

use std::collections::{BTreeSet, HashSet};

use kukuri_feed::{Column, Desk, DeskError, Given, Row};

use crate::block::{Block, Posting, PostingKey, cut, read};
use crate::document::Number;
use crate::tables::Tables;

/// So many segments of about one size become one.
const SEGMENTS_PER_MERGE: usize = 8;
/// What is merged at once, in memory: 64 MiB of postings, of some 60 000 notes.
const MERGED_POSTINGS_MAX: i64 = 4 * 1024 * 1024;
/// Segments of so many are not merged any more.
const FINAL_POSTINGS_MIN: i64 = MERGED_POSTINGS_MAX / 2;
/// Blocks that are written by one statement.
const BLOCKS_PER_STATEMENT: usize = 1024;
/// Documents that are looked for by one statement.
const NUMBERS_PER_STATEMENT: usize = 16 * 1024;

/// What is known of a segment without looking into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub id: i64,
    pub postings: i64,
    documents: i64,
    /// Of its documents, how many have left since it was written, or a few more.
    removed: i64,
    pub oldest: Number,
    pub newest: Number,
}

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

/// Which segments, of all in the order of their ids, are to become one: at most so much that a batch
/// takes it along.
fn due(segments: &[Segment]) -> Vec<Segment> {
    let open: Vec<&Segment> = segments.iter().filter(|one| !one.is_final()).collect();
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
    segments.iter().find(|one| one.is_thin()).copied().into_iter().collect()
}

impl Tables {
    /// Adds what new documents have, and takes note of those that have left.
    pub(crate) async fn post(
        &self,
        desk: &mut Desk,
        (documents, mut postings): (usize, Vec<Posting>),
        removed: &[Number],
    ) -> Result<(), DeskError> {
        if postings.is_empty() && removed.is_empty() {
            return Ok(());
        }
        let mut segments = self.segments(desk).await?;
        for segment in &mut segments {
            let within = segment.oldest..=segment.newest;
            let count = removed.iter().filter(|number| within.contains(number)).count() as i64;
            if count > 0 {
                segment.removed += count;
                let sql = format!("UPDATE {} SET removed = $2 WHERE segment = $1", self.segments);
                desk.execute(&sql, vec![segment.id.into(), segment.removed.into()]).await?;
            }
        }
        postings.sort_unstable();
        postings.dedup();
        let id = next(&segments);
        segments.extend(self.write_segment(desk, id, &postings, documents as i64).await?);
        let due = due(&segments);
        if due.is_empty() { Ok(()) } else { self.merge(desk, next(&segments), &due).await }
    }

    /// In the order of their ids.
    pub(crate) async fn segments(&self, desk: &mut Desk) -> Result<Vec<Segment>, DeskError> {
        let sql = format!(
            "SELECT segment, postings, documents, removed, oldest, newest FROM {} ORDER BY segment",
            self.segments
        );
        let segment = |row: &Row| {
            Ok(Segment {
                id: row.int(0)?,
                postings: row.int(1)?,
                documents: row.int(2)?,
                removed: row.int(3)?,
                oldest: Number(row.int(4)?),
                newest: Number(row.int(5)?),
            })
        };
        desk.rows(&sql, vec![]).await?.iter().map(segment).collect()
    }

    /// All postings of a segment, in order.
    pub(crate) async fn postings(
        &self,
        desk: &mut Desk,
        segment: &Segment,
        mut found: impl FnMut(Posting),
    ) -> Result<(), DeskError> {
        let blocks = &self.blocks;
        let sql = format!("SELECT key, block FROM {blocks} WHERE segment = $1 ORDER BY key, part");
        for row in desk.rows(&sql, vec![segment.id.into()]).await? {
            let found = |key, number| found(Posting { key, number });
            read((PostingKey(row.int(0)?), &row.blob(1)?), PostingKey::MAX, Some, found)?;
        }
        Ok(())
    }

    async fn merge(&self, desk: &mut Desk, id: i64, due: &[Segment]) -> Result<(), DeskError> {
        let mut postings: Vec<Posting> = Vec::new();
        for segment in due {
            self.postings(desk, segment, |posting| postings.push(posting)).await?;
            for table in [&self.blocks, &self.segments] {
                let sql = format!("DELETE FROM {table} WHERE segment = $1");
                desk.execute(&sql, vec![segment.id.into()]).await?;
            }
        }
        // Made for runs that are sorted already.
        postings.sort();
        postings.dedup();
        let mut count = due.iter().map(|segment| segment.documents).sum();
        if due.iter().any(|segment| segment.removed > 0) {
            let here = self.still_here(desk, &postings).await?;
            postings.retain(|posting| here.contains(&posting.number));
            count = here.len() as i64;
        }
        self.write_segment(desk, id, &postings, count).await?;
        Ok(())
    }

    /// Those documents of some postings that have not left.
    async fn still_here(
        &self,
        desk: &mut Desk,
        postings: &[Posting],
    ) -> Result<HashSet<Number>, DeskError> {
        let mut numbers: Vec<i64> = postings.iter().map(|posting| posting.number.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut here = HashSet::with_capacity(numbers.len());
        for some in numbers.chunks(NUMBERS_PER_STATEMENT) {
            let found = self.among(desk, &self.documents, "number", some.iter().copied()).await?;
            here.extend(found.into_iter().map(Number));
        }
        Ok(here)
    }

    /// Nothing is no segment.
    async fn write_segment(
        &self,
        desk: &mut Desk,
        id: i64,
        postings: &[Posting],
        documents: i64,
    ) -> Result<Option<Segment>, DeskError> {
        let numbers = || postings.iter().map(|posting| posting.number);
        let Some((oldest, newest)) = numbers().min().zip(numbers().max()) else { return Ok(None) };
        let postings_count = postings.len() as i64;
        let segment =
            Segment { id, postings: postings_count, documents, removed: 0, oldest, newest };
        let sql = format!(
            "INSERT INTO {} (segment, postings, documents, removed, oldest, newest)
                 VALUES ($1, $2, $3, 0, $4, $5)",
            self.segments
        );
        let values = [id, postings_count, documents, oldest.0, newest.0];
        desk.execute(&sql, values.map(Into::into).into()).await?;
        self.write_blocks(desk, id, cut(postings)).await?;
        Ok(Some(segment))
    }

    async fn write_blocks(
        &self,
        desk: &mut Desk,
        segment: i64,
        mut blocks: Vec<Block>,
    ) -> Result<(), DeskError> {
        let sql = format!(
            "INSERT INTO {} (segment, key, part, block) SELECT segment, key, part, block FROM given",
            self.blocks
        );
        while !blocks.is_empty() {
            let later = blocks.split_off(BLOCKS_PER_STATEMENT.min(blocks.len()));
            let given = Given::new([
                ("segment", blocks.iter().map(|_| segment).collect()),
                ("key", blocks.iter().map(|block| block.key.0).collect()),
                ("part", blocks.iter().map(|block| block.part).collect()),
                ("block", blocks.into_iter().map(|block| block.bytes).collect::<Column>()),
            ]);
            desk.bulk(&sql, given).await?;
            blocks = later;
        }
        Ok(())
    }
}

fn next(segments: &[Segment]) -> i64 {
    segments.last().map_or(0, |segment| segment.id) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(id: i64, postings: i64) -> Segment {
        let (oldest, newest) = (Number(0), Number(9));
        Segment { id, postings, documents: postings, removed: 0, oldest, newest }
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
            assert!(sum <= MERGED_POSTINGS_MAX, "a batch takes no more along");
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
