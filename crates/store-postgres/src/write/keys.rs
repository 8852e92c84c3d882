//! Dedupe rows, versions and tombstones: tables with one row per key.

use kukuri_core::{Change, Dedupe, ReadSet, Tombstone, TombstoneKey, Version, VersionKey};
use kukuri_event::EventId;

use super::{Bulk, Columns, Sorted};

const DEDUPE: &str = "SELECT FROM event_dedupe d WHERE d.id = ANY($1)";
const TOMBSTONES: &str = "SELECT FROM (SELECT UNNEST($1::BYTEA[]) AS target_event_id,
        UNNEST($2::BYTEA[]) AS pubkey) AS k
    JOIN deletion_tombstones t ON t.target_event_id = k.target_event_id AND t.pubkey = k.pubkey";
const VERSIONS: &str =
    "SELECT FROM (SELECT UNNEST($1::INTEGER[]) AS kind, UNNEST($2::BYTEA[]) AS pubkey,
        UNNEST($3::BYTEA[]) AS d) AS k
    JOIN current_versions v ON v.kind = k.kind AND v.pubkey = k.pubkey AND v.d = k.d";

/// Nothing is written if one of the keys is there. Another id with the same first bytes is taken for it:
/// then the batch looks closer.
pub(super) fn absent(bulk: &mut Bulk, keys: &ReadSet) {
    let ReadSet { events, tombstones, versions, .. } = keys;
    bulk.unless(DEDUPE, events.len()).bind(events.iter().map(EventId::prefix));
    tombstone_keys(bulk.unless(TOMBSTONES, tombstones.len()), tombstones.iter());
    version_keys(bulk.unless(VERSIONS, versions.len()), versions.iter());
}

const INSERT_DEDUPE: &str = "INSERT INTO event_dedupe (id, event_id, first_seen_at, last_seen_at,
        seen_count, seq)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BYTEA[]), UNNEST($3::BIGINT[]), UNNEST($4::BIGINT[]),
        UNNEST($5::BIGINT[]), UNNEST($6::BIGINT[])";
const UPDATE_DEDUPE: &str = "UPDATE event_dedupe d
    SET first_seen_at = k.first_seen_at, last_seen_at = k.last_seen_at, seen_count = k.seen_count,
        seq = k.seq
    FROM (SELECT UNNEST($1::BIGINT[]) AS id, UNNEST($2::BYTEA[]) AS event_id,
        UNNEST($3::BIGINT[]) AS first_seen_at, UNNEST($4::BIGINT[]) AS last_seen_at,
        UNNEST($5::BIGINT[]) AS seen_count, UNNEST($6::BIGINT[]) AS seq) AS k
    WHERE d.id = k.id AND d.event_id = k.event_id";
const DELETE_DEDUPE: &str = "DELETE FROM event_dedupe d
    USING (SELECT UNNEST($1::BIGINT[]) AS id, UNNEST($2::BYTEA[]) AS event_id) AS k
    WHERE d.id = k.id AND d.event_id = k.event_id";

pub(super) fn dedupe(bulk: &mut Bulk, changes: &[Change<EventId, Dedupe>]) {
    let changes = Sorted::new(changes);
    let deleted = bulk.change(DELETE_DEDUPE, changes.deleted.len());
    dedupe_keys(deleted, changes.deleted.iter().copied());
    bind_dedupe(bulk.change(UPDATE_DEDUPE, changes.updated.len()), &changes.updated);
    bind_dedupe(bulk.insert(INSERT_DEDUPE, changes.inserted.len()), &changes.inserted);
}

fn dedupe_keys<'b, 'q>(
    columns: Columns<'b>,
    ids: impl Iterator<Item = &'q EventId> + Clone,
) -> Columns<'b> {
    columns.bind(ids.clone().map(EventId::prefix)).bind(ids.map(|id| *id.as_bytes()))
}

fn bind_dedupe(columns: Columns<'_>, rows: &[(&EventId, &Dedupe)]) {
    dedupe_keys(columns, rows.iter().map(|(id, _)| *id))
        .bind(rows.iter().map(|(_, row)| row.first_seen_at.0))
        .bind(rows.iter().map(|(_, row)| row.last_seen_at.0))
        .bind(rows.iter().map(|(_, row)| row.seen_count.cast_signed()))
        .bind(rows.iter().map(|(_, row)| row.seq.map(|seq| seq.0)));
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

pub(super) fn versions(bulk: &mut Bulk, changes: &[Change<VersionKey, Version>]) {
    let changes = Sorted::new(changes);
    let deleted = bulk.change(DELETE_VERSIONS, changes.deleted.len());
    version_keys(deleted, changes.deleted.iter().copied());
    bind_versions(bulk.change(UPDATE_VERSIONS, changes.updated.len()), &changes.updated);
    bind_versions(bulk.insert(INSERT_VERSIONS, changes.inserted.len()), &changes.inserted);
}

fn version_keys<'b, 'q>(
    columns: Columns<'b>,
    keys: impl Iterator<Item = &'q VersionKey> + Clone,
) -> Columns<'b> {
    columns
        .bind(keys.clone().map(|key| i32::from(key.kind.0)))
        .bind(keys.clone().map(|key| *key.pubkey.as_bytes()))
        .bind(keys.map(|key| key.d.as_bytes()))
}

fn bind_versions(columns: Columns<'_>, rows: &[(&VersionKey, &Version)]) {
    let marks = || rows.iter().map(|(_, version)| version.mark);
    let body =
        |version: &'_ Version| version.body.as_ref().map(|body| body.json().as_bytes().to_vec());
    version_keys(columns, rows.iter().map(|(key, _)| *key))
        .bind(marks().map(|mark| mark.map(|mark| mark.created_at.0)))
        .bind(marks().map(|mark| mark.map(|mark| *mark.event_id.as_bytes())))
        .bind(marks().map(|mark| mark.map(|mark| mark.state.code())))
        .bind(rows.iter().map(|(_, version)| version.deleted_until.map(|until| until.0)))
        .bind(rows.iter().map(|(_, version)| body(version)));
}

const INSERT_TOMBSTONES: &str = "INSERT INTO deletion_tombstones (target_event_id,
        pubkey, deletion_event_id, requested_at, applied_at, recorded_at)
    SELECT UNNEST($1::BYTEA[]), UNNEST($2::BYTEA[]), UNNEST($3::BYTEA[]), UNNEST($4::BIGINT[]),
        UNNEST($5::BIGINT[]), UNNEST($6::BIGINT[])";
const UPDATE_TOMBSTONES: &str = "UPDATE deletion_tombstones t
    SET deletion_event_id = k.deletion_event_id, requested_at = k.requested_at,
        applied_at = k.applied_at, recorded_at = k.recorded_at
    FROM (SELECT UNNEST($1::BYTEA[]) AS target_event_id, UNNEST($2::BYTEA[]) AS pubkey,
        UNNEST($3::BYTEA[]) AS deletion_event_id, UNNEST($4::BIGINT[]) AS requested_at,
        UNNEST($5::BIGINT[]) AS applied_at, UNNEST($6::BIGINT[]) AS recorded_at) AS k
    WHERE t.target_event_id = k.target_event_id AND t.pubkey = k.pubkey";
const DELETE_TOMBSTONES: &str = "DELETE FROM deletion_tombstones t
    USING (SELECT UNNEST($1::BYTEA[]) AS target_event_id, UNNEST($2::BYTEA[]) AS pubkey)
        AS k
    WHERE t.target_event_id = k.target_event_id AND t.pubkey = k.pubkey";

pub(super) fn tombstones(bulk: &mut Bulk, changes: &[Change<TombstoneKey, Tombstone>]) {
    let changes = Sorted::new(changes);
    let deleted = bulk.change(DELETE_TOMBSTONES, changes.deleted.len());
    tombstone_keys(deleted, changes.deleted.iter().copied());
    bind_tombstones(bulk.change(UPDATE_TOMBSTONES, changes.updated.len()), &changes.updated);
    bind_tombstones(bulk.insert(INSERT_TOMBSTONES, changes.inserted.len()), &changes.inserted);
}

fn tombstone_keys<'b, 'q>(
    columns: Columns<'b>,
    keys: impl Iterator<Item = &'q TombstoneKey> + Clone,
) -> Columns<'b> {
    columns
        .bind(keys.clone().map(|key| *key.target.as_bytes()))
        .bind(keys.map(|key| *key.pubkey.as_bytes()))
}

fn bind_tombstones(columns: Columns<'_>, rows: &[(&TombstoneKey, &Tombstone)]) {
    tombstone_keys(columns, rows.iter().map(|(key, _)| *key))
        .bind(rows.iter().map(|(_, row)| *row.deletion_event_id.as_bytes()))
        .bind(rows.iter().map(|(_, row)| row.requested_at.0))
        .bind(rows.iter().map(|(_, row)| row.applied_at.map(|at| at.0)))
        .bind(rows.iter().map(|(_, row)| row.recorded_at.0));
}
