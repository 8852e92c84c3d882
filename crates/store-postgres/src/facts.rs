//! Loading the keys that the rules ask for: a statement per table, whatever their number.

use std::collections::BTreeSet;

use kukuri_core::{Facts, ReadSet, Record, TombstoneKey, TopicId, VersionKey};
use kukuri_event::EventId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::rows::{self, dedupe_columns, record_columns, tombstone_columns, version_columns};
use crate::subscriptions::Topics;

const DEDUPE: &str =
    concat!("SELECT ", dedupe_columns!(), " FROM event_dedupe WHERE event_id = ANY($1)");

/// Dedupe says in which partition each would be.
const RECORDS: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::BIGINT[]) AS ingested_at) AS k
      JOIN events e ON e.seq = k.seq AND e.ingested_at = k.ingested_at"
);

const VERSIONS: &str = concat!(
    "SELECT ",
    version_columns!(),
    " FROM (SELECT UNNEST($1::INTEGER[]) AS kind, UNNEST($2::BYTEA[]) AS pubkey,
            UNNEST($3::BYTEA[]) AS d) AS k
      JOIN current_versions v ON v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d"
);

const TOMBSTONES: &str = concat!(
    "SELECT ",
    tombstone_columns!(),
    " FROM (SELECT UNNEST($1::BYTEA[]) AS target, UNNEST($2::BYTEA[]) AS pubkey) AS k
      JOIN deletion_tombstones t ON t.target = k.target AND t.pubkey = k.pubkey"
);

const USAGE: &str = "SELECT topic, events, bytes FROM topic_usage WHERE topic = ANY($1)";

/// Loads `needs` on a connection whose transaction decides as of when, in which the subscriptions
/// are those of `topics_version`.
pub(crate) async fn load(
    connection: &mut PgConnection,
    topics: &Topics,
    topics_version: i64,
    needs: &ReadSet,
) -> Result<Facts, Fault> {
    let numbers = &topics.numbers;
    let mut facts = Facts::absent(needs);
    load_dedupe(connection, &needs.events, &mut facts).await?;
    load_records(connection, numbers, &mut facts).await?;
    load_tombstones(connection, &needs.tombstones, &mut facts).await?;
    load_versions(connection, &needs.versions, &mut facts).await?;
    load_topics(connection, topics, topics_version, &mut facts).await?;
    Ok(facts)
}

async fn load_dedupe(
    connection: &mut PgConnection,
    events: &BTreeSet<EventId>,
    facts: &mut Facts,
) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    let ids: Vec<&[u8]> = events.iter().map(|id| id.as_bytes().as_slice()).collect();
    for row in sqlx::query(DEDUPE).bind(ids).fetch_all(connection).await? {
        let (id, row) = rows::dedupe(&row)?;
        facts.dedupe.insert(id, Some(row));
    }
    Ok(())
}

/// The records of the ids that dedupe knows.
async fn load_records(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    facts: &mut Facts,
) -> Result<(), Fault> {
    let stored = facts.dedupe.values().flatten();
    let stored = stored.filter_map(|row| Some((row.seq?.0, row.first_seen_at.0)));
    let (seqs, times): (Vec<i64>, Vec<i64>) = stored.unzip();
    if seqs.is_empty() {
        return Ok(());
    }
    let found = sqlx::query(RECORDS).bind(seqs).bind(times);
    let found = found.fetch_all(&mut *connection).await?;
    for record in read_records(connection, numbers, &found).await? {
        facts.records.insert(record.event().id(), Some(record));
    }
    Ok(())
}

/// Reads rows of records, learning what topics they speak of.
pub(crate) async fn read_records(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    found: &[PgRow],
) -> Result<Vec<Record>, Fault> {
    let mut topics = BTreeSet::new();
    for row in found {
        let links: &[u8] = row.try_get(4)?;
        topics.extend(rows::raw_links(links).map(|(number, _)| number));
    }
    numbers.learn(connection, topics).await?;
    found.iter().map(|row| rows::record(row, numbers)).collect()
}

async fn load_tombstones(
    connection: &mut PgConnection,
    keys: &BTreeSet<TombstoneKey>,
    facts: &mut Facts,
) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let targets: Vec<&[u8]> = keys.iter().map(|key| key.target.as_bytes().as_slice()).collect();
    let pubkeys: Vec<&[u8]> = keys.iter().map(|key| key.pubkey.as_bytes().as_slice()).collect();
    let found = sqlx::query(TOMBSTONES).bind(targets).bind(pubkeys);
    for row in found.fetch_all(connection).await? {
        let (key, tombstone) = rows::tombstone(&row)?;
        facts.tombstones.insert(key, Some(tombstone));
    }
    Ok(())
}

async fn load_versions(
    connection: &mut PgConnection,
    keys: &BTreeSet<VersionKey>,
    facts: &mut Facts,
) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let kinds: Vec<i32> = keys.iter().map(|key| i32::from(key.kind.0)).collect();
    let pubkeys: Vec<&[u8]> = keys.iter().map(|key| key.pubkey.as_bytes().as_slice()).collect();
    let ds: Vec<&[u8]> = keys.iter().map(|key| key.d.as_bytes()).collect();
    let found = sqlx::query(VERSIONS).bind(kinds).bind(pubkeys).bind(ds);
    for row in found.fetch_all(connection).await? {
        let (key, version) = rows::version(&row)?;
        facts.versions.insert(key, Some(version));
    }
    Ok(())
}

async fn load_topics(
    connection: &mut PgConnection,
    topics: &Topics,
    topics_version: i64,
    facts: &mut Facts,
) -> Result<(), Fault> {
    if facts.topics.is_empty() {
        return Ok(());
    }
    let subscriptions = topics.subscriptions.at(connection, topics_version).await?;
    for (topic, row) in &mut facts.topics {
        *row = subscriptions.get(topic).cloned();
    }
    let wanted: Vec<&TopicId> = facts.usage.keys().collect();
    let numbers = topics.numbers.find(connection, &wanted).await?;
    let found = sqlx::query(USAGE).bind(numbers).fetch_all(connection).await?;
    for row in found {
        let topic = topics.numbers.id(row.try_get(0)?)?;
        facts.usage.insert(topic, Some(rows::usage(row.try_get(1)?, row.try_get(2)?)));
    }
    Ok(())
}
