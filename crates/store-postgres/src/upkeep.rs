//! What can leave: events that have aged or are the oldest, and memories.

use std::cmp::Reverse;

use kukuri_core::{Cutoffs, FUTURE_SECONDS_BOUND, Seq, TombstoneKey, TopicId, UnixMillis};
use kukuri_event::UnixSeconds;
use kukuri_store::{Dated, Forgettable, Scope};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::list::{ids, limit};
use crate::numbers::TopicNumbers;
use crate::rows;

/// Whether an event of this kind is a version of something.
macro_rules! has_versions {
    () => {
        "(kind IN (0, 3) OR kind BETWEEN 10000 AND 19999 OR kind BETWEEN 30000 AND 39999)"
    };
}

/// Visible versions are current, hidden ones history. A time that is NULL takes nothing.
const AGED: &str = concat!(
    "SELECT event_id, created_at, seq FROM event_topics WHERE topic_no = $1 AND created_at <= $2
        AND ingested_at <= CASE WHEN kind = 5 THEN $4 WHEN ",
    has_versions!(),
    " THEN $6 ELSE $3 END
    UNION ALL
    SELECT event_id, created_at, NULL FROM hidden_links WHERE topic_no = $1 AND created_at <= $8
        AND ingested_at <= CASE WHEN kind = 5 THEN $4 WHEN ",
    has_versions!(),
    " THEN $5 ELSE $3 END
    LIMIT $7"
);

const OLDEST_OF_TOPIC: &str = concat!(
    "(SELECT event_id, created_at, seq FROM event_topics WHERE topic_no = $1 AND NOT ",
    has_versions!(),
    " ORDER BY created_at, tie LIMIT $2)
    UNION ALL
    (SELECT event_id, created_at, NULL FROM hidden_links WHERE topic_no = $1
        ORDER BY created_at, event_id DESC LIMIT $2)"
);
const CURRENT_OF_TOPIC: &str = concat!(
    "SELECT event_id, created_at, seq FROM event_topics WHERE topic_no = $1 AND ",
    has_versions!(),
    " ORDER BY created_at, tie LIMIT $2"
);

/// State 1 is effective.
const OLDEST: &str = concat!(
    "SELECT event_id, created_at, seq FROM events WHERE NOT (state = 1 AND ",
    has_versions!(),
    ") ORDER BY seq LIMIT $1"
);
const CURRENT: &str = concat!(
    "SELECT event_id, created_at, seq FROM events WHERE state = 1 AND ",
    has_versions!(),
    " ORDER BY seq LIMIT $1"
);

const FORGETTABLE: &str = "SELECT d.event_id FROM event_dedupe d
    WHERE d.first_seen_at < $1 AND NOT EXISTS (
        SELECT FROM events e WHERE e.seq = d.seq)
    ORDER BY d.first_seen_at LIMIT $2";
const FORGETTABLE_TOMBSTONES: &str = "SELECT target_event_id, pubkey FROM deletion_tombstones
    WHERE recorded_at < $1 ORDER BY recorded_at LIMIT $2";

/// An event that was found because it is to leave.
pub(crate) struct Found {
    pub event: Dated,
    /// Of hidden ones the index does not tell.
    pub seq: Option<Seq>,
}

/// An event is taken in a day before its `created_at` at the earliest, so that what is younger than
/// that has not aged.
pub(crate) async fn aged(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    topic: &TopicId,
    cutoffs: &Cutoffs,
    events_max: usize,
) -> Result<Vec<Found>, Fault> {
    let number = numbers.find(connection, &[topic]).await?.pop();
    let Some(number) = number else { return Ok(Vec::new()) };
    let until = |latest: Option<UnixMillis>| {
        latest.map(|latest| latest.seconds().saturating_add(FUTURE_SECONDS_BOUND).0)
    };
    let millis = |cutoff: Option<UnixMillis>| cutoff.map(|cutoff| cutoff.0);
    let found = sqlx::query(AGED)
        .bind(number)
        .bind(until(cutoffs.latest_visible()))
        .bind(millis(cutoffs.regular))
        .bind(millis(cutoffs.deletion))
        .bind(millis(cutoffs.history))
        .bind(millis(cutoffs.current))
        .bind(limit(events_max))
        .bind(until(cutoffs.latest_hidden()));
    found.fetch_all(connection).await?.iter().map(read).collect()
}

fn read(row: &PgRow) -> Result<Found, Fault> {
    let event = (UnixSeconds(row.try_get(1)?), rows::event_id(row.try_get(0)?)?);
    Ok(Found { event, seq: row.try_get::<Option<i64>, _>(2)?.map(Seq) })
}

pub(crate) async fn oldest(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    of: &Scope,
    events_max: usize,
) -> Result<Vec<Found>, Fault> {
    let Scope::Topic(topic) = of else {
        return oldest_of_node(connection, events_max).await;
    };
    let Some(number) = numbers.find(connection, &[topic]).await?.pop() else {
        return Ok(Vec::new());
    };
    let mut oldest = Vec::new();
    for sql in [OLDEST_OF_TOPIC, CURRENT_OF_TOPIC] {
        let left = events_max - oldest.len();
        if left == 0 {
            break;
        }
        let found = sqlx::query(sql).bind(number).bind(limit(left));
        let found = found.fetch_all(&mut *connection).await?;
        let mut found = found.iter().map(read).collect::<Result<Vec<_>, Fault>>()?;
        found.sort_unstable_by_key(|Found { event: (created_at, id), .. }| {
            (*created_at, Reverse(*id))
        });
        oldest.extend(found.into_iter().take(left));
    }
    Ok(oldest)
}

async fn oldest_of_node(
    connection: &mut PgConnection,
    events_max: usize,
) -> Result<Vec<Found>, Fault> {
    let mut oldest = Vec::new();
    for sql in [OLDEST, CURRENT] {
        let left = events_max - oldest.len();
        if left == 0 {
            break;
        }
        let found = sqlx::query(sql).bind(limit(left)).fetch_all(&mut *connection).await?;
        for row in &found {
            oldest.push(read(row)?);
        }
    }
    Ok(oldest)
}

pub(crate) async fn forgettable(
    connection: &mut PgConnection,
    before: UnixMillis,
    max: usize,
) -> Result<Forgettable, Fault> {
    let found = sqlx::query(FORGETTABLE).bind(before.0).bind(limit(max));
    let events = ids(&found.fetch_all(&mut *connection).await?)?;
    let found = sqlx::query(FORGETTABLE_TOMBSTONES).bind(before.0).bind(limit(max));
    let mut tombstones = Vec::new();
    for row in found.fetch_all(connection).await? {
        let target = rows::event_id(row.try_get(0)?)?;
        tombstones.push(TombstoneKey { target, pubkey: rows::pubkey(row.try_get(1)?)? });
    }
    Ok(Forgettable { events, tombstones })
}
