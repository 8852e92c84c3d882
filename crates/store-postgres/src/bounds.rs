//! Where the feed begins and ends: the first thing that every transaction reads.

use kukuri_core::{Epoch, FeedBounds, Seq, UnixMillis};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::error::Fault;

/// Prepared under a name of its own, so that it can be run in the message that begins a transaction.
/// A head that is known already spares the server all older partitions.
pub(crate) const PREPARE: &str = "PREPARE bounds (BIGINT) AS
    SELECT m.epoch, m.floor_seq, m.topics_version, o.seq, o.ingested_at
    FROM feed_meta m LEFT JOIN LATERAL (
        SELECT seq, ingested_at FROM events_outbox WHERE seq >= $1 ORDER BY seq DESC LIMIT 1
    ) AS o ON TRUE";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub feed: FeedBounds,
    /// How often node-level subscriptions have changed.
    pub topics_version: i64,
    /// When the last row was taken in.
    pub latest: Option<UnixMillis>,
}

/// Runs `begin`, which may be several statements or none, and reads the bounds of the feed in its
/// life `epoch`, whose head is not before `known`.
pub(crate) async fn begin(
    connection: &mut PgConnection,
    begin: &str,
    epoch: Epoch,
    known: Seq,
) -> Result<Bounds, Fault> {
    let (bounds, last) = execute(connection, begin, known).await?;
    if bounds.feed.epoch != epoch || (last.is_none() && bounds.feed.floor < known) {
        return Err(Fault::corrupt(format!(
            "the feed was replaced while the program ran, it no longer reaches {known}: restart"
        )));
    }
    Ok(bounds)
}

/// As [`begin`], when nothing is known yet.
pub(crate) async fn first(connection: &mut PgConnection) -> Result<Bounds, Fault> {
    raw_sql(PREPARE).execute(&mut *connection).await?;
    let (bounds, _) = execute(connection, "", Seq::ZERO).await?;
    Ok(bounds)
}

async fn execute(
    connection: &mut PgConnection,
    begin: &str,
    known: Seq,
) -> Result<(Bounds, Option<Seq>), Fault> {
    let sql = format!("{begin}; EXECUTE bounds({known})");
    let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let row = rows.last().ok_or_else(|| Fault::corrupt("feed_meta is empty; run doctor"))?;
    let floor = Seq(row.try_get(1)?);
    let last = row.try_get::<Option<i64>, _>(3)?.map(Seq);
    let feed = FeedBounds {
        epoch: Epoch(row.try_get(0)?),
        floor,
        head: last.map_or(floor, |last| last.max(floor)),
    };
    let latest = row.try_get::<Option<i64>, _>(4)?.map(UnixMillis);
    Ok((Bounds { feed, topics_version: row.try_get(2)?, latest }, last))
}
