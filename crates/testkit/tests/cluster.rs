//! A private cluster starts, crashes, comes back and goes away without a trace.

use std::time::{Duration, Instant};

use kukuri_testkit::postgres::{Cluster, Durability};

#[test]
fn databases_are_separate_and_fast_clusters_do_not_sync() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let (first, second) = (cluster.create_database(), cluster.create_database());
    assert_ne!(first, second);
    assert!(first.starts_with(&format!("postgres://postgres@127.0.0.1:{}/", cluster.port())));
    let [first, second] = [first, second].map(|url| url.rsplit('/').next().unwrap().to_owned());
    assert_eq!(cluster.sql(&first, "SHOW fsync").unwrap(), "off");
    assert_eq!(cluster.sql(&first, "SHOW shared_buffers").unwrap(), "32MB");
    cluster.sql(&first, "CREATE TABLE only_here (value TEXT)").unwrap();
    assert!(cluster.sql(&second, "SELECT * FROM only_here").is_err());
}

#[test]
fn text_does_not_sort_by_bytes_unless_asked_to() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    assert_eq!(cluster.sql("postgres", "SELECT 'a' < 'B'").unwrap(), "t");
    assert_eq!(cluster.sql("postgres", "SELECT 'a' < 'B' COLLATE \"C\"").unwrap(), "f");
}

#[test]
fn a_crash_keeps_commits_and_the_port() {
    let mut cluster = Cluster::start(Durability::Durable).unwrap();
    assert_eq!(cluster.sql("postgres", "SHOW fsync").unwrap(), "on");
    let port = cluster.port();
    cluster
        .sql("postgres", "CREATE TABLE kept (value TEXT); INSERT INTO kept VALUES ('x')")
        .unwrap();
    cluster.stop_immediate().unwrap();
    assert!(cluster.sql("postgres", "SELECT 1").is_err());
    cluster.start_again().unwrap();
    assert_eq!(cluster.port(), port);
    assert_eq!(cluster.sql("postgres", "SELECT value FROM kept").unwrap(), "x");
    assert!(cluster.start_again().is_err(), "a running cluster cannot be started");
}

#[test]
fn nothing_is_left_of_a_dropped_cluster() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let (data_dir, port) = (cluster.data_dir(), cluster.port());
    assert!(data_dir.join("PG_VERSION").exists());
    drop(cluster);
    assert!(!data_dir.exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn cpu_time_counts_the_servers_work_after_its_connection_is_gone() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let before = cluster.cpu_time();
    let start = Instant::now();
    cluster.sql("postgres", "SELECT sum(sqrt(n)) FROM generate_series(1, 2000000) AS n").unwrap();
    let used = cluster.cpu_time() - before;
    assert!(used >= Duration::from_millis(50), "{used:?} is too little");
    // Two cores could not have worked longer than this, with room for the rounding of ticks.
    assert!(used <= start.elapsed() * 4 + Duration::from_millis(500), "{used:?} is too much");
}
