//! Checking candidates in full, by the one function that says what "matches" means.

use std::collections::BTreeSet;

use kukuri_core::{Record, Seq};
use kukuri_event::{EventId, matches};
use kukuri_store::Hit;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::moment::{Moment, moment};
use super::scan::Scan;
use super::{Bodies, Wanted};
use crate::error::Fault;
use crate::facts::read_records;
use crate::numbers::TopicNumbers;
use crate::rows::record_columns;

/// The moment comes alone when nothing is found. State 1 is effective.
const BY_ID: &str = concat!(
    "SELECT ",
    record_columns!(),
    ", h.epoch, h.head FROM ",
    moment!("$2"),
    " LEFT JOIN (
        event_dedupe d JOIN events e ON e.seq = d.seq
    ) ON d.id = ANY($1) AND d.event_id = ANY($3) AND e.state = 1"
);

/// Each number is looked for in its own partition.
const BY_SEQ: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM UNNEST($1) AS k (number) JOIN events e ON e.seq = k.number
    WHERE e.state = 1 AND e.seq >= $2 AND e.seq <= $3"
);

/// The moment, and those of the events with these ids that match, with their JSON.
pub(super) async fn by_id(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    wanted: &Wanted<'_>,
    ids: Vec<EventId>,
    known: Seq,
) -> Result<(Moment, Vec<Hit>, Bodies), Fault> {
    let prefixes: Vec<i64> = ids.iter().map(EventId::prefix).collect();
    let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
    let found = sqlx::query(BY_ID).bind(prefixes).bind(known.0).bind(ids);
    let mut found = found.fetch_all(&mut *connection).await?;
    let now = Moment::of(&found, 11)?;
    found.retain(|row| row.try_get::<Option<i64>, _>(0).is_ok_and(|seq| seq.is_some()));
    let records = read_records(connection, numbers, &found, 0).await?;
    let found = || records.iter().filter(|record| holds(wanted, record));
    let bodies = found().map(|record| (record.seq, record.body.json().to_owned()));
    Ok((now, found().map(hit).collect(), bodies.collect()))
}

/// Keeps those of the new candidates that match.
pub(super) async fn retain(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    scan: &mut Scan<'_>,
    new: &BTreeSet<Seq>,
) -> Result<(), Fault> {
    let (Some(least), Some(greatest)) = (new.first(), new.last()) else { return Ok(()) };
    let seqs: Vec<i64> = new.iter().map(|seq| seq.0).collect();
    let found = sqlx::query(BY_SEQ).bind(seqs).bind(least.0).bind(greatest.0);
    let found = found.fetch_all(&mut *connection).await?;
    let records = read_records(connection, numbers, &found, 0).await?;
    let good = records.iter().filter(|record| holds(scan.wanted, record));
    let good: BTreeSet<Seq> = good.map(|record| record.seq).collect();
    scan.retain(|seq| !new.contains(seq) || good.contains(seq));
    Ok(())
}

fn holds(wanted: &Wanted<'_>, record: &Record) -> bool {
    let links: Vec<&kukuri_core::TopicId> = record.topics().collect();
    record.expires_at().is_none_or(|end| end > wanted.now)
        && wanted.query.is_ahead(&hit(record))
        && matches(wanted.filter, record.event(), &links)
}

fn hit(record: &Record) -> Hit {
    Hit { event: record.seq, created_at: record.event().created_at(), id: record.event().id() }
}
