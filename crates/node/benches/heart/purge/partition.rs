//! What it takes to drop one partition that was made to hold all that has left: why a node's are
//! small beside the whole, and dropped while a purge goes on. The server frees its file when it has let go of all locks,
//! and that takes the file system in proportion to its size.

use std::time::Duration;

use kukuri_store_postgres::Options;
use kukuri_testkit::generate::bulk::Bulk;

use super::space::{DROP_RATIO_MAX, GivenBack, millis};
use super::{aged, purge_alone, verdict};
use crate::backend::Backend;

/// Of so many events of the load, a hundred are no versions, which are not dropped by partitions.
const EVENTS_PER_HUNDRED: usize = 107;

const FULLEST: &str = "SELECT max(events) FROM cn_relay.event_partitions";

/// One partition of that many events, and one of a tenth.
pub async fn measure(bulk: &Bulk, purged: usize) -> anyhow::Result<()> {
    let (small, small_time) = drop_one(bulk, purged / 10).await?;
    let (large, large_time) = drop_one(bulk, purged).await?;
    let ratio = large_time.as_secs_f64() / small_time.as_secs_f64();
    println!(
        "dropping one partition made to hold them all: {:.0} ms with {small} events, {:.0} ms with {large}: {ratio:.2}× (at most {DROP_RATIO_MAX:.0}×: {}); a node's hold 131 072 at most, or an eighth of all",
        millis(small_time),
        millis(large_time),
        verdict(ratio <= DROP_RATIO_MAX),
    );
    Ok(())
}

/// How many events the partition had, and how long it took to give it up, detach it and drop it.
async fn drop_one(bulk: &Bulk, events: usize) -> anyhow::Result<(u64, Duration)> {
    let stored = events * EVENTS_PER_HUNDRED / 100;
    let options = Options { partition_rows_min: u32::try_from(stored)?, ..Options::STANDARD };
    let (backend, lane) = aged(Backend::open_postgres(bulk, options).await?, bulk, stored).await?;
    let held = backend.number(FULLEST);
    // A node that runs does this all the time: the server's autovacuum leaves what lies behind the head alone.
    GivenBack::new(&backend).more(&backend).await?;
    purge_alone(&backend, &lane).await?;
    let mut given_back = GivenBack::new(&backend);
    given_back.more(&backend).await?;
    given_back.tell(&backend);
    anyhow::ensure!(backend.number(FULLEST) < held / 2, "the partition is still there");
    Ok((held, given_back.last()))
}
