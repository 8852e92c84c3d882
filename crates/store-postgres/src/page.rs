//! Walking the raw state, table by table.

use kukuri_core::{NodeKey, TombstoneKey, VersionKey};
use kukuri_store::{Entry, Place};
use sqlx::postgres::PgConnection;

use crate::error::Fault;
use crate::facts::read_records;
use crate::numbers::TopicNumbers;
use crate::rows::{self, columns, record_columns, topics_and_usage};
use crate::{feed, list};

const RECORDS: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM events e WHERE e.seq > $1 ORDER BY e.seq LIMIT $2"
);

const DEDUPE: &str = concat!(
    "SELECT ",
    columns!(dedupe),
    " FROM event_dedupe d WHERE d.id >= $1 AND d.event_id > $2 ORDER BY d.id, d.event_id LIMIT $3"
);

const VERSIONS: &str = concat!(
    "SELECT ",
    columns!(version),
    " FROM current_versions v WHERE (v.kind, v.pubkey, v.d) > ($1, $2, $3)
      ORDER BY v.kind, v.pubkey, v.d LIMIT $4"
);

const TOMBSTONES: &str = concat!(
    "SELECT ",
    columns!(tombstone),
    " FROM deletion_tombstones t WHERE (t.target_event_id, t.pubkey) > ($1, $2)
      ORDER BY t.target_event_id, t.pubkey LIMIT $3"
);

const TOPICS: &str =
    concat!("SELECT ", topics_and_usage!(), " WHERE s.topic_id > $1 ORDER BY s.topic_id LIMIT $2");

const NODE: &str = concat!("SELECT ", columns!(node), " FROM node_state n LIMIT $1");

/// The entries after a place. A missing key is less than every key: no bytes, or a negative number.
pub(crate) async fn page(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    after: Place,
    entries_max: usize,
) -> Result<Vec<Entry>, Fault> {
    let limit = list::limit(entries_max);
    match after {
        Place::Records(after) => {
            let found = sqlx::query(RECORDS).bind(after.map_or(-1, |seq| seq.0)).bind(limit);
            let found = found.fetch_all(&mut *connection).await?;
            let records = read_records(connection, numbers, &found, 0).await?;
            Ok(records.into_iter().map(Entry::Record).collect())
        }
        Place::Dedupe(after) => {
            let id = after.map_or(i64::MIN, |after| after.prefix());
            let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
            let found = sqlx::query(DEDUPE).bind(id).bind(after).bind(limit);
            let found = found.fetch_all(connection).await?;
            let entry = |row| rows::dedupe(row).map(|(id, row)| Entry::Dedupe(id, row));
            found.iter().map(entry).collect()
        }
        Place::Versions(after) => versions(connection, after, limit).await,
        Place::Tombstones(after) => tombstones(connection, after, limit).await,
        Place::Topics(after) => {
            let after = after.map_or(String::new(), |topic| topic.to_string());
            let found = sqlx::query(TOPICS).bind(after).bind(limit).fetch_all(connection).await?;
            let entry = |row| {
                let (topic, usage) = rows::topic_and_usage(row)?;
                Ok(Entry::Topic(topic, usage))
            };
            found.iter().map(entry).collect()
        }
        Place::Node(Some(NodeKey)) => Ok(Vec::new()),
        Place::Node(None) => {
            let found = sqlx::query(NODE).bind(limit).fetch_all(connection).await?;
            found.iter().map(|row| rows::node_state(row).map(Entry::Node)).collect()
        }
        Place::Feed(after) => {
            let after = after.map_or(-1, |seq| seq.0);
            let rows = feed::read(connection, numbers, after, entries_max).await?;
            Ok(rows.into_iter().map(Entry::Row).collect())
        }
    }
}

async fn versions(
    connection: &mut PgConnection,
    after: Option<VersionKey>,
    limit: i64,
) -> Result<Vec<Entry>, Fault> {
    let kind = after.as_ref().map_or(-1, |key| i32::from(key.kind.0));
    let pubkey = after.as_ref().map_or(&[][..], |key| key.pubkey.as_bytes());
    let d = after.as_ref().map_or(&[][..], |key| key.d.as_bytes());
    let found = sqlx::query(VERSIONS).bind(kind).bind(pubkey).bind(d).bind(limit);
    let found = found.fetch_all(connection).await?;
    let entry = |row| rows::version(row).map(|(key, version)| Entry::Version(key, version));
    found.iter().map(entry).collect()
}

async fn tombstones(
    connection: &mut PgConnection,
    after: Option<TombstoneKey>,
    limit: i64,
) -> Result<Vec<Entry>, Fault> {
    let target = after.as_ref().map_or(&[][..], |key| key.target.as_bytes());
    let pubkey = after.as_ref().map_or(&[][..], |key| key.pubkey.as_bytes());
    let found = sqlx::query(TOMBSTONES).bind(target).bind(pubkey).bind(limit);
    let found = found.fetch_all(connection).await?;
    let entry = |row| rows::tombstone(row).map(|(key, row)| Entry::Tombstone(key, row));
    found.iter().map(entry).collect()
}
