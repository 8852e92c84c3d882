//! The rows of `events`.

use kukuri_core::Record;
use sqlx::postgres::PgConnection;

use super::Bulk;
use crate::error::Fault;
use crate::numbers::BatchNumbers;
use crate::rows::LINK_BYTES;

const UPDATE: &str = "UPDATE events e SET state = k.state, links = k.links
    FROM (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::BIGINT[]) AS ingested_at,
        UNNEST($3::SMALLINT[]) AS keep, UNNEST($4::SMALLINT[]) AS state,
        UNNEST($5::BYTEA[]) AS links) AS k
    WHERE e.seq = k.seq AND e.ingested_at = k.ingested_at AND e.keep = k.keep";

const DELETE: &str = "DELETE FROM events e
    USING (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::BIGINT[]) AS ingested_at,
        UNNEST($3::SMALLINT[]) AS keep) AS k
    WHERE e.seq = k.seq AND e.ingested_at = k.ingested_at AND e.keep = k.keep";

#[derive(Default)]
pub(super) struct Events<'a> {
    inserted: Vec<&'a Record>,
    updated: Vec<&'a Record>,
    deleted: Vec<&'a Record>,
}

impl<'a> Events<'a> {
    /// An event that left and came back within the batch has another number: the old row goes.
    pub fn change(&mut self, before: Option<&'a Record>, after: Option<&'a Record>) {
        match (before, after) {
            (Some(before), Some(after)) if before.seq == after.seq => self.updated.push(after),
            (before, after) => {
                self.deleted.extend(before);
                self.inserted.extend(after);
            }
        }
    }

    /// Writes all but the new rows, which it returns.
    pub async fn write(
        self,
        connection: &mut PgConnection,
        numbers: &BatchNumbers,
    ) -> Result<Vec<&'a Record>, Fault> {
        keys(DELETE, &self.deleted).run(connection).await?;
        keys(UPDATE, &self.updated)
            .bind(self.updated.iter().map(|record| record.state.code()))
            .bind(self.updated.iter().map(|record| pack_links(record, numbers)))
            .run(connection)
            .await?;
        Ok(self.inserted)
    }
}

fn keys<'q>(sql: &'static str, records: &[&Record]) -> Bulk<'q> {
    Bulk::new(sql, records.len())
        .bind(records.iter().map(|record| record.seq.0))
        .bind(records.iter().map(|record| record.ingested_at.0))
        .bind(records.iter().map(|record| record.keep.code()))
}

/// The column `links`.
pub(super) fn pack_links(record: &Record, numbers: &BatchNumbers) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.links.len() * LINK_BYTES);
    for link in &record.links {
        bytes.extend(numbers.of(&link.topic).to_be_bytes());
        bytes.extend(link.seq.0.to_be_bytes());
    }
    bytes
}
