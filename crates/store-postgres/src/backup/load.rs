//! Filling a new schema from a backup, within the caller's transaction.

use std::collections::BTreeSet;

use kukuri_store::backup::{Backup, BackupError, Manifest, Monitor, Table};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use super::table::{self, check_name, column_list, quoted};
use super::values::Values;
use super::{bounds, version};
use crate::error::Fault;
use crate::migrate;

/// Returns the names of tables that were left out.
pub(super) async fn load(
    connection: &mut PgConnection,
    backup: &Backup,
    monitor: &Monitor,
) -> Result<Vec<String>, BackupError> {
    let manifest = backup.manifest();
    make_schema(connection, backup).await?;
    require_tables(connection, backup).await?;
    let mut left_out = Vec::new();
    for table in &manifest.tables {
        if make_table(connection, backup, table).await? {
            fill(connection, backup, table, monitor).await?;
        } else {
            left_out.push(table.name.clone());
        }
    }
    renew(connection, backup).await?;
    // What later versions changed is done now, to what is in the tables.
    while migrate::change(connection).await? {}
    Ok(left_out)
}

/// The schema as it was when the backup was made.
async fn make_schema(connection: &mut PgConnection, backup: &Backup) -> Result<(), BackupError> {
    let wanted = backup.manifest().schema_version;
    for _ in 0..wanted {
        migrate::change(connection).await?;
    }
    if wanted == 0 || version(connection).await? != wanted {
        return Err(damaged(backup, format!("there is no schema {wanted}")));
    }
    Ok(())
}

/// Every table of the schema has to be in the backup. One that is not would stay empty.
async fn require_tables(connection: &mut PgConnection, backup: &Backup) -> Result<(), BackupError> {
    let named = |name: &str| backup.manifest().tables.iter().any(|table| table.name == name);
    match table::list(connection).await?.iter().find(|found| !named(&found.name)) {
        Some(found) => Err(damaged(backup, format!("it has no table {}", found.name))),
        None => Ok(()),
    }
}

/// Every table has a part of its own, and every part is that of a table.
pub(super) fn check_parts(backup: &Backup) -> Result<(), BackupError> {
    let Manifest { tables, parts, .. } = backup.manifest();
    let mut names = BTreeSet::new();
    let mut unused: BTreeSet<&str> = parts.iter().map(|part| part.file.as_str()).collect();
    for Table { name, file, .. } in tables {
        if !names.insert(name) {
            return Err(damaged(backup, format!("{name} is named twice")));
        }
        if !file.as_deref().is_some_and(|file| unused.remove(file)) {
            return Err(damaged(backup, format!("{name} has no part of its own")));
        }
    }
    match unused.first() {
        Some(file) => Err(damaged(backup, format!("{file} belongs to no table"))),
        None => Ok(()),
    }
}

/// Makes a partition unless it is there. Says whether there is such a table.
async fn make_table(
    connection: &mut PgConnection,
    backup: &Backup,
    table: &Table,
) -> Result<bool, BackupError> {
    for name in table.columns.iter().chain([&table.name]) {
        check_name(name)?;
    }
    if exists(connection, &table.name).await? {
        return Ok(true);
    }
    let Some(partition) = &table.partition else { return Ok(false) };
    let values = Values::parse(&partition.values).map_err(|problem| damaged(backup, problem))?;
    let Some(parent) = partition.of.first() else {
        return Err(damaged(backup, format!("{} is a partition of nothing", table.name)));
    };
    check_name(parent)?;
    let (name, parent) = (quoted(&table.name), quoted(parent));
    let sql = format!(
        "CREATE TABLE {name} (LIKE {parent} INCLUDING ALL);
         ALTER TABLE {parent} ATTACH PARTITION {name} {values}"
    );
    raw_sql(AssertSqlSafe(sql)).execute(connection).await.map_err(Fault::from)?;
    Ok(true)
}

async fn exists(connection: &mut PgConnection, name: &str) -> Result<bool, Fault> {
    let row = sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(quoted(name));
    Ok(row.fetch_one(connection).await?.try_get(0)?)
}

async fn fill(
    connection: &mut PgConnection,
    backup: &Backup,
    table: &Table,
    monitor: &Monitor,
) -> Result<(), BackupError> {
    let name = quoted(&table.name);
    let Some(file) = &table.file else {
        return Err(damaged(backup, format!("{} has no part", table.name)));
    };
    // What migrations have put there, the backup has, too.
    let empty = format!("DELETE FROM {name}");
    raw_sql(AssertSqlSafe(empty)).execute(&mut *connection).await.map_err(Fault::from)?;
    let columns = column_list(&table.columns);
    let sql = format!("COPY {name} ({columns}) FROM STDIN (FORMAT binary)");
    let mut part = backup.part(file)?;
    let mut copy = connection.copy_in_raw(&sql).await.map_err(Fault::from)?;
    while let Some(chunk) = part.next_chunk()? {
        copy.send(chunk).await.map_err(Fault::from)?;
        monitor.advance(chunk.len() as u64)?;
    }
    let rows = copy.finish().await.map_err(Fault::from)?;
    if rows != table.rows {
        let Table { name, rows: named, .. } = table;
        return Err(damaged(backup, format!("{name} has {rows} rows, its manifest says {named}")));
    }
    Ok(())
}

/// Begins a new life of the feed, by which readers notice that it is not the one they knew.
async fn renew(connection: &mut PgConnection, backup: &Backup) -> Result<(), BackupError> {
    let Manifest { feed, .. } = backup.manifest();
    let found = bounds(connection).await?;
    if found.epoch.0 != feed.epoch || !feed.spans(found) {
        return Err(damaged(backup, "its feed is not the one that its manifest names"));
    }
    let epoch: i64 = rand::random();
    let epoch = if epoch == feed.epoch { !epoch } else { epoch };
    let update = sqlx::query("UPDATE feed_meta SET epoch = $1").bind(epoch);
    update.execute(connection).await.map_err(Fault::from)?;
    Ok(())
}

fn damaged(backup: &Backup, problem: impl std::fmt::Display) -> BackupError {
    BackupError::damaged(backup.directory(), problem)
}
