//! Connections and their settings.

use std::future::Future;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, raw_sql};

use crate::error::Fault;
use crate::{Fsync, bounds};

/// Connecting includes waiting for a server that starts.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Every statement of the store is a walk along an index, and is prepared once. The planner is left
/// no other choice, so that its estimates, which lag behind on tables that grow, cannot lead it to
/// read a whole table.
const PLANS: &str = "SET search_path = cn_relay;
    SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0;
    SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
    SET enable_memoize = off";

/// A lane that hangs holds up every other: the server ends it. Who loses the fence has to see the row as it
/// is now, and not an error about a snapshot.
const LANE: &str = "SET default_transaction_isolation = 'read committed'; SET lock_timeout = '5s'; SET statement_timeout = '10s';
    SET idle_in_transaction_session_timeout = '10s'; SET tcp_user_timeout = '10s';
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

/// A statement for a program that is gone ends early. Not every platform can watch a socket during a
/// statement; where it cannot, this fails alone.
const WATCH: &str = "SET client_connection_check_interval = '2s'";

/// `OK true` means synced, whatever the server's, the database's or the role's own setting is for
/// those who do not care. Settings that ask for more than that stay.
const LANE_SYNC: &str = "SELECT set_config('synchronous_commit', 'on', FALSE)
    WHERE current_setting('synchronous_commit') = 'off'";

/// Whoever leaves a transaction that may have ended need not be warned.
const READER: &str = "SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '30s'; SET default_transaction_read_only = on;
    SET client_min_messages = error";

/// Changes of the schema wait for locks a while, but not for ever.
const SETUP: &str = "SET search_path = cn_relay; SET lock_timeout = '60s';
    SET statement_timeout = '90s'; SET idle_in_transaction_session_timeout = '30s'";

/// Whoever tidies up waits for nobody, so that nobody waits behind it. The server ends a statement before the store
/// gives up on it.
const TIDY: &str = "SET search_path = cn_relay; SET lock_timeout = '2s';
    SET statement_timeout = '40s'; SET idle_in_transaction_session_timeout = '10s'";

/// Nobody waits for a notification to be durable.
const NOTIFIER: &str = "SET synchronous_commit = off; SET statement_timeout = '10s'";

/// Who connects: for settings, and for the server's list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Setup,
    Lane(Fsync),
    Reader,
    Notifier,
    Tidy,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    options: PgConnectOptions,
}

impl Server {
    pub fn parse(url: &str) -> Result<Self, Fault> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| Fault::unavailable(format!("not a database address: {error}")))?;
        Ok(Self { options: options.disable_statement_logging() })
    }

    pub fn options(&self, name: &str) -> PgConnectOptions {
        self.options.clone().application_name(name)
    }

    pub async fn connect(&self, role: Role) -> Result<PgConnection, Fault> {
        within(CONNECT_LIMIT, "connecting", async {
            let name = match role {
                Role::Setup => "kukuri setup",
                Role::Lane(_) => "kukuri lane",
                Role::Reader => "kukuri reader",
                Role::Notifier => "kukuri notifier",
                Role::Tidy => "kukuri tidy",
            };
            let mut connection = self.options(name).connect().await?;
            match role {
                Role::Setup => prepare_watched(&mut connection, SETUP).await?,
                Role::Lane(fsync) => prepare_lane(&mut connection, fsync).await?,
                Role::Reader => prepare_reader(&mut connection).await?,
                Role::Notifier => run(&mut connection, NOTIFIER).await?,
                Role::Tidy => prepare_watched(&mut connection, TIDY).await?,
            }
            Ok(connection)
        })
        .await
    }
}

async fn run(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<()> {
    raw_sql(sql).execute(connection).await.map(drop)
}

/// A migration of a program that is gone must not go on for hours, nor may it be in the way of who tidies up next.
async fn prepare_watched(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<()> {
    run(connection, sql).await?;
    let _ = run(connection, WATCH).await;
    Ok(())
}

async fn prepare_lane(connection: &mut PgConnection, fsync: Fsync) -> sqlx::Result<()> {
    run(connection, PLANS).await?;
    run(connection, LANE).await?;
    if fsync == Fsync::Required {
        run(connection, LANE_SYNC).await?;
    }
    let _ = run(connection, WATCH).await;
    Ok(())
}

pub(crate) async fn prepare_reader(connection: &mut PgConnection) -> sqlx::Result<()> {
    run(connection, PLANS).await?;
    run(connection, READER).await?;
    let _ = run(connection, WATCH).await;
    run(connection, bounds::PREPARE).await
}

/// No wait for the server is without an end.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(Fault::unavailable(format!("{what} took more than {limit:?}"))))
}
