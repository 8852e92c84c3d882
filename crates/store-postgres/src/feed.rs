//! Reading the feed.

use std::collections::BTreeSet;

use kukuri_core::{Cursor, Epoch, FeedBounds, FeedRow, Seq};
use kukuri_store::FeedError;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;
use crate::list;
use crate::numbers::TopicNumbers;
use crate::rows::{self, feed_columns};

/// Rows below the floor may still be there.
const ROWS: &str = concat!(
    "SELECT ",
    feed_columns!(),
    " FROM events_outbox WHERE seq > $1 AND seq > (SELECT floor_seq FROM feed_meta)
    ORDER BY seq LIMIT $2"
);

/// Rows and bounds of one moment in one statement: whoever listens to the feed waits for it after every
/// commit. A head that is known already spares the server all older partitions.
const ROWS_AND_BOUNDS: &str = concat!(
    "SELECT o.*, m.epoch, m.floor_seq, h.head
    FROM feed_meta m
    LEFT JOIN LATERAL (SELECT seq AS head FROM events_outbox WHERE seq >= $3
        ORDER BY seq DESC LIMIT 1) AS h ON TRUE
    LEFT JOIN LATERAL (SELECT ",
    feed_columns!(),
    " FROM events_outbox WHERE seq > $1 ORDER BY seq LIMIT $2) AS o ON TRUE
    ORDER BY o.seq"
);

/// Where the columns of the bounds are.
const EPOCH: usize = 13;

/// The rows after a cursor; what is missing among them is an error, never a short read. `known` is a
/// head that was seen.
pub(crate) async fn after(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    cursor: Cursor,
    rows_max: usize,
    known: Seq,
) -> Result<Result<Vec<FeedRow>, FeedError>, Fault> {
    let found = sqlx::query(ROWS_AND_BOUNDS).bind(cursor.seq.0).bind(list::limit(rows_max));
    let mut found = found.bind(known.0).fetch_all(&mut *connection).await?;
    let bounds = match found.first() {
        Some(row) => bounds(row)?,
        None => return Err(Fault::corrupt("feed_meta is empty; run doctor")),
    };
    if let Err(error) = bounds.check(cursor) {
        return Ok(Err(error.into()));
    }
    // Without rows there is still one with the bounds.
    found.retain(|row| row.try_get::<Option<i64>, _>(0).is_ok_and(|seq| seq.is_some()));
    let rows = feed_rows(connection, numbers, &found).await?;
    Ok(without_holes(rows, cursor.seq, bounds.head, rows_max))
}

fn bounds(row: &PgRow) -> Result<FeedBounds, Fault> {
    let floor = Seq(row.try_get(EPOCH + 1)?);
    let last = row.try_get::<Option<i64>, _>(EPOCH + 2)?.map(Seq);
    let head = last.map_or(floor, |last| last.max(floor));
    Ok(FeedBounds { epoch: Epoch(row.try_get(EPOCH)?), floor, head })
}

fn without_holes(
    rows: Vec<FeedRow>,
    after: Seq,
    head: Seq,
    rows_max: usize,
) -> Result<Vec<FeedRow>, FeedError> {
    let mut last = after;
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
    feed_rows(connection, numbers, &found).await
}

/// Reads rows, learning what topics they speak of.
async fn feed_rows(
    connection: &mut PgConnection,
    numbers: &TopicNumbers,
    found: &[PgRow],
) -> Result<Vec<FeedRow>, Fault> {
    let mut topics = BTreeSet::new();
    for row in found {
        topics.extend(rows::feed_numbers(row)?);
    }
    numbers.learn(connection, topics).await?;
    found.iter().map(|row| rows::feed_row(row, numbers)).collect()
}
