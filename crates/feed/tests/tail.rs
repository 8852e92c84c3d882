//! A tail reads every row once and in order, wakes when there are more, and never reads short.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tail/holed.rs"]
mod holed;

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Command, Cursor, CursorError, Epoch, Seq, TopicId};
use kukuri_event::UnixSeconds;
use kukuri_feed::{FeedError, POLL_INTERVAL, Tail};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Model, Store};
use tokio::time::{Instant, timeout};

use holed::{Deaf, Holed};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

async fn model() -> Arc<Model> {
    let model = Arc::new(Model::default());
    let carry = Act::carry(TopicId::global(), "");
    apply(&*model, carry).await;
    model
}

async fn apply(store: &dyn Store, act: Act) {
    let command = Command { at: NOW.into(), act };
    assert!(store.apply([command].into()).await.unwrap().outcomes[0].is_ok());
}

async fn publish(store: &dyn Store, numbers: std::ops::Range<i64>) {
    for nth in numbers {
        let draft = Draft::new(1, NOW).tag("t", TopicId::global()).content(nth.to_string());
        apply(store, Act::Publish(Author::numbered(1).admit(&draft, NOW))).await;
    }
}

async fn tail(store: Arc<dyn Store>) -> Tail {
    let start = store.bounds().await.unwrap().start();
    Tail::new(store, start, POLL_INTERVAL)
}

async fn seqs(tail: &mut Tail, rows_max: usize) -> Vec<i64> {
    let rows = tail.next_rows(rows_max).await.unwrap();
    rows.iter().map(|row| row.seq.0).collect()
}

#[tokio::test(start_paused = true)]
async fn rows_come_in_pages_and_in_order() {
    let model = model().await;
    publish(&*model, 0..5).await;
    let mut tail = tail(model).await;
    assert_eq!(seqs(&mut tail, 2).await, [1, 2]);
    assert_eq!(seqs(&mut tail, 2).await, [3, 4]);
    assert_eq!(seqs(&mut tail, 2).await, [5]);
    assert_eq!(tail.rows_so_far(2).await.unwrap(), []);
    assert_eq!(tail.cursor().seq, Seq(5));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_wakes_with_the_head() {
    let model = model().await;
    let mut tail = tail(model.clone()).await;
    let started = Instant::now();
    let (rows, ()) = tokio::join!(seqs(&mut tail, 10), async {
        tokio::task::yield_now().await;
        publish(&*model, 0..1).await;
    });
    assert_eq!(rows, [1]);
    assert!(started.elapsed() < POLL_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_one_poll() {
    for deaf in [Deaf::Silent, Deaf::Closed] {
        let model = model().await;
        let mut tail = tail(Arc::new(Holed::new(model.clone()).deaf(deaf))).await;
        let started = Instant::now();
        let (rows, ()) = tokio::join!(seqs(&mut tail, 10), async {
            tokio::task::yield_now().await;
            publish(&*model, 0..1).await;
        });
        assert_eq!(rows, [1]);
        let late = started.elapsed() - POLL_INTERVAL;
        assert!(late < Duration::from_millis(10), "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_a_wait_loses_nothing() {
    let model = model().await;
    let mut tail = tail(model.clone()).await;
    for nth in 0..20 {
        let given_up = timeout(Duration::from_millis(7 * nth as u64), tail.next_rows(9)).await;
        assert!(given_up.is_err());
    }
    publish(&*model, 0..3).await;
    assert_eq!(seqs(&mut tail, 9).await, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_below_the_floor_is_an_error() {
    let model = model().await;
    publish(&*model, 0..5).await;
    let mut tail = tail(model.clone()).await;
    assert_eq!(seqs(&mut tail, 1).await, [1]);
    let trim = Command { at: UnixSeconds(0).into(), act: Act::Trim(Seq(3)) };
    model.apply([trim].into()).await.unwrap();
    let truncated = FeedError::Cursor(CursorError::Truncated { floor: Seq(3) });
    assert_eq!(tail.next_rows(9).await, Err(truncated.clone()));
    assert_eq!(tail.rows_so_far(9).await, Err(truncated));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_feed_is_an_error() {
    let model = model().await;
    publish(&*model, 0..2).await;
    let diverged = FeedError::Cursor(CursorError::Diverged { head: Seq(2) });
    for (epoch, seq) in [(7, 1), (0, 3)] {
        let (epoch, seq) = (Epoch(epoch), Seq(seq));
        let mut tail = Tail::new(model.clone(), Cursor { epoch, seq }, POLL_INTERVAL);
        assert_eq!(tail.next_rows(9).await, Err(diverged.clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hole_is_an_error_and_the_reader_stays_before_it() {
    let model = model().await;
    publish(&*model, 0..5).await;
    let mut tail = tail(Arc::new(Holed::new(model).missing(Seq(3)))).await;
    assert_eq!(seqs(&mut tail, 2).await, [1, 2]);
    let hole = FeedError::Hole { after: Seq(2) };
    assert_eq!(tail.next_rows(9).await, Err(hole.clone()));
    assert_eq!(tail.rows_so_far(9).await, Err(hole));
    assert_eq!(tail.cursor().seq, Seq(2));
}
