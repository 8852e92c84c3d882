//! A cut at a COMMIT leaves exactly the outcome it promises, and the client cannot tell which.

use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::proxy::{Cut, Proxy};
use sqlx::{Connection, PgConnection};

struct Bench {
    cluster: Cluster,
    proxy: Proxy,
}

impl Bench {
    fn new(durability: Durability) -> Bench {
        let cluster = Cluster::start(durability).expect("a cluster starts");
        cluster.sql("postgres", "CREATE TABLE numbers (n BIGINT)").expect("the table is new");
        let proxy = Proxy::start(cluster.port()).expect("loopback has a free port");
        Bench { cluster, proxy }
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.proxy.url("postgres")).await.expect("the proxy passes")
    }

    fn stored(&self) -> String {
        self.cluster
            .sql("postgres", "SELECT string_agg(n::text, ' ' ORDER BY n) FROM numbers")
            .expect("the server runs")
    }
}

async fn insert(connection: &mut PgConnection, n: i64) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("INSERT INTO numbers VALUES ($1)").bind(n).execute(&mut *transaction).await?;
    transaction.commit().await
}

#[tokio::test]
async fn passes_everything_until_told_to_cut() {
    let bench = Bench::new(Durability::Fast);
    let mut connection = bench.connect().await;
    bench.proxy.cut(Cut::BeforeCommit);
    bench.proxy.pass();
    for n in 1..=3 {
        insert(&mut connection, n).await.unwrap();
    }
    let large = "x".repeat(1 << 20);
    let length: i32 = sqlx::query_scalar("SELECT length($1)")
        .bind(&large)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(length, 1 << 20);
    assert_eq!(bench.stored(), "1 2 3");
    assert_eq!(bench.proxy.cuts(), 0);
}

#[tokio::test]
async fn a_cut_before_commit_stores_nothing() {
    let bench = Bench::new(Durability::Fast);
    let mut connection = bench.connect().await;
    insert(&mut connection, 1).await.unwrap();
    bench.proxy.cut(Cut::BeforeCommit);
    assert!(insert(&mut connection, 2).await.is_err());
    assert_eq!(bench.proxy.cuts(), 1);
    insert(&mut bench.connect().await, 3).await.unwrap();
    assert_eq!(bench.stored(), "1 3");
}

#[tokio::test]
async fn a_cut_after_commit_stores_what_the_client_takes_for_lost() {
    let bench = Bench::new(Durability::Fast);
    let mut connection = bench.connect().await;
    bench.proxy.cut(Cut::AfterCommit);
    assert!(insert(&mut connection, 1).await.is_err());
    assert_eq!(bench.proxy.cuts(), 1);
    assert_eq!(bench.stored(), "1");
    insert(&mut bench.connect().await, 2).await.unwrap();
    assert_eq!(bench.stored(), "1 2");
}

#[tokio::test]
async fn a_commit_that_ends_a_read_is_passed_on() {
    let bench = Bench::new(Durability::Fast);
    let mut connection = bench.connect().await;
    bench.proxy.cut(Cut::AfterCommit);
    for statement in ["BEGIN READ ONLY", "SELECT 1", "COMMIT"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }
    assert_eq!(bench.proxy.cuts(), 0);
    assert!(insert(&mut connection, 1).await.is_err());
    assert_eq!((bench.proxy.cuts(), bench.stored().as_str()), (1, "1"));
}

#[tokio::test]
async fn one_preparation_cuts_one_connection() {
    let bench = Bench::new(Durability::Fast);
    let (mut first, mut second) = (bench.connect().await, bench.connect().await);
    bench.proxy.cut(Cut::BeforeCommit);
    assert!(insert(&mut first, 1).await.is_err());
    insert(&mut second, 2).await.unwrap();
    assert_eq!(bench.proxy.cuts(), 1);
    assert_eq!(bench.stored(), "2");
}

#[tokio::test]
async fn a_cut_now_ends_every_connection_and_takes_new_ones() {
    let bench = Bench::new(Durability::Fast);
    let (mut first, mut second) = (bench.connect().await, bench.connect().await);
    bench.proxy.cut(Cut::Now);
    assert_eq!(bench.proxy.cuts(), 2);
    assert!(insert(&mut first, 1).await.is_err());
    assert!(insert(&mut second, 2).await.is_err());
    insert(&mut bench.connect().await, 3).await.unwrap();
    assert_eq!(bench.stored(), "3");
}

#[tokio::test]
async fn a_server_that_is_down_is_down_through_the_proxy_too() {
    let mut bench = Bench::new(Durability::Durable);
    let mut connection = bench.connect().await;
    bench.cluster.stop_immediate().unwrap();
    assert!(insert(&mut connection, 1).await.is_err());
    assert!(PgConnection::connect(&bench.proxy.url("postgres")).await.is_err());
    bench.cluster.start_again().unwrap();
    insert(&mut bench.connect().await, 2).await.unwrap();
    assert_eq!(bench.proxy.cuts(), 0);
}
