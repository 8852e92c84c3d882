//! Connections for reads: who waits for them, how many there are, and what becomes of those whose
//! reader has left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kukuri_core::ReadSet;
use kukuri_event::Filter;
use kukuri_store::{Query, QueryError, Store, StoreError};
use kukuri_store_postgres::{Options, PostgresStore};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::Cluster;
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::rig::{self, LIMIT, NOW, OPTIONS, note, notes, publish, query, topic};

const READERS_MAX: usize = 4;

/// The lane, the notifier, the listener, and the session that opened the store.
const OTHERS_MAX: usize = 4;

const LEAVERS: usize = 50;

/// Less than the server lets a statement run, and more than it takes to see that nobody waits for it.
const NOTICED: Duration = Duration::from_secs(20);

/// The server, seen from beside the store.
struct Server {
    cluster: Cluster,
    name: String,
}

async fn start(options: Options) -> (Arc<PostgresStore>, Server) {
    let cluster = rig::cluster();
    let (store, name) = rig::store_with(&cluster, options).await;
    (Arc::new(store), Server { cluster, name })
}

impl Server {
    /// Whoever reads the table hangs until the connection is closed.
    async fn lock(&self, table: &str) -> PgConnection {
        let mut operator = PgConnection::connect(&self.cluster.url(&self.name)).await.unwrap();
        let lock = format!("BEGIN; LOCK TABLE cn_relay.{table} IN ACCESS EXCLUSIVE MODE");
        raw_sql(AssertSqlSafe(lock)).execute(&mut operator).await.unwrap();
        operator
    }

    /// The sessions of the store for which this holds.
    fn sessions(&self, condition: &str) -> BTreeSet<u32> {
        let pids = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{}'
             AND application_name LIKE 'kukuri%' AND {condition}",
            self.name
        );
        let pids = self.cluster.sql("postgres", &pids).unwrap();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn readers(&self, condition: &str) -> BTreeSet<u32> {
        self.sessions(&format!("application_name = 'kukuri reader' AND {condition}"))
    }

    fn hanging(&self) -> BTreeSet<u32> {
        self.readers("wait_event_type = 'Lock'")
    }

    fn wait_for_hanging(&self, count: usize) {
        let hang = || (self.hanging().len() == count).then_some(());
        wait_for("readers that hang", LIMIT, hang).unwrap();
    }
}

/// In turn, one that a single statement answers and one that takes a transaction.
fn question(nth: usize) -> Query {
    let filter = format!(r##"{{"#t":["{}"]}}"##, topic());
    let mut question = query(&filter, 1000);
    if nth % 2 == 1 {
        question.filters.push(Filter::parse(r#"{"kinds":[7]}"#).unwrap());
    }
    question
}

/// Asks until there is a connection for it. How many hits there are.
async fn answer(store: Arc<PostgresStore>, question: Query) -> usize {
    let asking = async {
        loop {
            match store.query(question.clone()).await {
                Err(QueryError::Store(StoreError::Unavailable(_))) => {}
                answer => return answer.unwrap().hits.len(),
            }
        }
    };
    timeout(LIMIT, asking).await.unwrap()
}

/// As many questions at once as there are connections for them.
fn ask(store: &Arc<PostgresStore>) -> JoinSet<usize> {
    (0..READERS_MAX).map(|nth| answer(Arc::clone(store), question(nth))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_bounded() {
    let acquire_timeout = Duration::from_millis(200);
    let (store, server) = start(Options { glances_max: 1, acquire_timeout, ..OPTIONS }).await;
    let lock = server.lock("node_subscriptions").await;
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.topics().await.map(|topics| topics.len()) }
    });
    server.wait_for_hanging(1);
    let failed = store.bounds().await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    lock.close().await.unwrap();
    assert_eq!(first.await.unwrap(), Ok(1));
    store.bounds().await.unwrap();
}

/// Clients could ask so much that live delivery, which reads the feed and facts, waited for a
/// connection until it gave up: all reads stood in one line.
#[tokio::test(flavor = "multi_thread")]
async fn glances_do_not_wait_for_questions() {
    let (store, server) = start(Options { readers_max: READERS_MAX, ..OPTIONS }).await;
    let event = note(1, 1);
    publish(&store, std::slice::from_ref(&event)).await.unwrap();
    let lock = server.lock("event_topics").await;
    let asked = ask(&store);
    server.wait_for_hanging(READERS_MAX);
    let start = store.bounds().await.unwrap().start();
    assert_eq!(store.feed(start, 10).await.unwrap().len(), 1);
    let needs = ReadSet { events: [event.event().id()].into(), ..ReadSet::default() };
    assert_eq!(store.facts(needs).await.unwrap().records.len(), 1);
    assert_eq!(store.topics().await.unwrap().len(), 1);
    assert_eq!(store.expired(NOW, 10).await.unwrap(), []);
    assert_eq!(server.hanging().len(), READERS_MAX, "no question was answered meanwhile");
    lock.close().await.unwrap();
    assert_eq!(asked.join_all().await, [1; READERS_MAX]);
}

/// The server goes on with a statement whose reader has left. A client that asked and left, over and
/// over, took one connection after the other, until there was none for anybody.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_and_leaves_takes_no_more_than_who_stays() {
    let acquire_timeout = Duration::from_millis(20);
    let options = Options { readers_max: READERS_MAX, acquire_timeout, ..OPTIONS };
    let (store, server) = start(options).await;
    publish(&store, &notes(1, 3)).await.unwrap();
    let lock = server.lock("event_topics").await;
    let mut hanging = BTreeSet::new();
    for nth in 0..LEAVERS {
        // One leaves at once, the other when the server has begun or there is no connection.
        let left = store.query(question(nth)).now_or_never();
        assert!(left.is_none(), "{left:?}");
        let asked = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.query(question(nth)).await }
        });
        let now = wait_for("a reader that hangs or is refused", LIMIT, || {
            let now = server.hanging();
            (asked.is_finished() || now.len() > hanging.len()).then_some(now)
        });
        hanging = now.unwrap();
        asked.abort();
        let sessions = server.sessions("TRUE").len();
        assert!(sessions <= READERS_MAX + OTHERS_MAX, "{sessions} sessions when {nth} had left");
    }
    assert_eq!(hanging.len(), READERS_MAX, "every connection was left at work");

    // What was left behind is used again, and in no transaction of those who left.
    lock.close().await.unwrap();
    let rest = || (server.readers("state = 'idle'") == hanging).then_some(());
    wait_for("all connections to rest", LIMIT, rest).unwrap();
    publish(&store, &[note(1, 3)]).await.unwrap();
    assert_eq!(ask(&store).join_all().await, [4; READERS_MAX]);
    assert_eq!(server.readers("TRUE"), hanging);
}

#[derive(Clone, Copy, Debug)]
enum Farewell {
    Closed,
    Dropped,
}

/// Nobody waits for a statement of a store that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_behind_goes_with_the_store() {
    for farewell in [Farewell::Closed, Farewell::Dropped] {
        let (store, server) = start(OPTIONS).await;
        publish(&store, &notes(1, 3)).await.unwrap();
        let _lock = server.lock("event_topics").await;
        let mut asked = ask(&store);
        server.wait_for_hanging(READERS_MAX);
        asked.shutdown().await;
        assert_eq!(server.hanging().len(), READERS_MAX, "they were left at work");
        let store = Arc::into_inner(store).expect("nobody else has the store");
        match farewell {
            Farewell::Closed => store.close().await,
            Farewell::Dropped => drop(store),
        }
        let gone = || server.sessions("TRUE").is_empty().then_some(());
        wait_for("the end of all sessions", NOTICED, gone).unwrap();
    }
}
