//! What a generation holds, in short: how many rows, and one number for all that is in them. The order
//! in which rows were written, and the numbers they got, do not matter.

use std::collections::{HashMap, HashSet};

use kukuri_event::EventId;
use kukuri_feed::{Desk, DeskError, Digest, Row, Sample};

use crate::block::{Posting, PostingKey};
use crate::document::Number;
use crate::tables::Tables;
use crate::text::{hash, mix};

/// Rows that are read at a time.
const PAGE_ROWS: usize = 4096;

impl Tables {
    pub(crate) async fn digest(
        &self,
        desk: &mut Desk,
        sample: Sample,
    ) -> Result<Digest, DeskError> {
        let Self { documents, endorsements, .. } = self;
        let columns = "event_id, trail, created_at, seq, target, popularity";
        let mut sampled: HashMap<Number, u64> = HashMap::new();
        let of_document = |row: &Row| {
            let digest = document(row, sample)?;
            if let Some(digest) = digest {
                sampled.insert(Number(row.int(0)?), digest);
            }
            Ok(digest.unwrap_or(0))
        };
        let (mut rows, mut sum) =
            self.fold(desk, documents, ["number", "topic"], columns, of_document).await?;
        let columns = "target, author, sort";
        let of_events = |row: &Row| endorsement(row, sample);
        let (count, part) =
            self.fold(desk, endorsements, ["event", "rest"], columns, of_events).await?;
        rows += count;
        sum = sum.wrapping_add(part).wrapping_add(self.postings_of(desk, &sampled).await?);
        Ok(Digest { rows, hash: sum })
    }

    /// One number for the terms that lead to some documents. A document whose postings are written again
    /// has some of them twice.
    async fn postings_of(
        &self,
        desk: &mut Desk,
        documents: &HashMap<Number, u64>,
    ) -> Result<u64, DeskError> {
        let mut postings: HashSet<Posting> = HashSet::new();
        for segment in self.segments(desk).await? {
            let here = |posting: &Posting| documents.contains_key(&posting.number);
            let terms = (PostingKey(0), PostingKey::MAX);
            self.postings(desk, segment.id, terms, |posting| {
                postings.extend(Some(posting).filter(here));
            })
            .await?;
        }
        let digest = |posting: &Posting| mix(documents[&posting.number] ^ posting.key.0 as u64);
        Ok(postings.iter().map(digest).fold(0, u64::wrapping_add))
    }

    /// How many rows a table has, and the sum of what a function makes of each. The columns of the key come
    /// first in a row.
    async fn fold(
        &self,
        desk: &mut Desk,
        table: &str,
        key: [&str; 2],
        columns: &str,
        mut digest: impl FnMut(&Row) -> Result<u64, DeskError>,
    ) -> Result<(u64, u64), DeskError> {
        let (mut rows, mut sum, mut after) = (0, 0_u64, [i64::MIN; 2]);
        let key = key.join(", ");
        let sql = format!(
            "SELECT {key}, {columns} FROM {table} WHERE ({key}) > ($1, $2)
                 ORDER BY {key} LIMIT {PAGE_ROWS}"
        );
        loop {
            let page = desk.rows(&sql, after.map(Into::into).into()).await?;
            for row in &page {
                sum = sum.wrapping_add(digest(row)?);
                after = [row.int(0)?, row.int(1)?];
            }
            rows += page.len() as u64;
            if page.len() < PAGE_ROWS {
                return Ok((rows, sum));
            }
        }
    }
}

/// None for what is not in the sample.
fn document(row: &Row, sample: Sample) -> Result<Option<u64>, DeskError> {
    let mut bytes = row.blob(2)?;
    if !EventId::from_slice(&bytes).is_some_and(|id| sample.takes(&id)) {
        return Ok(None);
    }
    bytes.extend(row.blob(3)?);
    for column in [1, 4, 5, 6, 7] {
        bytes.extend(row.int(column)?.to_be_bytes());
    }
    Ok(Some(hash(&bytes)))
}

/// An endorsement has the first bytes of its event's id, eight of them ordered as numbers are.
fn endorsement(row: &Row, sample: Sample) -> Result<u64, DeskError> {
    let mut bytes = Vec::new();
    for column in 0..=4 {
        bytes.extend(row.int(column)?.to_be_bytes());
    }
    let first = (row.int(0)? as u64 ^ (1 << 63)).to_be_bytes()[0];
    let taken = match sample {
        Sample::All => true,
        Sample::FirstByte(byte) => byte == first,
    };
    Ok(if taken { hash(&bytes) } else { 0 })
}
