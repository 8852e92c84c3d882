//! The newest events of one topic with their JSON, in one statement: what clients ask for most.

use futures_util::TryStreamExt;
use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use kukuri_store::Hit;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::moment::{Moment, moment, no_moment};
use super::stretch::Place;
use super::{Bodies, Budget, ROWS_PER_HIT_AT_ONCE, Wanted};
use crate::error::Fault;
use crate::{list, rows};

/// Reads so many rows of the topic, and of those that meet the conditions no more than are wanted.
/// `seq` and `keep` name the partition of an event.
const NEWEST: &str = concat!(
    "WITH scanned AS MATERIALIZED (
        SELECT * FROM event_topics
        WHERE topic_no = $1 AND created_at <= $2 AND created_at >= $3
        ORDER BY created_at DESC, tie DESC LIMIT $4
    ), found AS (
        SELECT * FROM scanned
        WHERE ($5::INTEGER[] IS NULL OR kind = ANY($5))
            AND (expires_at IS NULL OR expires_at > $6)
        ORDER BY created_at DESC, tie DESC LIMIT $7
    )
    SELECT h.epoch, h.head, (SELECT count(*) FROM scanned), f.tie, f.seq, f.event_id, f.pubkey,
        f.created_at, f.kind, e.sig, e.body
    FROM ",
    moment!("$8"),
    " LEFT JOIN (
        found f LEFT JOIN events e
            ON e.seq = f.seq AND e.keep = f.keep
    ) ON TRUE"
);

/// Whether the statement tests all conditions that the filter has besides the topic.
pub(super) fn suits(wanted: &Wanted<'_>) -> bool {
    let Wanted { query, filter, .. } = wanted;
    query.after.is_none() && filter.authors.is_none() && filter.other_tags().next().is_none()
}

/// The moment, and all hits with their JSON; `None` in their place if the rows read do not tell.
pub(super) async fn read(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
    topic_no: i32,
    known: Seq,
    budget: &mut Budget,
) -> Result<(Moment, Option<(Vec<Hit>, Bodies)>), Fault> {
    let filter = wanted.filter;
    let kinds = filter.kinds.as_ref();
    let kinds = kinds.map(|kinds| kinds.iter().map(|kind| i32::from(kind.0)).collect::<Vec<_>>());
    // One more than is wanted tells whether the last one has ties.
    let take_hits = wanted.limit.saturating_add(1);
    let take = match kinds {
        None => take_hits,
        Some(_) => wanted.limit.saturating_mul(ROWS_PER_HIT_AT_ONCE).max(take_hits),
    };
    let take = take.min(budget.rows.saturating_add(1));
    let mut found = sqlx::query(NEWEST)
        .bind(topic_no)
        .bind(filter.until.map_or(i64::MAX, |until| until.0))
        .bind(filter.since.map_or(i64::MIN, |since| since.0))
        .bind(list::limit(take))
        .bind(kinds)
        .bind(wanted.now.0)
        .bind(list::limit(take_hits))
        .bind(known.0)
        .fetch(connection);
    let (mut first, mut places) = (None, Vec::new());
    let (mut hits, mut bodies) = (Vec::new(), Bodies::new());
    // Rows are worked on as they come, while the server makes the next ones.
    while let Some(row) = found.try_next().await? {
        if first.is_none() {
            first = Some((Moment::read(&row, 0)?, row.try_get::<i64, _>(2)?));
        }
        // The moment comes alone when nothing is found.
        let Some(hit) = hit(&row)? else { continue };
        if row.try_get::<Option<&[u8]>, _>(10)?.is_none() {
            return Err(Fault::corrupt(format!("no row for event {}; run doctor", hit.id)));
        }
        places.push((hit.created_at.0, row.try_get(3)?));
        hits.push(hit);
        bodies.insert(hit.event, rows::json(&row, 5)?);
    }
    let (now, scanned) = first.ok_or_else(no_moment)?;
    let scanned = usize::try_from(scanned).unwrap_or(0);
    budget.spend(scanned);
    places.sort_unstable_by(|a, b| b.cmp(a));
    let complete = ends(&places, wanted.limit) || scanned < take && hits.len() < take_hits;
    Ok((now, complete.then_some((hits, bodies))))
}

/// Whether nothing after these places can belong to the first `limit`: ids of one place would have
/// to be compared in full.
fn ends(places: &[Place], limit: usize) -> bool {
    places.get(limit).is_some_and(|next| *next < places[limit - 1])
}

fn hit(row: &PgRow) -> Result<Option<Hit>, Fault> {
    let Some(seq) = row.try_get::<Option<i64>, _>(4)? else { return Ok(None) };
    let id = rows::event_id(row.try_get(5)?)?;
    Ok(Some(Hit { event: Seq(seq), created_at: UnixSeconds(row.try_get(7)?), id }))
}
