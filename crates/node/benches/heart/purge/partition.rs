//! What it takes to drop one partition that was made to hold all that has left. It is gone when nobody finds it and
//! nobody has to wait for who drops it; then the server frees its files, which takes the file system in proportion to
//! their size, and holds up nobody. A node's are small beside the whole, and dropped while a purge goes on.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kukuri_store::Tidied;
use kukuri_store_postgres::Options;
use kukuri_testkit::generate::bulk::Bulk;
use sqlx::{Connection, PgConnection};

use super::space::{GivenBack, millis};
use super::{DROP_RATIO_MAX, aged, purge_alone, verdict};
use crate::backend::Backend;

/// Of so many events of the load, a hundred are no versions, which are not dropped by partitions.
const EVENTS_PER_HUNDRED: usize = 107;

/// How long a drop is waited for.
const DROP_MAX: Duration = Duration::from_secs(60);

const FULLEST: &str =
    "SELECT events, ('cn_relay.events_standard_' || first_seq)::REGCLASS::OID::BIGINT
    FROM cn_relay.event_partitions ORDER BY events DESC LIMIT 1";
const IS_GONE: &str = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE oid = $1::BIGINT::OID)
    AND NOT EXISTS (SELECT FROM pg_locks WHERE relation = $1::BIGINT::OID)";

/// What dropping a partition took.
struct Dropped {
    events: i64,
    /// Until it was gone for everyone.
    gone: Duration,
    /// Until its files were freed.
    freed: Duration,
    /// What it took after that to delete the tags that its events had left behind.
    swept: Duration,
}

/// One partition of that many events, and one of a tenth.
pub async fn measure(bulk: &Bulk, purged: usize) -> anyhow::Result<()> {
    let small = drop_one(bulk, purged / 10).await?;
    let large = drop_one(bulk, purged).await?;
    let ratio =
        |time: fn(&Dropped) -> Duration| time(&large).as_secs_f64() / time(&small).as_secs_f64();
    let [gone, freed] = [ratio(|dropped| dropped.gone), ratio(|dropped| dropped.freed)];
    println!(
        "dropping one partition made to hold them all: gone for everyone after {:.1} ms with {} events, {:.1} ms with {}: {gone:.2}× (at most {DROP_RATIO_MAX:.0}×: {}); its files freed after {:.0} and {:.0} ms: {freed:.2}×, and its tags deleted in {:.0} and {:.0} ms more, while nobody waits",
        millis(small.gone),
        small.events,
        millis(large.gone),
        large.events,
        verdict(gone <= DROP_RATIO_MAX),
        millis(small.freed),
        millis(large.freed),
        millis(small.swept),
        millis(large.swept),
    );
    Ok(())
}

/// A partition is filled, all that it holds leaves, and it is given up, detached and dropped.
async fn drop_one(bulk: &Bulk, events: usize) -> anyhow::Result<Dropped> {
    let stored = events * EVENTS_PER_HUNDRED / 100;
    let options = Options { partition_rows_min: u32::try_from(stored)?, ..Options::STANDARD };
    let (backend, lane) = aged(Backend::open_postgres(bulk, options).await?, bulk, stored).await?;
    let url = backend.url().context("it is on a server")?;
    let mut looking = PgConnection::connect(&url).await?;
    let (events, partition) = sqlx::query_as(FULLEST).fetch_one(&mut looking).await?;
    // A node that runs does this all the time: the server's autovacuum leaves what lies behind the head alone.
    GivenBack::new(&backend).more(&backend).await?;
    purge_alone(&backend, &lane).await?;
    let mut asking = PgConnection::connect(&url).await?;
    let start = Instant::now();
    let look = tokio::spawn(gone(looking, partition));
    while !is_gone(&mut asking, partition).await? {
        ensure!(backend.store.tidy().await? == Tidied::More, "the partition is still there");
    }
    let freed = start.elapsed();
    let gone = look.await??.duration_since(start);
    let mut rest = GivenBack::new(&backend);
    rest.more(&backend).await?;
    Ok(Dropped { events, gone, freed, swept: rest.last() })
}

/// When nobody finds a partition any more, or has to wait for it.
async fn gone(mut looking: PgConnection, partition: i64) -> anyhow::Result<Instant> {
    let start = Instant::now();
    while !is_gone(&mut looking, partition).await? {
        ensure!(start.elapsed() < DROP_MAX, "the partition is still there");
    }
    Ok(Instant::now())
}

async fn is_gone(looking: &mut PgConnection, partition: i64) -> anyhow::Result<bool> {
    Ok(sqlx::query_scalar(IS_GONE).bind(partition).fetch_one(looking).await?)
}
