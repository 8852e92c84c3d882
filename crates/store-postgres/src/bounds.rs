//! Where the feed begins and ends: what every read goes by.

use kukuri_core::{Epoch, FeedBounds, Seq};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::error::Fault;

/// Prepared under a name of its own, so that it can be run in the message that begins a transaction.
/// A head that is known already spares the server all older partitions.
pub(crate) const PREPARE: &str = "PREPARE bounds (BIGINT) AS
    SELECT m.epoch, m.floor_seq, m.topics_version, o.seq
    FROM feed_meta m LEFT JOIN LATERAL (
        SELECT seq FROM events_outbox WHERE seq >= $1 ORDER BY seq DESC LIMIT 1
    ) AS o ON TRUE";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub feed: FeedBounds,
    /// How often node-level subscriptions have changed.
    pub topics_version: i64,
    /// The last row, if there is one at or after the head that was known.
    last: Option<Seq>,
}

/// What is known of a feed before its bounds are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub epoch: Epoch,
    /// The head is not before this one.
    pub head: Seq,
}

impl Bounds {
    pub fn new(epoch: Epoch, floor: Seq, topics_version: i64, last: Option<Seq>) -> Self {
        let head = last.map_or(floor, |last| last.max(floor));
        Self { feed: FeedBounds { epoch, floor, head }, topics_version, last }
    }

    /// A feed never goes back, and never becomes another one while a program has it open.
    pub fn checked(self, expected: Expected) -> Result<Self, Fault> {
        let Expected { epoch, head } = expected;
        if self.feed.epoch != epoch || (self.last.is_none() && self.feed.floor < head) {
            return Err(Fault::corrupt(format!(
                "the feed was replaced while the program ran, it no longer reaches {head}: restart"
            )));
        }
        Ok(self)
    }
}

/// Runs `begin`, which may be several statements or none, and reads the bounds of the feed.
pub(crate) async fn begin(
    connection: &mut PgConnection,
    begin: &str,
    expected: Expected,
) -> Result<Bounds, Fault> {
    execute(connection, begin, expected.head).await?.checked(expected)
}

/// As [`begin`], when nothing is known yet.
pub(crate) async fn first(connection: &mut PgConnection) -> Result<Bounds, Fault> {
    raw_sql(PREPARE).execute(&mut *connection).await?;
    execute(connection, "", Seq::ZERO).await
}

async fn execute(connection: &mut PgConnection, begin: &str, known: Seq) -> Result<Bounds, Fault> {
    let sql = format!("{begin}; EXECUTE bounds({known})");
    let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let row = rows.last().ok_or_else(|| Fault::corrupt("feed_meta is empty; run doctor"))?;
    let last = row.try_get::<Option<i64>, _>(3)?.map(Seq);
    let (epoch, floor) = (Epoch(row.try_get(0)?), Seq(row.try_get(1)?));
    Ok(Bounds::new(epoch, floor, row.try_get(2)?, last))
}
