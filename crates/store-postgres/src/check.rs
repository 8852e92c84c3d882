//! Whether the server can be trusted with commits.

use kukuri_store::StoreError;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use crate::Fsync;
use crate::error::Fault;

const VERSION_MIN: i32 = 150_000;

const SETTINGS: &str = "SELECT current_setting('server_version_num')::INTEGER,
    current_setting('server_version'), current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit')";

/// What an operator should know.
pub(crate) async fn check(
    connection: &mut PgConnection,
    fsync: Fsync,
) -> Result<Vec<String>, Fault> {
    let row = sqlx::query(SETTINGS).fetch_one(connection).await?;
    let (number, version): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < VERSION_MIN {
        return Err(refuse(format!(
            "the server is PostgreSQL {version}, and 15 or later is needed: upgrade it"
        )));
    }
    let mut warnings = Vec::new();
    for (setting, column) in [("fsync", 2), ("full_page_writes", 3)] {
        if row.try_get::<String, _>(column)? != "off" {
            continue;
        }
        if fsync == Fsync::Required {
            return Err(refuse(format!(
                "the server runs with {setting}=off and would lose acknowledged events: switch it on"
            )));
        }
        warnings.push(format!("the server runs with {setting}=off: for tests only"));
    }
    if row.try_get::<String, _>(4)? == "off" {
        let remedy = match fsync {
            Fsync::Required => "the lane switches it on for itself",
            Fsync::AnyForTests => "commits may be lost",
        };
        warnings.push(format!("the server runs with synchronous_commit=off: {remedy}"));
    }
    Ok(warnings)
}

fn refuse(why: String) -> Fault {
    StoreError::Unavailable(why).into()
}
