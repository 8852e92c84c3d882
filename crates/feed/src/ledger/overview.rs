//! The view `cn_relay.consumer_offsets`: how far all consumers of a database are, in one place. Their
//! offsets are in their own schemas, with the effects; which schemas there are, only the database knows.

use super::Role;
use crate::{Desk, DeskError, Dialect, Home};

/// Adds this consumer's offsets to the view, if it does not show them yet. A file of SQLite shows nothing
/// of another file, and where there is no event store beside the consumers there is nobody to look.
pub(super) async fn show(home: &Home) -> Result<(), DeskError> {
    let mut snapshot = home.read().await?;
    let due = snapshot.desk().dialect() == Dialect::Postgres && is_due(snapshot.desk()).await?;
    snapshot.end().await?;
    if !due {
        return Ok(());
    }
    let mut writing = home.write().await?;
    let desk = writing.desk();
    // Two who replace it at once would each leave the other out, or stumble.
    desk.script("SELECT pg_advisory_xact_lock(hashtext('cn_relay.consumer_offsets'))").await?;
    let active = Role::Active.code();
    let parts = schemas(desk).await?.into_iter().map(|schema| {
        format!(
            "SELECT consumer, last_seq, updated_at, epoch, generation
             FROM {schema}.consumer_offsets WHERE role = {active}"
        )
    });
    let union = parts.collect::<Vec<_>>().join(" UNION ALL ");
    desk.script(&format!("CREATE OR REPLACE VIEW cn_relay.consumer_offsets AS {union}")).await?;
    writing.commit().await
}

async fn is_due(desk: &mut Desk) -> Result<bool, DeskError> {
    let sql = "SELECT 1 WHERE to_regnamespace('cn_relay') IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM information_schema.view_table_usage
            WHERE view_schema = 'cn_relay' AND view_name = 'consumer_offsets'
                AND table_schema = current_schema())";
    Ok(desk.row(sql, vec![]).await?.is_some())
}

/// The schemas of consumers. Their names are made of letters and underscores.
async fn schemas(desk: &mut Desk) -> Result<Vec<String>, DeskError> {
    let sql = r"SELECT CAST(nspname AS TEXT) FROM pg_class
            JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE relname = 'consumer_offsets' AND relkind = 'r' AND nspname ~ '^cn_[a-z_]+$'
            ORDER BY 1";
    desk.rows(sql, vec![]).await?.iter().map(|row| row.text(0)).collect()
}
