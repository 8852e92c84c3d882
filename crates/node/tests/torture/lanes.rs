//! Two processes write to one store at once, and a reader follows the feed as eagerly as it can: it
//! sees every row once, in order, without a hole. The seed's way to number rows is kept here to show
//! what it would have missed.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{FeedRow, Seq};
use kukuri_event::EventId;
use kukuri_feed::{POLL_INTERVAL, Tail};
use kukuri_store::Store;
use kukuri_testkit::generate::Seed;
use kukuri_testkit::postgres::{Cluster, Durability};
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

use crate::checker::History;
use crate::import::{Import, Plan};
use crate::load::Load;
use crate::rig::{self, Home, require_none};

const LINES: usize = 8_000;
/// Each process gets this share of the lines; what lies in the middle goes to both.
const SHARE_PERCENT: usize = 65;

/// Answers of the one process for which the other one waits, and how many lines each may be ahead.
const STEP: usize = 200;
const WINDOW: usize = 800;

/// Few rows at a time, so that the reader is often right behind the writers.
const READ_ROWS_MAX: usize = 50;

/// How often the feed must change between events of one process alone and of the other: otherwise
/// they wrote one after the other, and nothing was shown.
const TURNS_MIN: usize = 4;
const READS_MIN: usize = 20;

/// What a reader saw.
struct Seen {
    rows: Vec<FeedRow>,
    reads: usize,
}

/// Follows the feed until it is told that nobody writes any more, and then to its end.
async fn follow(store: Arc<dyn Store>, mut over: oneshot::Receiver<()>) -> Seen {
    let start = store.bounds().await.expect("the store answers").start();
    let mut tail = Tail::new(store, start, POLL_INTERVAL);
    let mut seen = Seen { rows: Vec::new(), reads: 0 };
    loop {
        tokio::select! {
            rows = tail.next_rows(READ_ROWS_MAX) => {
                seen.rows.extend(rows.expect("the feed has no hole"));
                seen.reads += 1;
            }
            _ = &mut over => break,
        }
    }
    loop {
        let rows = tail.rows_so_far(READ_ROWS_MAX).await.expect("the feed has no hole");
        if rows.is_empty() {
            return seen;
        }
        seen.rows.extend(rows);
    }
}

/// The lines of both processes: the first in order, the second shuffled.
fn shares(load: &Load, seed: Seed) -> [Arc<Load>; 2] {
    let share = load.lines.len() * SHARE_PERCENT / 100;
    let first = load.lines[..share].to_vec();
    let mut second = load.lines[load.lines.len() - share..].to_vec();
    seed.part(2).dice().shuffle(&mut second);
    [first, second].map(|lines| Arc::new(Load::of(lines, load.topics.clone())))
}

/// How often the writer changed, going by events that only one of them had.
fn turns(rows: &[FeedRow], shares: &[Arc<Load>; 2]) -> usize {
    let [first, second] = shares
        .each_ref()
        .map(|load| load.lines.iter().map(|line| line.id).collect::<BTreeSet<_>>());
    let alone = |id: &EventId| match (first.contains(id), second.contains(id)) {
        (true, false) => Some(0),
        (false, true) => Some(1),
        _ => None,
    };
    let writers: Vec<usize> = rows.iter().filter_map(|row| alone(&row.event_id)).collect();
    writers.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

async fn write_at_once(test: &str, home: Home, seed: Seed) {
    let load = Load::new(seed, LINES);
    let store = home.place.open().await.expect("a new store opens");
    load.carry(&*store).await.expect("a new store takes topics");
    let (tell, over) = oneshot::channel();
    let reader = tokio::spawn(follow(Arc::clone(&store), over));

    let shares = shares(&load, seed);
    let mut history = History::new(&load);
    let plan = |share| Plan { window: WINDOW, ..Plan::new(share) };
    let mut imports = shares.each_ref().map(|share| Import::start(&home.place, plan(share)));
    // In step, so that neither is done before the other has begun.
    while imports.iter_mut().all(|import| import.wait_for_answers(STEP)) {}
    for import in &mut imports {
        let code = import.finish().code();
        assert!(matches!(code, Some(0 | 3)), "{test}: {code:?}: {}", import.stderr());
        import.tell(&mut history);
    }
    tell.send(()).expect("the reader is there");
    let seen = reader.await.expect("the reader saw no hole");

    let head = store.bounds().await.expect("the store answers").head;
    let numbers: Vec<Seq> = seen.rows.iter().map(|row| row.seq).collect();
    let wanted: Vec<Seq> = (1..=head.0).map(Seq).collect();
    assert_eq!(numbers.len(), wanted.len(), "rows were skipped or came twice");
    assert!(numbers == wanted, "rows came out of order");
    require_none(test, &history.check(&*store).await);
    require_none(test, &home.place.doctor());

    let (turns, reads) = (turns(&seen.rows, &shares), seen.reads);
    println!("{test}: {head} rows in {reads} reads, the writer changed {turns} times");
    assert!(turns >= TURNS_MIN, "the processes wrote one after the other: {turns} turns");
    assert!(reads >= READS_MIN, "the reader was not eager: {reads} reads");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_sqlite() {
    let test = "lanes::two_processes_share_sqlite";
    for seed in rig::seed(test).rounds() {
        write_at_once(test, Home::sqlite(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_postgres() {
    let test = "lanes::two_processes_share_postgres";
    for seed in rig::seed(test).rounds() {
        write_at_once(test, Home::postgres(Durability::Durable), seed).await;
    }
}

/// The seed numbers rows with BIGSERIAL and tails them by `seq > last`. Numbers are given when a row
/// is written and seen when it is committed, which need not be the same order.
#[tokio::test]
async fn a_naive_tail_of_a_bigserial_loses_a_row() {
    let cluster = Cluster::start(Durability::Fast).expect("PostgreSQL starts");
    let url = cluster.url("postgres");
    cluster
        .sql("postgres", "CREATE TABLE naive (seq BIGSERIAL PRIMARY KEY, writer INT)")
        .expect("the table is new");
    let connect = || async { PgConnection::connect(&url).await.expect("the server takes us") };
    let (mut first, mut second, mut reader) = (connect().await, connect().await, connect().await);
    let mut slow = first.begin().await.expect("a transaction begins");
    insert(&mut slow, 1).await;
    let mut quick = second.begin().await.expect("a transaction begins");
    insert(&mut quick, 2).await;
    quick.commit().await.expect("the quick one commits first");

    let mut seen = after(&mut reader, 0).await;
    let last = *seen.last().expect("the quick writer's row is there");
    slow.commit().await.expect("the slow one commits");
    seen.extend(after(&mut reader, last).await);
    assert_eq!(seen, [2], "the tail never sees the first row");
    assert_eq!(after(&mut reader, 0).await, [1, 2], "though it is there");
}

async fn insert(connection: &mut PgConnection, writer: i32) {
    let insert = sqlx::query("INSERT INTO naive (writer) VALUES ($1)").bind(writer);
    insert.execute(connection).await.expect("a row is inserted");
}

async fn after(connection: &mut PgConnection, last: i64) -> Vec<i64> {
    let rows = sqlx::query_scalar("SELECT seq FROM naive WHERE seq > $1 ORDER BY seq").bind(last);
    rows.fetch_all(connection).await.expect("rows are read")
}
