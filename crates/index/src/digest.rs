//! What a generation holds, in short: how many rows, and one number for all that is in them. The order
//! in which rows were written, and the numbers they got, do not matter.

use kukuri_event::EventId;
use kukuri_feed::{Desk, DeskError, Dialect, Digest, Row, Sample, Value};

use crate::tables::Tables;
use crate::text::hash;

/// Rows that are read at a time.
const PAGE_ROWS: usize = 4096;

impl Tables {
    pub(crate) async fn digest(
        &self,
        desk: &mut Desk,
        sample: Sample,
    ) -> Result<Digest, DeskError> {
        let Self { documents, endorsements, postings } = self;
        let terms = match desk.dialect() {
            Dialect::Sqlite => "''",
            Dialect::Postgres => "CAST(keys AS TEXT)",
        };
        let columns =
            format!("event_id, trail, {terms}, topic, created_at, seq, target, popularity");
        let (mut rows, mut sum) =
            self.fold(desk, documents, "number", &columns, |row| document(row, sample)).await?;
        let columns = "target, author, sort";
        let of_events = |row: &Row| endorsement(row, sample);
        let (count, part) = self.fold(desk, endorsements, "event", columns, of_events).await?;
        rows += count;
        sum = u64::wrapping_add(sum, part);
        if desk.dialect() == Dialect::Sqlite {
            // A posting that leads to no document, or a document without one, would be found here.
            let row = desk.row(&format!("SELECT COUNT(*) FROM {postings}_docsize"), vec![]).await?;
            rows += row.map_or(Ok(0), |row| row.int(0))? as u64;
        }
        Ok(Digest { rows, hash: sum })
    }

    /// How many rows a table has, and the sum of what a function makes of each.
    async fn fold(
        &self,
        desk: &mut Desk,
        table: &str,
        key: &str,
        columns: &str,
        digest: impl Fn(&Row) -> Result<u64, DeskError>,
    ) -> Result<(u64, u64), DeskError> {
        let (mut rows, mut sum, mut after) = (0, 0_u64, None);
        let sql = format!(
            "SELECT {key}, {columns} FROM {table} WHERE {key} > $1 OR $2 = 0
                 ORDER BY {key} LIMIT {PAGE_ROWS}"
        );
        loop {
            let begun: Vec<Value> =
                vec![after.unwrap_or(0).into(), i64::from(after.is_some()).into()];
            let page = desk.rows(&sql, begun).await?;
            for row in &page {
                sum = sum.wrapping_add(digest(row)?);
                after = Some(row.int(0)?);
            }
            rows += page.len() as u64;
            if page.len() < PAGE_ROWS {
                return Ok((rows, sum));
            }
        }
    }
}

/// Rows outside of the sample add nothing.
fn document(row: &Row, sample: Sample) -> Result<u64, DeskError> {
    let mut bytes = row.blob(1)?;
    if !EventId::from_slice(&bytes).is_some_and(|id| sample.takes(&id)) {
        return Ok(0);
    }
    bytes.extend(row.blob(2)?);
    bytes.extend(row.text(3)?.as_bytes());
    for column in 4..=8 {
        bytes.extend(row.int(column)?.to_be_bytes());
    }
    Ok(hash(&bytes))
}

/// An endorsement has the first eight bytes of its event's id, ordered as numbers are.
fn endorsement(row: &Row, sample: Sample) -> Result<u64, DeskError> {
    let mut bytes = Vec::new();
    for column in 0..=3 {
        bytes.extend(row.int(column)?.to_be_bytes());
    }
    let first = (row.int(0)? as u64 ^ (1 << 63)).to_be_bytes()[0];
    let taken = match sample {
        Sample::All => true,
        Sample::FirstByte(byte) => byte == first,
    };
    Ok(if taken { hash(&bytes) } else { 0 })
}
