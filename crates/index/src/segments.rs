//! Which documents have which term. Each batch writes its postings, sorted, as a segment that is never
//! changed; of many small segments one larger is made (`merge.rs`), so that few have to be looked through
//! and each posting is written a few times only.
//!
//! A document that leaves is gone from its table, and its postings lead nowhere. A segment of which half
//! has left is written again without them.

use kukuri_feed::{Column, Desk, DeskError, Given, Row};

use crate::block::{Block, Posting, PostingKey, cut, read};
use crate::document::Number;
use crate::tables::{Tables, list};

/// Blocks that are written by one statement.
const BLOCKS_PER_STATEMENT: usize = 1024;

/// What is known of a segment without looking into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub id: i64,
    pub postings: i64,
    pub documents: i64,
    /// Of its documents, how many have left since it was written. Those that came back are in another one.
    pub removed: i64,
    pub oldest: Number,
    pub newest: Number,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Whole,
    /// Another one is being made of it, until when it is read.
    Merging,
    /// It is being made of others, and lacks what is from this key on.
    Made {
        next: PostingKey,
    },
    /// Another one has taken its place. Its blocks are being deleted.
    Spent,
}

impl State {
    /// The numbers in the columns.
    fn codes(self) -> (i64, i64) {
        match self {
            Self::Whole => (1, 0),
            Self::Merging => (2, 0),
            Self::Made { next } => (3, next.0),
            Self::Spent => (4, 0),
        }
    }

    fn from_codes(state: i64, next: i64) -> Result<Self, DeskError> {
        match state {
            1 => Ok(Self::Whole),
            2 => Ok(Self::Merging),
            3 => Ok(Self::Made { next: PostingKey(next) }),
            4 => Ok(Self::Spent),
            _ => Err(DeskError::Broken(format!("a segment has the state {state}"))),
        }
    }
}

impl Segment {
    /// Whether its postings are to be read: each posting is in one such segment, however merges go.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.state, State::Whole | State::Merging)
    }

    /// Takes note of postings that are in it from now on, in order: those of documents come first.
    pub(crate) fn add(&mut self, postings: &[Posting]) {
        let documents = postings.partition_point(|posting| posting.key.is_presence());
        self.postings += postings.len() as i64;
        self.documents += documents as i64;
        for Posting { number, .. } in &postings[..documents] {
            (self.oldest, self.newest) = (self.oldest.min(*number), self.newest.max(*number));
        }
    }

    /// One without anything in it.
    pub(crate) fn empty(id: i64, state: State) -> Self {
        let (oldest, newest) = (Number(i64::MAX), Number(0));
        Self { id, postings: 0, documents: 0, removed: 0, oldest, newest, state }
    }
}

impl Tables {
    /// Adds what new documents have, and goes on with merges.
    pub(crate) async fn post(
        &self,
        desk: &mut Desk,
        mut postings: Vec<Posting>,
    ) -> Result<(), DeskError> {
        let mut segments = self.all_segments(desk).await?;
        postings.sort_unstable();
        postings.dedup();
        let blocks = cut(&postings);
        let blocks_count = blocks.len();
        if !postings.is_empty() {
            let mut segment = Segment::empty(next(&segments), State::Whole);
            segment.add(&postings);
            self.put_segment(desk, &segment).await?;
            self.write_blocks(desk, segment.id, blocks).await?;
            segments.push(segment);
        }
        self.go_on_merging(desk, &segments, blocks_count).await
    }

    /// Those that are to be read, in the order of their ids.
    pub(crate) async fn segments(&self, desk: &mut Desk) -> Result<Vec<Segment>, DeskError> {
        let mut segments = self.all_segments(desk).await?;
        segments.retain(Segment::is_read);
        Ok(segments)
    }

    pub(crate) async fn all_segments(&self, desk: &mut Desk) -> Result<Vec<Segment>, DeskError> {
        let sql = format!(
            "SELECT segment, postings, documents, removed, oldest, newest, state, next_key
                 FROM {} ORDER BY segment",
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
                state: State::from_codes(row.int(6)?, row.int(7)?)?,
            })
        };
        desk.rows(&sql, vec![]).await?.iter().map(segment).collect()
    }

    /// The blocks of some segments in which there may be something of the keys from one of `firsts` up to
    /// `span` further, as rows of segment, key and block.
    pub(crate) async fn blocks_of(
        &self,
        desk: &mut Desk,
        segments: &[i64],
        firsts: &[i64],
        span: i64,
    ) -> Result<Vec<Row>, DeskError> {
        let (ids_table, ids) = list(desk.dialect(), 1, segments);
        let (firsts_table, firsts) = list(desk.dialect(), 2, firsts);
        let blocks = &self.blocks;
        // The block in which a range begins is the last one that does not begin after it. If it begins
        // before it and has further parts, these are all of its own key.
        let sql = format!(
            "WITH wanted AS MATERIALIZED (SELECT segments.value AS segment, firsts.value AS first,
                     (SELECT key FROM {blocks} WHERE segment = segments.value
                          AND key <= firsts.value ORDER BY key DESC LIMIT 1) AS start
                 FROM {ids_table} AS segments CROSS JOIN {firsts_table} AS firsts)
             SELECT blocks.segment, blocks.key, blocks.block
                 FROM wanted CROSS JOIN {blocks} AS blocks
                 WHERE blocks.segment = wanted.segment
                 AND blocks.key >= COALESCE(wanted.start, wanted.first)
                 AND blocks.key <= wanted.first + {span}
                 AND (blocks.part = 0 OR blocks.key >= wanted.first)"
        );
        desk.rows(&sql, vec![ids.into(), firsts.into()]).await
    }

    /// The postings of a segment with keys from the first to the last of these, in order.
    pub(crate) async fn postings(
        &self,
        desk: &mut Desk,
        segment: i64,
        (first, last): (PostingKey, PostingKey),
        mut found: impl FnMut(Posting),
    ) -> Result<(), DeskError> {
        let blocks = &self.blocks;
        let sql = format!(
            "SELECT key, block FROM {blocks} WHERE segment = $1 AND key <= $3
                 AND key >= COALESCE((SELECT key FROM {blocks} WHERE segment = $1 AND key <= $2
                     ORDER BY key DESC LIMIT 1), $2)
                 AND (part = 0 OR key >= $2) ORDER BY key, part"
        );
        let values = [segment, first.0, last.0].map(Into::into).into();
        for row in desk.rows(&sql, values).await? {
            let wanted = |key: PostingKey| (key >= first).then_some(key);
            let found = |key, number| found(Posting { key, number });
            read((PostingKey(row.int(0)?), &row.blob(1)?), last, wanted, found)?;
        }
        Ok(())
    }

    /// Writes what is known of a segment anew.
    pub(crate) async fn put_segment(
        &self,
        desk: &mut Desk,
        segment: &Segment,
    ) -> Result<(), DeskError> {
        let Segment { id, postings, documents, removed, oldest, newest, state } = *segment;
        let (state, next) = state.codes();
        let sql = format!(
            "INSERT INTO {} (segment, postings, documents, removed, oldest, newest, state, next_key)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                 ON CONFLICT (segment) DO UPDATE SET postings = $2, documents = $3, removed = $4,
                     oldest = $5, newest = $6, state = $7, next_key = $8",
            self.segments
        );
        let values = [id, postings, documents, removed, oldest.0, newest.0, state, next];
        desk.execute(&sql, values.map(Into::into).into()).await?;
        Ok(())
    }

    pub(crate) async fn write_blocks(
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

/// The id of the next segment.
pub(crate) fn next(segments: &[Segment]) -> i64 {
    segments.last().map_or(0, |segment| segment.id) + 1
}

#[cfg(test)]
mod tests {
    use kukuri_feed::{Generation, Home, Place, Sync};
    use kukuri_testkit::postgres::{Cluster, Durability};

    use super::*;
    use crate::consumer::Index;

    const DOCUMENTS: i64 = 20_000;

    /// Who asked for a word that nobody uses read all that there is about the common one before it.
    #[tokio::test]
    async fn what_is_absent_is_looked_for_in_one_block() {
        let directory = tempfile::TempDir::new().expect("a temporary directory");
        let cluster = Cluster::start(Durability::Fast).expect("a cluster starts");
        let file = Place::Directory { directory: directory.path().into(), sync: Sync::OffForTests };
        for place in [file, Place::Database { url: cluster.create_database() }] {
            let home = Home::open(&place, Index::NAME).await.expect("the tables open");
            let mut writing = home.write().await.expect("begins to write");
            let (desk, tables) = (writing.desk(), Tables::of(Generation(1)));
            tables.create(desk).await.expect("makes the tables");
            let posting =
                |key| move |number| Posting { key: PostingKey(key), number: Number(number) };
            let common = (0..DOCUMENTS).map(posting(1000));
            let postings = common.chain((0..3).map(posting(2000))).collect();
            tables.post(desk, postings).await.expect("writes");
            let mut read = Vec::new();
            for key in [999, 1000, 1001, 1999, 2000, 2001] {
                read.push(tables.blocks_of(desk, &[1], &[key], 0).await.expect("reads").len());
            }
            let parts = read[1];
            assert!(parts > 10, "{parts}");
            assert_eq!(read, [0, parts, 1, 1, 1, 1], "{:?}", desk.dialect());
            let both = tables.blocks_of(desk, &[1], &[999], 1001).await.expect("reads").len();
            assert_eq!(both, parts + 1);
            let (first, last) = (PostingKey(1001), PostingKey(2000));
            let mut found = 0;
            let read = tables.postings(desk, 1, (first, last), |_| found += 1).await;
            read.expect("reads");
            assert_eq!(found, 3);
            writing.roll_back().await.expect("rolls back");
        }
    }
}
