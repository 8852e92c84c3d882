//! Documents that leave. They are gone from their table at once, but segments still have their postings, which
//! lead to whoever has the number. So it is remembered, for as long as a segment has them, whose number it
//! was: only the same document, which has the same terms, may have it again.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_feed::{Desk, DeskError, Row};

use crate::block::{PostingKey, read};
use crate::document::{DocumentKey, Number};
use crate::search::TopicKey;
use crate::segments::{Segment, State};
use crate::tables::{Tables, list};

/// Removed documents that are looked for in a segment by one statement.
const REMOVED_PER_STATEMENT: usize = 256;

/// Whose a number is, or was while a segment still has its postings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    event_id: Vec<u8>,
    topic: TopicKey,
}

impl Owner {
    pub(crate) fn is(&self, key: &DocumentKey) -> bool {
        self.event_id == key.event_id.as_bytes() && self.topic == TopicKey::of(&key.topic_id)
    }
}

impl Tables {
    pub(crate) async fn remove(
        &self,
        desk: &mut Desk,
        numbers: &[Number],
    ) -> Result<(), DeskError> {
        if numbers.is_empty() {
            return Ok(());
        }
        for segment in self.all_segments(desk).await? {
            if segment.state != State::Spent {
                self.remember(desk, &segment, numbers).await?;
            }
        }
        let numbers: Vec<i64> = numbers.iter().map(|number| number.0).collect();
        let (table, value) = list(desk.dialect(), 1, &numbers);
        let sql = format!("DELETE FROM {} WHERE number IN {table}", self.documents);
        desk.execute(&sql, vec![value.into()]).await?;
        Ok(())
    }

    /// Takes note, and count, of those of some documents that are in a segment and will have left it.
    async fn remember(
        &self,
        desk: &mut Desk,
        segment: &Segment,
        numbers: &[Number],
    ) -> Result<(), DeskError> {
        let found = self.members(desk, segment, numbers).await?;
        if found.is_empty() {
            return Ok(());
        }
        let found: Vec<i64> = found.iter().map(|number| number.0).collect();
        let Self { documents, departed, .. } = self;
        let (table, value) = list(desk.dialect(), 1, &found);
        // One that came back and leaves again has been counted.
        let sql = format!(
            "INSERT INTO {departed} (number, segment, event_id, topic)
                 SELECT number, $2, event_id, topic FROM {documents} WHERE number IN {table}
                 ON CONFLICT (number, segment) DO NOTHING"
        );
        let left = desk.execute(&sql, vec![value.into(), segment.id.into()]).await?;
        let removed = segment.removed.saturating_add_unsigned(left);
        let sql = format!("UPDATE {} SET removed = $2 WHERE segment = $1", self.segments);
        desk.execute(&sql, vec![segment.id.into(), removed.into()]).await?;
        Ok(())
    }

    /// Those of some numbers that are in a segment.
    async fn members(
        &self,
        desk: &mut Desk,
        segment: &Segment,
        numbers: &[Number],
    ) -> Result<BTreeSet<Number>, DeskError> {
        let within = segment.oldest..=segment.newest;
        let numbers: BTreeSet<Number> =
            numbers.iter().copied().filter(|number| within.contains(number)).collect();
        let keys: BTreeSet<i64> =
            numbers.iter().map(|number| PostingKey::presence(*number).0).collect();
        let keys: Vec<i64> = keys.into_iter().collect();
        let mut found: BTreeSet<Number> = BTreeSet::new();
        for keys in keys.chunks(REMOVED_PER_STATEMENT) {
            for row in self.blocks_of(desk, &[segment.id], keys, 0).await? {
                let wanted = |key: PostingKey| key.is_presence().then_some(());
                let block = (PostingKey(row.int(1)?), &row.blob(2)?[..]);
                read(block, PostingKey::MAX, wanted, |(), number| {
                    found.extend(Some(number).filter(|number| numbers.contains(number)));
                })?;
            }
        }
        Ok(found)
    }

    /// Whose some numbers are or were.
    pub(crate) async fn owners(
        &self,
        desk: &mut Desk,
        numbers: &[i64],
    ) -> Result<BTreeMap<Number, Owner>, DeskError> {
        if numbers.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (rows, value) = list(desk.dialect(), 1, numbers);
        let of = |table: &str| {
            format!("SELECT number, event_id, topic FROM {table} WHERE number IN {rows}")
        };
        let sql = format!("{} UNION ALL {}", of(&self.documents), of(&self.departed));
        let owner = |row: &Row| {
            let owner = Owner { event_id: row.blob(1)?, topic: TopicKey(row.int(2)?) };
            Ok((Number(row.int(0)?), owner))
        };
        desk.rows(&sql, vec![value.into()]).await?.iter().map(owner).collect()
    }

    /// Forgets who was in a segment that is no more.
    pub(crate) async fn forget(&self, desk: &mut Desk, segment: i64) -> Result<(), DeskError> {
        let sql = format!("DELETE FROM {} WHERE segment = $1", self.departed);
        desk.execute(&sql, vec![segment.into()]).await?;
        Ok(())
    }
}
