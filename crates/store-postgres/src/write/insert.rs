//! The rows that nearly every batch adds. One statement writes them all: a round trip costs as much
//! as several events. Each table gets its rows in the order of its indexes, which then are entered
//! page by page.

use kukuri_core::{Dedupe, FeedRow, Record};
use kukuri_event::EventId;
use sqlx::postgres::PgConnection;

use super::Bulk;
use super::events::pack_links;
use super::index::{LinkRow, TagRow};
use crate::error::Fault;
use crate::numbers::BatchNumbers;
use crate::query::tie;

const INSERT: &str = "
    WITH seen AS (
        INSERT INTO event_dedupe (event_id, first_seen_at, last_seen_at, seen_count, seq)
        SELECT UNNEST($1::BYTEA[]), UNNEST($2::BIGINT[]), UNNEST($3::BIGINT[]),
            UNNEST($4::BIGINT[]), UNNEST($5::BIGINT[])
    ), stored AS (
        INSERT INTO events (seq, created_at, ingested_at, expires_at, kind, keep, state, event_id,
            pubkey, links, body)
        SELECT UNNEST($6::BIGINT[]), UNNEST($7::BIGINT[]), UNNEST($8::BIGINT[]),
            UNNEST($9::BIGINT[]), UNNEST($10::INTEGER[]), UNNEST($11::SMALLINT[]),
            UNNEST($12::SMALLINT[]), UNNEST($13::BYTEA[]), UNNEST($14::BYTEA[]),
            UNNEST($15::BYTEA[]), UNNEST($16::BYTEA[])
    ), linked AS (
        INSERT INTO event_topics (topic, created_at, tie, author, event, link, expires_at, kind,
            event_id, pubkey)
        SELECT UNNEST($17::INTEGER[]), UNNEST($18::BIGINT[]), UNNEST($19::BIGINT[]),
            UNNEST($20::BIGINT[]), UNNEST($21::BIGINT[]), UNNEST($22::BIGINT[]),
            UNNEST($23::BIGINT[]), UNNEST($24::INTEGER[]), UNNEST($25::BYTEA[]),
            UNNEST($26::BYTEA[])
    ), tagged AS (
        INSERT INTO event_tags (key, created_at, tie, event, tag, value)
        SELECT UNNEST($27::BIGINT[]), UNNEST($28::BIGINT[]), UNNEST($29::BIGINT[]),
            UNNEST($30::BIGINT[]), UNNEST($31::SMALLINT[]), UNNEST($32::BYTEA[])
    )
    INSERT INTO events_outbox (seq, created_at, ingested_at, topic, kind, via, op, source, reason,
        event_id, pubkey, d, prior)
    SELECT UNNEST($33::BIGINT[]), UNNEST($34::BIGINT[]), UNNEST($35::BIGINT[]),
        UNNEST($36::INTEGER[]), UNNEST($37::INTEGER[]), UNNEST($38::INTEGER[]),
        UNNEST($39::SMALLINT[]), UNNEST($40::SMALLINT[]), UNNEST($41::SMALLINT[]),
        UNNEST($42::BYTEA[]), UNNEST($43::BYTEA[]), UNNEST($44::BYTEA[]), UNNEST($45::BYTEA[])";

pub(super) struct New<'a> {
    pub dedupe: Vec<(&'a EventId, &'a Dedupe)>,
    pub events: Vec<&'a Record>,
    pub links: Vec<LinkRow<'a>>,
    pub tags: Vec<TagRow<'a>>,
    pub rows: &'a [FeedRow],
}

impl New<'_> {
    pub async fn insert(
        mut self,
        connection: &mut PgConnection,
        numbers: &BatchNumbers,
    ) -> Result<(), Fault> {
        if self.dedupe.is_empty() && self.rows.is_empty() && self.events.is_empty() {
            return Ok(());
        }
        self.events.sort_unstable_by_key(|record| record.seq);
        self.links.sort_unstable_by_key(|row| (row.topic, row.link.seq));
        self.tags.sort_unstable_by_key(|tag| tag.key);
        let bulk = Bulk::new(INSERT, self.rows.len());
        let bulk = bind_dedupe(bulk, &self.dedupe);
        let bulk = bind_events(bulk, &self.events, numbers);
        let bulk = bind_links(bulk, &self.links);
        let bulk = bind_tags(bulk, &self.tags);
        bind_rows(bulk, self.rows, numbers).run_always(connection).await
    }
}

pub(super) fn bind_dedupe<'q>(bulk: Bulk<'q>, rows: &[(&EventId, &Dedupe)]) -> Bulk<'q> {
    bulk.bind(rows.iter().map(|(id, _)| *id.as_bytes()))
        .bind(rows.iter().map(|(_, row)| row.first_seen_at.0))
        .bind(rows.iter().map(|(_, row)| row.last_seen_at.0))
        .bind(rows.iter().map(|(_, row)| row.seen_count.cast_signed()))
        .bind(rows.iter().map(|(_, row)| row.seq.map(|seq| seq.0)))
}

fn bind_events<'q>(bulk: Bulk<'q>, rows: &[&'q Record], numbers: &BatchNumbers) -> Bulk<'q> {
    bulk.bind(rows.iter().map(|record| record.seq.0))
        .bind(rows.iter().map(|record| record.event().created_at().0))
        .bind(rows.iter().map(|record| record.ingested_at.0))
        .bind(rows.iter().map(|record| record.expires_at().map(|end| end.0)))
        .bind(rows.iter().map(|record| i32::from(record.event().kind().0)))
        .bind(rows.iter().map(|record| record.keep.code()))
        .bind(rows.iter().map(|record| record.state.code()))
        .bind(rows.iter().map(|record| *record.event().id().as_bytes()))
        .bind(rows.iter().map(|record| *record.event().pubkey().as_bytes()))
        .bind(rows.iter().map(|record| pack_links(record, numbers)))
        .bind(rows.iter().map(|record| record.body.json().as_bytes()))
}

fn bind_links<'q>(bulk: Bulk<'q>, rows: &[LinkRow<'q>]) -> Bulk<'q> {
    let events = || rows.iter().map(|row| row.record.event());
    bulk.bind(rows.iter().map(|row| row.topic))
        .bind(events().map(|event| event.created_at().0))
        .bind(events().map(|event| tie(event.id())))
        .bind(events().map(|event| event.pubkey().prefix()))
        .bind(rows.iter().map(|row| row.record.seq.0))
        .bind(rows.iter().map(|row| row.link.seq.0))
        .bind(rows.iter().map(|row| row.record.expires_at().map(|end| end.0)))
        .bind(events().map(|event| i32::from(event.kind().0)))
        .bind(events().map(|event| *event.id().as_bytes()))
        .bind(events().map(|event| *event.pubkey().as_bytes()))
}

pub(super) fn bind_tags<'q>(bulk: Bulk<'q>, rows: &[TagRow<'q>]) -> Bulk<'q> {
    bulk.bind(rows.iter().map(|tag| tag.key))
        .bind(rows.iter().map(|tag| tag.record.event().created_at().0))
        .bind(rows.iter().map(|tag| tie(tag.record.event().id())))
        .bind(rows.iter().map(|tag| tag.record.seq.0))
        .bind(rows.iter().map(|tag| i16::from(tag.letter.as_byte())))
        .bind(rows.iter().map(|tag| tag.value.as_bytes()))
}

fn bind_rows<'q>(bulk: Bulk<'q>, rows: &'q [FeedRow], numbers: &BatchNumbers) -> Bulk<'q> {
    let prior = |row: &FeedRow| -> Vec<u8> {
        row.prior.iter().flat_map(|topic| numbers.of(topic).to_be_bytes()).collect()
    };
    bulk.bind(rows.iter().map(|row| row.seq.0))
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
        .bind(rows.iter().map(prior))
}
