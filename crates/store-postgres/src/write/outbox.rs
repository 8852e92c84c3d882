//! The rows of the feed.

use kukuri_core::FeedRow;

use super::Bulk;
use crate::numbers::BatchNumbers;

const INSERT: &str = "INSERT INTO events_outbox (seq, created_at, ingested_at, topic_no, kind,
        via_topic_no, op, source, reason, event_id, pubkey, effective_d, prior)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[]), UNNEST($4::INTEGER[]),
        UNNEST($5::INTEGER[]), UNNEST($6::INTEGER[]), UNNEST($7::SMALLINT[]),
        UNNEST($8::SMALLINT[]), UNNEST($9::SMALLINT[]), UNNEST($10::BYTEA[]),
        UNNEST($11::BYTEA[]), UNNEST($12::BYTEA[]), UNNEST($13::BYTEA[])";

pub(super) fn rows(bulk: &mut Bulk, rows: &[FeedRow], numbers: &BatchNumbers) {
    let prior = |row: &FeedRow| -> Vec<u8> {
        row.prior.iter().flat_map(|topic| numbers.of(topic).to_be_bytes()).collect()
    };
    bulk.insert(INSERT, rows.len())
        .bind(rows.iter().map(|row| row.seq.0))
        .bind(rows.iter().map(|row| row.created_at.0))
        .bind(rows.iter().map(|row| row.ingested_at.0))
        .bind(rows.iter().map(|row| numbers.of(&row.topic_id)))
        .bind(rows.iter().map(|row| i32::from(row.kind.0)))
        .bind(rows.iter().map(|row| row.via.as_ref().map(|via| numbers.of(via))))
        .bind(rows.iter().map(|row| row.op.code()))
        .bind(rows.iter().map(|row| row.source.code()))
        .bind(rows.iter().map(|row| row.reason.map(|reason| reason.code())))
        .bind(rows.iter().map(|row| *row.event_id.as_bytes()))
        .bind(rows.iter().map(|row| *row.pubkey.as_bytes()))
        .bind(rows.iter().map(|row| row.effective_key.as_ref().map(|key| key.d.as_bytes())))
        .bind(rows.iter().map(prior));
}
