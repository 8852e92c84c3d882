//! How far somebody who follows the feed is behind.

use std::time::Duration;

use kukuri_core::{Cursor, CursorError, UnixMillis};
use kukuri_store::{FeedError, Store};

/// How long the first row after a cursor has been waiting; nothing if there is none. If that row is no
/// longer kept, the oldest one that is says how late it is at least.
pub async fn lag(
    store: &dyn Store,
    cursor: Cursor,
    now: UnixMillis,
) -> Result<Duration, FeedError> {
    let rows = match store.feed(cursor, 1).await {
        Err(FeedError::Cursor(CursorError::Truncated { floor })) => {
            store.feed(Cursor { seq: floor, ..cursor }, 1).await
        }
        rows => rows,
    };
    Ok(rows?.first().map_or(Duration::ZERO, |row| row.ingested_at.until(now)))
}
