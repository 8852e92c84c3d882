//! The rows of `events`.

use kukuri_core::{Keep, Record, Seq};

use super::{Bulk, Columns};
use crate::dense::{Dense, is_in};
use crate::error::Fault;
use crate::numbers::BatchNumbers;
use crate::packed::Fields;
use crate::rows::LINK_BYTES;

const INSERT: &str =
    "INSERT INTO events (seq, created_at, ingested_at, expires_at, kind, keep, state,
        event_id, pubkey, sig, links, body)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[]), UNNEST($4::BIGINT[]),
        UNNEST($5::INTEGER[]), UNNEST($6::SMALLINT[]), UNNEST($7::SMALLINT[]), UNNEST($8::BYTEA[]),
        UNNEST($9::BYTEA[]), UNNEST($10::BYTEA[]), UNNEST($11::BYTEA[]), UNNEST($12::BYTEA[])";

const UPDATE: &str = "UPDATE events e SET state = k.state, links = k.links
    FROM (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::SMALLINT[]) AS keep,
        UNNEST($3::SMALLINT[]) AS state, UNNEST($4::BYTEA[]) AS links) AS k
    WHERE e.seq = k.seq AND e.keep = k.keep";

const DELETE: &str = "DELETE FROM events e
    USING (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::SMALLINT[]) AS keep) AS k
    WHERE e.seq = k.seq AND e.keep = k.keep";

/// The same, of `keep` 0, for events that came together: one stretch of their index.
const DELETE_STRETCH: &str = concat!(
    "DELETE FROM events e WHERE e.keep = 0 AND ",
    is_in!("e.seq", "($1::BIGINT[])[1]", "($2::BIGINT[])[1]", "($3::BYTEA[])[1]")
);

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

    pub fn write(mut self, bulk: &mut Bulk, numbers: &BatchNumbers) -> Result<(), Fault> {
        for rows in [&mut self.deleted, &mut self.updated, &mut self.inserted] {
            rows.sort_unstable_by_key(|record| record.seq);
        }
        delete(bulk, self.deleted);
        keys(bulk, UPDATE, &self.updated)
            .bind(self.updated.iter().map(|record| record.state.code()))
            .bind(self.updated.iter().map(|record| pack_links(record, numbers)));
        let bodies = self.inserted.iter().map(|record| body(record));
        let bodies = bodies.collect::<Result<Vec<&str>, Fault>>()?;
        let rows = &self.inserted;
        bulk.insert(INSERT, rows.len())
            .bind(rows.iter().map(|record| record.seq.0))
            .bind(rows.iter().map(|record| record.event().created_at().0))
            .bind(rows.iter().map(|record| record.ingested_at.0))
            .bind(rows.iter().map(|record| record.expires_at().map(|end| end.0)))
            .bind(rows.iter().map(|record| i32::from(record.event().kind().0)))
            .bind(rows.iter().map(|record| record.keep.code()))
            .bind(rows.iter().map(|record| record.state.code()))
            .bind(rows.iter().map(|record| *record.event().id().as_bytes()))
            .bind(rows.iter().map(|record| *record.event().pubkey().as_bytes()))
            .bind(rows.iter().map(|record| *record.event().sig().as_bytes()))
            .bind(rows.iter().map(|record| pack_links(record, numbers)))
            .bind(bodies.iter().map(|body| body.as_bytes()));
        Ok(())
    }
}

fn delete(bulk: &mut Bulk, deleted: Vec<&Record>) {
    let is_standard = |record: &&Record| record.keep == Keep::Standard;
    let (standard, longer): (Vec<_>, Vec<_>) = deleted.into_iter().partition(is_standard);
    let numbers: Vec<i64> = standard.iter().map(|record| record.seq.0).collect();
    match Dense::of(&numbers) {
        Some(Dense { first, last, bits }) => {
            bulk.change(DELETE_STRETCH, standard.len())
                .bind([first].into_iter())
                .bind([last].into_iter())
                .bind([bits].into_iter());
            keys(bulk, DELETE, &longer);
        }
        None => drop(keys(bulk, DELETE, &[standard, longer].concat())),
    }
}

fn keys<'b>(bulk: &'b mut Bulk, sql: &'static str, records: &[&Record]) -> Columns<'b> {
    bulk.change(sql, records.len())
        .bind(records.iter().map(|record| record.seq.0))
        .bind(records.iter().map(|record| record.keep.code()))
}

fn body(record: &Record) -> Result<&str, Fault> {
    let event = record.event();
    Fields::of(event).strip(record.body.json()).ok_or_else(|| {
        Fault::corrupt(format!("the JSON of event {} is not the canonical one", event.id()))
    })
}

/// The column `links`: where an event is linked, and by which row; where it was once, with no row.
fn pack_links(record: &Record, numbers: &BatchNumbers) -> Vec<u8> {
    let links = record.links.iter().map(|link| (&link.topic, link.seq));
    let left = record.left.iter().map(|topic| (topic, Seq::ZERO));
    let mut bytes = Vec::with_capacity(record.links.len() * LINK_BYTES);
    for (topic, seq) in links.chain(left) {
        bytes.extend(numbers.of(topic).to_be_bytes());
        bytes.extend(seq.0.to_be_bytes());
    }
    bytes
}
