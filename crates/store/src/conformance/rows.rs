//! The feed: gapless, durable, and never a short read.

use kukuri_core::{
    Act, Cursor, CursorError, Epoch, FeedBounds, FeedRow, Op, Outcome, Reason, Seq, Source,
    UnixMillis, UnlinkReason,
};

use super::scene::{
    NOW, PLENTY, PURGE, Scene, alice, article, briefs, delete, id, key, note, second, topic,
    topics, unlink,
};
use crate::FeedError;

async fn bounds(scene: &Scene) -> FeedBounds {
    scene.store().bounds().await.expect("the feed has bounds")
}

async fn after(scene: &Scene, seq: i64, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
    let epoch = bounds(scene).await.epoch;
    let seq = Seq(seq);
    scene.store().feed(Cursor { epoch, seq }, rows_max).await
}

fn seqs(rows: &[FeedRow]) -> Vec<i64> {
    rows.iter().map(|row| row.seq.0).collect()
}

/// Five rows in three batches, one of which has none.
async fn five_rows(scene: &Scene) -> Vec<FeedRow> {
    scene.carry("ab").await;
    let publish = |event| Act::Publish(event);
    let mut rows = Vec::new();
    for acts in [
        vec![publish(note(1, "ab")), publish(note(2, "a"))],
        vec![publish(note(1, "ab"))],
        vec![publish(note(3, "b")), unlink('a', &[&note(2, "a")], UnlinkReason::Topic)],
    ] {
        let decision = scene.batch(acts).await;
        assert_eq!(decision.base.0, i64::try_from(rows.len()).expect("a handful"));
        rows.extend(decision.rows);
    }
    rows
}

pub async fn seqs_are_gapless_across_batches(scene: Scene) {
    let decided = five_rows(&scene).await;
    assert_eq!(seqs(&decided), [1, 2, 3, 4, 5]);
    let FeedBounds { floor, head, .. } = bounds(&scene).await;
    assert_eq!((floor, head), (Seq::ZERO, Seq(5)));
    assert_eq!(after(&scene, 0, PLENTY).await, Ok(decided));
}

pub async fn the_feed_is_read_in_pages(scene: Scene) {
    let decided = five_rows(&scene).await;
    let page = async |from, most| seqs(&after(&scene, from, most).await.expect("it is read"));
    assert_eq!(page(0, 2).await, [1, 2]);
    assert_eq!(page(2, 2).await, [3, 4]);
    assert_eq!(page(4, 2).await, [5]);
    assert!(page(5, 2).await.is_empty());
    assert!(page(0, 0).await.is_empty());
    assert_eq!(after(&scene, 3, PLENTY).await.as_deref(), Ok(&decided[3..]));
}

pub async fn a_cursor_of_another_life_diverges(scene: Scene) {
    five_rows(&scene).await;
    let FeedBounds { epoch, head, .. } = bounds(&scene).await;
    let elsewhere = Cursor { epoch: Epoch(epoch.0.wrapping_add(1)), seq: Seq(1) };
    let diverged = FeedError::Cursor(CursorError::Diverged { head });
    assert_eq!(scene.store().feed(elsewhere, PLENTY).await, Err(diverged));
}

pub async fn a_cursor_beyond_the_head_diverges(scene: Scene) {
    five_rows(&scene).await;
    let diverged = FeedError::Cursor(CursorError::Diverged { head: Seq(5) });
    assert_eq!(after(&scene, 5, PLENTY).await, Ok(vec![]));
    assert_eq!(after(&scene, 6, PLENTY).await, Err(diverged));
}

pub async fn a_cursor_below_the_floor_is_truncated(scene: Scene) {
    let decided = five_rows(&scene).await;
    assert_eq!(scene.act(Act::Trim(Seq(3))).await, (Outcome::Done, vec![]));
    let FeedBounds { floor, head, .. } = bounds(&scene).await;
    assert_eq!((floor, head), (Seq(3), Seq(5)));
    let truncated = FeedError::Cursor(CursorError::Truncated { floor: Seq(3) });
    for seq in [0, 2] {
        assert_eq!(after(&scene, seq, PLENTY).await, Err(truncated.clone()));
    }
    assert_eq!(after(&scene, 3, PLENTY).await.as_deref(), Ok(&decided[3..]));
    // With every row gone the head still stands, and the next row continues it.
    assert_eq!(scene.act(Act::Trim(Seq(i64::MAX))).await, (Outcome::Done, vec![]));
    assert_eq!(bounds(&scene).await.floor, Seq(5), "a feed is not cut beyond its head");
    assert_eq!(scene.act(Act::Trim(Seq(4))).await, (Outcome::Done, vec![]));
    assert_eq!(bounds(&scene).await.floor, Seq(5), "a floor does not sink");
    assert_eq!(after(&scene, 5, PLENTY).await, Ok(vec![]));
    let decision = scene.batch(vec![Act::Publish(note(7, "a"))]).await;
    assert_eq!(seqs(&decision.rows), [6]);
}

pub async fn heads_follow_commits(scene: Scene) {
    let mut heads = scene.store().heads();
    five_rows(&scene).await;
    let reached = heads.wait_for(|head| *head >= Seq(5)).await;
    assert_eq!(reached.map(|head| *head).ok(), Some(Seq(5)));
    let late = scene.store().heads();
    assert_eq!(*late.borrow(), Seq(5));
}

/// What a store remembers of its own commits, if it does, is what it would read.
pub async fn what_was_just_written_begins_the_feed(scene: Scene) {
    five_rows(&scene).await;
    let epoch = bounds(&scene).await.epoch;
    for seq in (-1..7).map(Seq) {
        for rows_max in [0, 1, 3, PLENTY] {
            let Some(recent) = scene.store().recent(Cursor { epoch, seq }, rows_max) else {
                continue;
            };
            assert!(!recent.is_empty(), "where the feed ends is not for it to say");
            assert_eq!(after(&scene, seq.0, recent.len()).await.as_ref(), Ok(&recent));
            assert!(recent.len() <= rows_max);
        }
        let elsewhere = Cursor { epoch: Epoch(epoch.0 + 1), seq };
        assert_eq!(scene.store().recent(elsewhere, PLENTY), None);
    }
}

pub async fn deletes_need_no_body(scene: Scene) {
    scene.carry("a").await;
    let event = article("x", 1, "a");
    scene.given(&[&event]).await;
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    let rows = after(&scene, 1, PLENTY).await.expect("it is read");
    assert_eq!(briefs(&rows), [delete(&event, 'a', "", Reason::Retention)]);
    let row = &rows[0];
    assert_eq!((row.pubkey, row.kind), (alice().pubkey(), event.event().kind()));
    assert_eq!(row.effective_key, Some(key(&event)));
    assert_eq!(row.source, Source::Node);
}

pub async fn a_row_carries_everything(scene: Scene) {
    scene.carry("ab").await;
    let event = article("a\0b", 1, "ab");
    scene.given(&[&event]).await;
    let rows = after(&scene, 1, PLENTY).await.expect("it is read");
    let expected = FeedRow {
        seq: Seq(2),
        op: Op::Upsert,
        event_id: id(&event),
        topic_id: topic('b'),
        prior: topics("a"),
        kind: event.event().kind(),
        pubkey: alice().pubkey(),
        created_at: second(1),
        ingested_at: UnixMillis::from(NOW),
        effective_key: Some(key(&event)),
        reason: None,
        source: Source::Ws,
        via: None,
    };
    assert_eq!(rows, [expected]);
}
