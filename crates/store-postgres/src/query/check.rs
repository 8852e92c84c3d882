//! Checking candidates in full, by the one function that says what "matches" means.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_core::{Record, Seq};
use kukuri_event::{EventId, matches};
use kukuri_store::Hit;
use sqlx::postgres::PgConnection;

use super::Wanted;
use crate::error::Fault;
use crate::facts::read_records;
use crate::numbers::TopicNumbers;
use crate::rows::record_columns;

/// State 1 is effective.
const BY_ID: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM event_dedupe d JOIN events e ON e.seq = d.seq AND e.ingested_at = d.first_seen_at
      WHERE d.event_id = ANY($1) AND e.state = 1"
);

const BY_SEQ: &str =
    concat!("SELECT ", record_columns!(), " FROM events e WHERE e.seq = ANY($1) AND e.state = 1");

/// Those of the events with these ids that match.
pub(super) async fn by_id(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    ids: Vec<EventId>,
) -> Result<Vec<Hit>, Fault> {
    let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
    let found = sqlx::query(BY_ID).bind(ids).fetch_all(&mut *connection).await?;
    let records = read_records(connection, numbers, &found).await?;
    let hits = records.iter().filter(|record| holds(wanted, record));
    Ok(hits.map(hit).collect())
}

/// Keeps those of the candidates that match.
pub(super) async fn retain(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    candidates: &mut BTreeMap<Seq, super::scan::Candidate>,
    new: &BTreeSet<Seq>,
) -> Result<(), Fault> {
    if new.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = new.iter().map(|seq| seq.0).collect();
    let found = sqlx::query(BY_SEQ).bind(seqs).fetch_all(&mut *connection).await?;
    let records = read_records(connection, numbers, &found).await?;
    let good = records.iter().filter(|record| holds(wanted, record));
    let good: BTreeSet<Seq> = good.map(|record| record.seq).collect();
    candidates.retain(|seq, _| !new.contains(seq) || good.contains(seq));
    Ok(())
}

fn holds(wanted: &Wanted<'_>, record: &Record) -> bool {
    let links: Vec<&kukuri_core::TopicId> = record.topics().collect();
    record.expires_at().is_none_or(|end| end > wanted.now)
        && matches(wanted.filter, record.event(), &links)
}

fn hit(record: &Record) -> Hit {
    Hit { event: record.seq, created_at: record.event().created_at(), id: record.event().id() }
}
