use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Cursor, FeedRow, Seq};
use kukuri_store::{FeedError, Store};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a waiting reader trusts the watch of the head before it looks for itself. A lost
/// wake-up costs this much time and no row.
pub const POLL_INTERVAL: Duration = Duration::from_millis(1500);

/// A reader of the feed: every row after a cursor, in order, each asserted to be the one after the
/// last. Its place moves only with rows that were handed out, so an error or a dropped future loses
/// nothing.
pub struct Tail {
    store: Arc<dyn Store>,
    cursor: Cursor,
    heads: watch::Receiver<Seq>,
    poll_interval: Duration,
}

impl Tail {
    pub fn new(store: Arc<dyn Store>, after: Cursor, poll_interval: Duration) -> Self {
        Self { heads: store.heads(), store, cursor: after, poll_interval }
    }

    /// Where the last row that was handed out stands.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The rows that are there now, at most `rows_max`; none when the reader is at the head.
    pub async fn rows_so_far(&mut self, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        // Marked as seen before the read: a head that comes later wakes the next wait.
        self.heads.mark_unchanged();
        let rows = match self.store.recent(self.cursor, rows_max) {
            Some(rows) => rows,
            None => self.store.feed(self.cursor, rows_max).await?,
        };
        self.cursor.seq = check_gapless(self.cursor.seq, &rows)?;
        Ok(rows)
    }

    /// Whether nobody has told of a row that was not handed out. Somebody may have written one all the
    /// same.
    pub fn knows_no_more(&self) -> bool {
        *self.heads.borrow() <= self.cursor.seq
    }

    /// The next rows, at most `rows_max`. Waits until there is one.
    pub async fn next_rows(&mut self, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        loop {
            let rows = self.rows_so_far(rows_max).await?;
            if !rows.is_empty() || rows_max == 0 {
                return Ok(rows);
            }
            self.wait().await;
        }
    }

    /// Until the head moves, but no longer than the poll interval.
    pub async fn wait(&mut self) {
        let moved = timeout(self.poll_interval, self.heads.changed());
        if let Ok(Err(_)) = moved.await {
            // Nobody watches the head any more; looking for ourselves is what is left.
            tokio::time::sleep(self.poll_interval).await;
        }
    }
}

/// The last seq, if each row is the one after the row before it.
pub(crate) fn check_gapless(after: Seq, rows: &[FeedRow]) -> Result<Seq, FeedError> {
    rows.iter().try_fold(after, |last, row| {
        if row.seq == last.next() { Ok(row.seq) } else { Err(FeedError::Hole { after: last }) }
    })
}
