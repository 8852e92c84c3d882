//! Loading the keys that the rules ask for: one statement, however many they are, and another one
//! for events that are there.

use std::collections::BTreeSet;

use kukuri_core::{Facts, NodeKey, ReadSet, Record, TopicId};
use kukuri_event::EventId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::rows::{self, columns, record_columns};
use crate::subscriptions::Topics;

const KEYS: &str = concat!(
    "SELECT ",
    columns!(dedupe),
    " FROM event_dedupe d WHERE d.id = ANY($1)
    UNION ALL SELECT ",
    columns!(tombstone),
    " FROM (SELECT UNNEST($2::BYTEA[]) AS target_event_id, UNNEST($3::BYTEA[]) AS pubkey) AS k
    JOIN deletion_tombstones t ON t.target_event_id = k.target_event_id AND t.pubkey = k.pubkey
    UNION ALL SELECT ",
    columns!(version),
    " FROM (SELECT UNNEST($4::INTEGER[]) AS kind, UNNEST($5::BYTEA[]) AS pubkey,
        UNNEST($6::BYTEA[]) AS d) AS k
    JOIN current_versions v ON v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d
    UNION ALL SELECT ",
    columns!(usage),
    " FROM topic_usage u WHERE u.topic_no = ANY($7)
    UNION ALL SELECT ",
    columns!(node),
    " FROM node_state n WHERE $8"
);

/// Dedupe says in which partition each would be.
const RECORDS: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM (SELECT UNNEST($1::BIGINT[]) AS seq, UNNEST($2::BIGINT[]) AS ingested_at) AS k
    JOIN events e ON e.seq = k.seq AND e.ingested_at = k.ingested_at"
);

/// Loads `needs` on a connection whose transaction decides as of when, in which the subscriptions
/// are those of `topics_version`.
pub(crate) async fn load(
    connection: &mut PgConnection,
    topics: &Topics,
    topics_version: i64,
    needs: &ReadSet,
) -> Result<Facts, Fault> {
    let mut facts = Facts::absent(needs);
    if needs.is_empty() {
        return Ok(facts);
    }
    load_keys(connection, &topics.numbers, needs, &mut facts).await?;
    load_records(connection, &topics.numbers, &mut facts).await?;
    if !needs.topics.is_empty() {
        let subscriptions = topics.subscriptions.at(connection, topics_version).await?;
        for (topic, row) in &mut facts.topics {
            *row = subscriptions.get(topic).cloned();
        }
    }
    Ok(facts)
}

async fn load_keys(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    needs: &ReadSet,
    facts: &mut Facts,
) -> Result<(), Fault> {
    let topics: Vec<&TopicId> = needs.topics.iter().collect();
    let topics = numbers.find(connection, &topics).await?;
    let (tombstones, versions) = (&needs.tombstones, &needs.versions);
    let found = sqlx::query(KEYS)
        .bind(column(needs.events.iter().map(EventId::prefix)))
        .bind(column(tombstones.iter().map(|key| *key.target.as_bytes())))
        .bind(column(tombstones.iter().map(|key| *key.pubkey.as_bytes())))
        .bind(column(versions.iter().map(|key| i32::from(key.kind.0))))
        .bind(column(versions.iter().map(|key| *key.pubkey.as_bytes())))
        .bind(column(versions.iter().map(|key| key.d.as_bytes())))
        .bind(topics)
        .bind(needs.node.is_some());
    for row in found.fetch_all(connection).await? {
        match row.try_get(0)? {
            rows::DEDUPE => {
                let (key, row) = rows::dedupe(&row)?;
                // Others may share the first bytes of an id.
                facts.dedupe.entry(key).and_modify(|known| *known = Some(row));
            }
            rows::TOMBSTONE => {
                let (key, row) = rows::tombstone(&row)?;
                facts.tombstones.insert(key, Some(row));
            }
            rows::VERSION => {
                let (key, row) = rows::version(&row)?;
                facts.versions.insert(key, Some(row));
            }
            rows::USAGE => {
                let (number, row) = rows::usage(&row)?;
                facts.usage.insert(numbers.id(number)?, Some(row));
            }
            rows::NODE => {
                facts.node.insert(NodeKey, Some(rows::node_state(&row)?));
            }
            other => return Err(Fault::corrupt(format!("a row of the unknown sort {other}"))),
        }
    }
    Ok(())
}

fn column<T>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect()
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
    let found = sqlx::query(RECORDS).bind(seqs).bind(times).fetch_all(&mut *connection).await?;
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
