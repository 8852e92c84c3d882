//! The newest events of one topic with their JSON, in one statement: what clients ask for most.

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::moment::{Moment, moment};
use super::stretch::{Asked, Columns, IndexRow};
use super::{Bodies, Wanted};
use crate::error::Fault;
use crate::{list, rows};

/// The conditions only choose whose JSON comes along; what the answer is, the scan says. The event's
/// partition is named by `keep` and `ingested_at`.
const NEWEST: &str = concat!(
    "SELECT h.epoch, h.head, s.tie, s.seq, s.expires_at, s.event_id, s.pubkey, s.created_at, s.kind,
        e.sig, e.body
    FROM ",
    moment!("$6"),
    " LEFT JOIN (
        SELECT *, meets AND count(*) FILTER (WHERE meets)
            OVER (ORDER BY created_at DESC, tie DESC ROWS UNBOUNDED PRECEDING) <= $10 AS shown
        FROM (
            SELECT *, ($7::INTEGER[] IS NULL OR kind = ANY($7))
                AND ($8::BYTEA[] IS NULL OR pubkey = ANY($8))
                AND (expires_at IS NULL OR expires_at > $9) AS meets
            FROM event_topics
            WHERE topic_no = $1 AND (created_at, tie) <= ($2, $3) AND created_at >= $4
            ORDER BY created_at DESC, tie DESC LIMIT $5
        ) AS s
    ) AS s ON TRUE
    LEFT JOIN events e ON s.shown AND e.seq = s.seq AND e.keep = s.keep
        AND e.ingested_at = s.ingested_at"
);

/// The moment, the stretch, and the JSON of the first `bodies_max` events that meet the filter.
pub(super) async fn read(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
    asked: &Asked,
    known: Seq,
    bodies_max: usize,
) -> Result<(Moment, Vec<IndexRow>, Bodies), Fault> {
    let filter = wanted.filter;
    let kinds = filter.kinds.as_ref();
    let kinds = kinds.map(|kinds| kinds.iter().map(|kind| i32::from(kind.0)).collect::<Vec<_>>());
    let authors = filter.authors.as_ref();
    let authors = authors.map(|keys| keys.iter().map(|key| *key.as_bytes()).collect::<Vec<_>>());
    let topic_no = i32::try_from(asked.key).expect("the key of a topic is its number");
    let found = sqlx::query(NEWEST)
        .bind(topic_no)
        .bind(asked.place.0)
        .bind(asked.place.1)
        .bind(filter.since.map_or(i64::MIN, |since| since.0))
        .bind(list::limit(asked.take))
        .bind(known.0)
        .bind(kinds)
        .bind(authors)
        .bind(wanted.now.0)
        .bind(list::limit(bodies_max.min(wanted.limit)));
    let found = found.fetch_all(connection).await?;
    let now = Moment::of(&found, 0)?;
    let (mut stretch, mut bodies) = (Vec::with_capacity(found.len()), Bodies::new());
    for row in &found {
        // The moment comes alone when the stretch is empty.
        let Some(seq) = row.try_get::<Option<i64>, _>(3)?.map(Seq) else { break };
        stretch.push(index_row(row, seq)?);
        if row.try_get::<Option<&[u8]>, _>(10)?.is_some() {
            bodies.insert(seq, rows::json(row, 5)?);
        }
    }
    Ok((now, stretch, bodies))
}

fn index_row(row: &PgRow, seq: Seq) -> Result<IndexRow, Fault> {
    let columns = Columns {
        topic_no: None,
        kind: rows::kind(i64::from(row.try_get::<i32, _>(8)?))?,
        expires_at: row.try_get::<Option<i64>, _>(4)?.map(UnixSeconds),
        id: rows::event_id(row.try_get(5)?)?,
        pubkey: Some(rows::pubkey(row.try_get(6)?)?),
    };
    Ok(IndexRow { place: (row.try_get(7)?, row.try_get(2)?), seq, columns: Some(columns) })
}
