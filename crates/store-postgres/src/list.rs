//! The small reads: bodies, topics, the events of a topic, events whose time has come.

use std::collections::HashMap;

use kukuri_core::{NodeTopic, Seq, TopicId, Usage};
use kukuri_event::{EventId, UnixSeconds};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::rows::{self, topics_and_usage};

macro_rules! body_columns {
    () => {
        "seq, event_id, pubkey, created_at, kind, sig, body"
    };
}

/// State 1 is effective. Few events are kept longer, so these are looked for among what is left. Each number is
/// looked for in its own partition; the least and the greatest say which partitions need not be opened at all.
const BODIES: &str = concat!(
    "WITH standard AS MATERIALIZED (SELECT ",
    body_columns!(),
    " FROM UNNEST($1) AS k (number) JOIN events ON seq = number
        WHERE keep = 0 AND state = 1 AND seq >= $2 AND seq <= $3)
    SELECT * FROM standard UNION ALL SELECT ",
    body_columns!(),
    " FROM events WHERE keep = 1 AND state = 1
        AND seq = ANY(ARRAY(SELECT UNNEST($1) EXCEPT SELECT seq FROM standard))"
);

const TOPICS: &str = concat!("SELECT ", topics_and_usage!(), " ORDER BY s.topic_id");

const LINKED: &str = "SELECT event_id FROM event_topics WHERE topic_no = $1
    UNION ALL
    SELECT event_id FROM hidden_links WHERE topic_no = $1
    LIMIT $2";

const EXPIRED: &str = "SELECT event_id FROM expirations
    WHERE expires_at <= $1 ORDER BY expires_at, seq LIMIT $2";

/// A LIMIT of SQL.
pub(crate) fn limit(entries_max: usize) -> i64 {
    i64::try_from(entries_max).unwrap_or(i64::MAX)
}

pub(crate) async fn bodies(
    connection: &mut PgConnection,
    events: &[Seq],
) -> Result<Vec<Option<String>>, Fault> {
    let mut found = HashMap::with_capacity(events.len());
    let seqs: Vec<i64> = events.iter().map(|seq| seq.0).collect();
    let (Some(least), Some(greatest)) = (seqs.iter().min().copied(), seqs.iter().max().copied())
    else {
        return Ok(Vec::new());
    };
    let rows = sqlx::query(BODIES).bind(seqs).bind(least).bind(greatest);
    for row in rows.fetch_all(connection).await? {
        found.insert(Seq(row.try_get(0)?), rows::json(&row, 1)?);
    }
    // A number may have been asked for twice.
    Ok(events.iter().map(|seq| found.get(seq).cloned()).collect())
}

pub(crate) async fn topics(
    connection: &mut PgConnection,
) -> Result<Vec<(NodeTopic, Usage)>, Fault> {
    let found = sqlx::query(TOPICS).fetch_all(connection).await?;
    found.iter().map(rows::topic_and_usage).collect()
}

pub(crate) async fn linked(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    topic: &TopicId,
    events_max: usize,
) -> Result<Vec<EventId>, Fault> {
    let Some(number) = numbers.find(connection, &[topic]).await?.pop() else {
        return Ok(Vec::new());
    };
    let found = sqlx::query(LINKED).bind(number).bind(limit(events_max));
    ids(&found.fetch_all(connection).await?)
}

pub(crate) async fn expired(
    connection: &mut PgConnection,
    now: UnixSeconds,
    events_max: usize,
) -> Result<Vec<EventId>, Fault> {
    let found = sqlx::query(EXPIRED).bind(now.0).bind(limit(events_max));
    ids(&found.fetch_all(connection).await?)
}

pub(crate) fn ids(found: &[PgRow]) -> Result<Vec<EventId>, Fault> {
    found.iter().map(|row| rows::event_id(row.try_get(0)?)).collect()
}
