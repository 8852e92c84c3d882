//! Reading the feed.

use std::collections::BTreeSet;

use kukuri_core::{Cursor, FeedRow};
use kukuri_store::{FeedError, StoreError};
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::list;
use crate::numbers::TopicNumbers;
use crate::readers::Snapshot;
use crate::rows::{self, feed_columns};

const ROWS: &str =
    concat!("SELECT ", feed_columns!(), " FROM events_outbox WHERE seq > $1 ORDER BY seq LIMIT $2");

/// The rows after a cursor; what is missing among them is an error, never a short read.
pub(crate) async fn after(
    snapshot: &mut Snapshot,
    numbers: &TopicNumbers,
    cursor: Cursor,
    rows_max: usize,
) -> Result<Vec<FeedRow>, FeedError> {
    snapshot.bounds.feed.check(cursor)?;
    let head = snapshot.bounds.feed.head;
    let rows = read(snapshot.connection(), numbers, cursor.seq.0, rows_max).await;
    let rows = rows.map_err(StoreError::from)?;
    let mut last = cursor.seq;
    for row in &rows {
        if row.seq != last.next() {
            return Err(FeedError::Hole { after: last });
        }
        last = row.seq;
    }
    if rows.len() < rows_max && last != head {
        return Err(FeedError::Hole { after: last });
    }
    Ok(rows)
}

/// At most `rows_max` rows with greater numbers than `after`.
pub(crate) async fn read(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    after: i64,
    rows_max: usize,
) -> Result<Vec<FeedRow>, Fault> {
    let found: Vec<PgRow> = sqlx::query(ROWS)
        .bind(after)
        .bind(list::limit(rows_max))
        .fetch_all(&mut *connection)
        .await?;
    let mut topics = BTreeSet::new();
    for row in &found {
        topics.extend(rows::feed_numbers(row)?);
    }
    numbers.learn(connection, topics).await?;
    found.iter().map(|row| rows::feed_row(row, numbers)).collect()
}
