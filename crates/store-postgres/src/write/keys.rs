//! Dedupe rows, versions and tombstones: tables with one row per key.

use kukuri_core::{Change, Dedupe, Mark, Tombstone, TombstoneKey, Version, VersionKey};
use kukuri_event::EventId;
use sqlx::postgres::PgConnection;

use super::insert::bind_dedupe;
use super::{Bulk, Sorted};
use crate::error::Fault;

const UPDATE_DEDUPE: &str = "UPDATE event_dedupe d
    SET first_seen_at = k.first_seen_at, last_seen_at = k.last_seen_at, seen_count = k.seen_count,
        seq = k.seq
    FROM (SELECT UNNEST($1::BYTEA[]) AS event_id, UNNEST($2::BIGINT[]) AS first_seen_at,
        UNNEST($3::BIGINT[]) AS last_seen_at, UNNEST($4::BIGINT[]) AS seen_count,
        UNNEST($5::BIGINT[]) AS seq) AS k
    WHERE d.event_id = k.event_id";
const DELETE_DEDUPE: &str = "DELETE FROM event_dedupe WHERE event_id = ANY($1)";

/// Writes all but the new rows, which it returns.
pub(super) async fn dedupe<'a>(
    connection: &mut PgConnection,
    changes: &'a [Change<EventId, Dedupe>],
) -> Result<Vec<(&'a EventId, &'a Dedupe)>, Fault> {
    let changes = Sorted::new(changes);
    Bulk::new(DELETE_DEDUPE, changes.deleted.len())
        .bind(changes.deleted.iter().map(|id| *id.as_bytes()))
        .run(connection)
        .await?;
    let updated = Bulk::new(UPDATE_DEDUPE, changes.updated.len());
    bind_dedupe(updated, &changes.updated).run(connection).await?;
    Ok(changes.inserted)
}

const INSERT_VERSIONS: &str = "INSERT INTO current_versions (kind, pubkey, d, created_at, event_id,
        state, deleted_until, event_json)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::BYTEA[]), UNNEST($3::BYTEA[]), UNNEST($4::BIGINT[]),
        UNNEST($5::BYTEA[]), UNNEST($6::SMALLINT[]), UNNEST($7::BIGINT[]), UNNEST($8::BYTEA[])";
const UPDATE_VERSIONS: &str = "UPDATE current_versions v
    SET created_at = k.created_at, event_id = k.event_id, state = k.state,
        deleted_until = k.deleted_until, event_json = k.event_json
    FROM (SELECT UNNEST($1::INTEGER[]) AS kind, UNNEST($2::BYTEA[]) AS pubkey,
        UNNEST($3::BYTEA[]) AS d, UNNEST($4::BIGINT[]) AS created_at,
        UNNEST($5::BYTEA[]) AS event_id, UNNEST($6::SMALLINT[]) AS state,
        UNNEST($7::BIGINT[]) AS deleted_until, UNNEST($8::BYTEA[]) AS event_json) AS k
    WHERE v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d";
const DELETE_VERSIONS: &str = "DELETE FROM current_versions v
    USING (SELECT UNNEST($1::INTEGER[]) AS kind, UNNEST($2::BYTEA[]) AS pubkey,
        UNNEST($3::BYTEA[]) AS d) AS k
    WHERE v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d";

pub(super) async fn versions(
    connection: &mut PgConnection,
    changes: &[Change<VersionKey, Version>],
) -> Result<(), Fault> {
    let changes = Sorted::new(changes);
    version_keys(DELETE_VERSIONS, changes.deleted.iter().copied()).run(connection).await?;
    bind_versions(UPDATE_VERSIONS, &changes.updated).run(connection).await?;
    bind_versions(INSERT_VERSIONS, &changes.inserted).run(connection).await
}

fn version_keys<'q>(
    sql: &'static str,
    keys: impl ExactSizeIterator<Item = &'q VersionKey> + Clone,
) -> Bulk<'q> {
    Bulk::new(sql, keys.len())
        .bind(keys.clone().map(|key| i32::from(key.kind.0)))
        .bind(keys.clone().map(|key| *key.pubkey.as_bytes()))
        .bind(keys.map(|key| key.d.as_bytes()))
}

fn bind_versions<'q>(sql: &'static str, rows: &[(&'q VersionKey, &'q Version)]) -> Bulk<'q> {
    let mark = |read: fn(Mark) -> i64| rows.iter().map(move |(_, version)| version.mark.map(read));
    let body = |version: &'q Version| version.body.as_ref().map(|body| body.json().as_bytes());
    version_keys(sql, rows.iter().map(|(key, _)| *key))
        .bind(mark(|mark| mark.created_at.0))
        .bind(rows.iter().map(|(_, version)| version.mark.map(|m| *m.event_id.as_bytes())))
        .bind(rows.iter().map(|(_, version)| version.mark.map(|m| m.state.code())))
        .bind(rows.iter().map(|(_, version)| version.deleted_until.map(|until| until.0)))
        .bind(rows.iter().map(|(_, version)| body(version)))
}

const INSERT_TOMBSTONES: &str = "INSERT INTO deletion_tombstones (target, pubkey,
        deletion_event_id, requested_at, applied_at)
    SELECT UNNEST($1::BYTEA[]), UNNEST($2::BYTEA[]), UNNEST($3::BYTEA[]), UNNEST($4::BIGINT[]),
        UNNEST($5::BIGINT[])";
const UPDATE_TOMBSTONES: &str = "UPDATE deletion_tombstones t
    SET deletion_event_id = k.deletion_event_id, requested_at = k.requested_at,
        applied_at = k.applied_at
    FROM (SELECT UNNEST($1::BYTEA[]) AS target, UNNEST($2::BYTEA[]) AS pubkey,
        UNNEST($3::BYTEA[]) AS deletion_event_id, UNNEST($4::BIGINT[]) AS requested_at,
        UNNEST($5::BIGINT[]) AS applied_at) AS k
    WHERE t.target = k.target AND t.pubkey = k.pubkey";
const DELETE_TOMBSTONES: &str = "DELETE FROM deletion_tombstones t
    USING (SELECT UNNEST($1::BYTEA[]) AS target, UNNEST($2::BYTEA[]) AS pubkey) AS k
    WHERE t.target = k.target AND t.pubkey = k.pubkey";

pub(super) async fn tombstones(
    connection: &mut PgConnection,
    changes: &[Change<TombstoneKey, Tombstone>],
) -> Result<(), Fault> {
    let changes = Sorted::new(changes);
    let bind = |sql, rows: &[(&TombstoneKey, &Tombstone)]| {
        Bulk::new(sql, rows.len())
            .bind(rows.iter().map(|(key, _)| *key.target.as_bytes()))
            .bind(rows.iter().map(|(key, _)| *key.pubkey.as_bytes()))
            .bind(rows.iter().map(|(_, row)| *row.deletion_event_id.as_bytes()))
            .bind(rows.iter().map(|(_, row)| row.requested_at.0))
            .bind(rows.iter().map(|(_, row)| row.applied_at.map(|at| at.0)))
    };
    Bulk::new(DELETE_TOMBSTONES, changes.deleted.len())
        .bind(changes.deleted.iter().map(|key| *key.target.as_bytes()))
        .bind(changes.deleted.iter().map(|key| *key.pubkey.as_bytes()))
        .run(connection)
        .await?;
    bind(UPDATE_TOMBSTONES, &changes.updated).run(connection).await?;
    bind(INSERT_TOMBSTONES, &changes.inserted).run(connection).await
}
