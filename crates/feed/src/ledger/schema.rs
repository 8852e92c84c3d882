//! The runtime's own tables, beside the consumer's.

use crate::{Desk, DeskError, Dialect};

/// The n-th entry leads from version n to version n + 1. Entries are never changed once released. `BLOB`
/// stands for the type of bytes.
const MIGRATIONS: [&str; 1] = [include_str!("../../migrations/0001_ledger.sql")];

/// Brings the tables up to date. The caller holds whatever keeps others from doing so at the same time.
pub(super) async fn migrate(desk: &mut Desk) -> Result<(), DeskError> {
    desk.script("CREATE TABLE IF NOT EXISTS ledger_version (version BIGINT NOT NULL PRIMARY KEY)")
        .await?;
    let applied = applied(desk).await?;
    for (nth, sql) in MIGRATIONS.iter().enumerate().skip(applied) {
        desk.script(&sql.replace("BLOB", desk.dialect().blob())).await?;
        let next = i64::try_from(nth).expect("there are few") + 1;
        desk.execute("INSERT INTO ledger_version (version) VALUES ($1)", vec![next.into()]).await?;
    }
    Ok(())
}

/// Whether there are tables at all. Who makes them makes all of them at once.
pub(crate) async fn is_there(desk: &mut Desk) -> Result<bool, DeskError> {
    let sql = match desk.dialect() {
        Dialect::Sqlite => "SELECT 1 FROM sqlite_master WHERE name = 'consumer_states'",
        Dialect::Postgres => "SELECT 1 WHERE to_regclass('consumer_states') IS NOT NULL",
    };
    Ok(desk.row(sql, vec![]).await?.is_some())
}

/// That the tables are those this program knows.
pub(super) async fn check(desk: &mut Desk) -> Result<(), DeskError> {
    let (applied, known) = (applied(desk).await?, MIGRATIONS.len());
    if applied == known {
        return Ok(());
    }
    Err(DeskError::Broken(format!(
        "version {applied} of the consumer's tables was made by an older program, this one knows {known}: start the node, which brings them up to date"
    )))
}

/// How many migrations the tables have seen.
async fn applied(desk: &mut Desk) -> Result<usize, DeskError> {
    let row = desk.row("SELECT COALESCE(max(version), 0) FROM ledger_version", vec![]).await?;
    let version = row.map_or(Ok(0), |row| row.int(0))?;
    let known = MIGRATIONS.len();
    let applied = usize::try_from(version).ok().filter(|applied| *applied <= known);
    applied.ok_or_else(|| {
        DeskError::Broken(format!(
            "version {version} of the consumer's tables was made by a newer program, this one knows {known}: run the newer one"
        ))
    })
}

/// One program at a time changes a schema; SQLite has one writer anyway.
pub(super) async fn lock(desk: &mut Desk) -> Result<(), DeskError> {
    match desk.dialect() {
        Dialect::Sqlite => Ok(()),
        Dialect::Postgres => {
            desk.script("SELECT pg_advisory_xact_lock(hashtext(current_schema()))").await
        }
    }
}
