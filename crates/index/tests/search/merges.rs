//! What is kept of documents in segments: what has left is counted where it is, merges go on over many
//! batches, and whatever state they are in, answers are those of the model.

use std::collections::BTreeSet;

use kukuri_event::UnixSeconds;
use kukuri_feed::{Generation, Sample};
use kukuri_index::{Ask, Effects, Model, Start};
use kukuri_testkit::generate::{Dice, Seed};

use crate::rig::Rig;
use crate::scene::{HEAD, NOW, Post, Scene, post, topic};

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

/// States of a segment, as they are in the column.
const WHOLE: i64 = 1;
const MADE: i64 = 3;
const SPENT: i64 = 4;

/// As many words that no other note has that a few batches are more than one takes along.
const WORDS_PER_NOTE: usize = 150;
const NOTES_PER_BATCH: u64 = 300;
const BATCHES: u64 = 30;
/// What a batch writes and takes along at most, for each block of its own, and more if it has few.
const BLOCKS_PER_BLOCK_MAX: i64 = 5;
const BLOCKS_TAKEN_ALONG: i64 = 1024;
/// The ends of parts lie between blocks.
const BLOCKS_SLACK: i64 = 64;

fn ask(text: &str) -> Ask {
    let start = Start::First { now: UnixSeconds(NOW) };
    Ask::new(text, vec![topic("main")], start).expect("words can be asked for")
}

fn leave(posts: &[Post]) -> Effects {
    let mut scene = Scene::default();
    posts.iter().for_each(|post| scene.leave(&topic("main"), post, 0));
    scene.finish()
}

fn arrive(posts: &[Post]) -> Effects {
    let mut scene = Scene::default();
    for post in posts {
        scene.arrive(&topic("main"), post);
    }
    scene.finish()
}

/// A removed document used to count in every segment whose time it was of, so that segments which had lost
/// nothing were written again and again.
#[tokio::test]
async fn what_has_left_is_counted_where_it_was() {
    let notes = |first: u64| -> Vec<Post> {
        let note = |nth: u64| {
            let id = first + nth * 2;
            Post { created_at: NOW - id as i64 * 3600, ..post(id, &format!("note w{id}")) }
        };
        (0..100).map(note).collect()
    };
    let (even, odd) = (notes(0), notes(1));
    for rig in Rig::both().await {
        rig.create(FIRST).await;
        rig.apply(FIRST, arrive(&even)).await;
        rig.apply(FIRST, arrive(&odd)).await;
        let sql = "SELECT documents, removed FROM post_search_segments_g1 ORDER BY segment";
        rig.apply(FIRST, leave(&even[..49])).await;
        assert_eq!(rig.rows(sql).await, [[100, 49], [100, 0]], "{}", rig.name);
        // The same is not told twice.
        rig.apply(FIRST, leave(&even[..49])).await;
        assert_eq!(rig.rows(sql).await, [[100, 49], [100, 0]], "{}", rig.name);
        rig.apply(FIRST, leave(&even[49..50])).await;
        assert_eq!(rig.rows(sql).await, [[100, 0], [50, 0]], "{}: half has left", rig.name);
        rig.apply(FIRST, leave(&odd)).await;
        assert_eq!(rig.rows(sql).await, [[50, 0]], "{}: all has left", rig.name);
        assert_eq!(rig.search(FIRST, &ask("note")).await.hits.len(), 50, "{}", rig.name);
    }
}

/// Notes of one batch, whose times are among those of the others.
fn batch(dice: &mut Dice, nth: u64) -> Vec<Post> {
    let note = |dice: &mut Dice, id: u64| {
        let words: Vec<String> = (0..WORDS_PER_NOTE).map(|word| format!("n{id}x{word}")).collect();
        let common = if dice.chance(50) { "often" } else { "seldom" };
        let post = post(id + 1, &format!("all {common} {}", words.join(" ")));
        Post { created_at: NOW - dice.range(0..30 * 86_400), ..post }
    };
    (0..NOTES_PER_BATCH).map(|one| note(dice, nth * NOTES_PER_BATCH + one)).collect()
}

#[tokio::test]
async fn merges_go_on_over_batches_and_nobody_notices() {
    let seed = Seed::of_run("merges_go_on_over_batches_and_nobody_notices");
    for rig in Rig::both().await {
        let mut dice = seed.dice();
        rig.create(FIRST).await;
        let (mut model, mut here, mut states) = (Model::default(), Vec::new(), BTreeSet::new());
        for nth in 0..BATCHES {
            let notes = batch(&mut dice, nth);
            let mut scene = Scene::after((nth * NOTES_PER_BATCH) as i64);
            // Some have left before the next merge begins, and some while it is under way.
            for _ in 0..dice.below(here.len() / 4 + 1) {
                scene.leave(&topic("main"), &here.swap_remove(dice.below(here.len())), 0);
            }
            notes.iter().for_each(|note| {
                scene.arrive(&topic("main"), note);
            });
            here.extend(notes);
            let effects = scene.finish();
            model.apply(effects.clone());
            let written = written(&rig, effects).await;
            assert!(written.all <= written.allowed(), "{}: {written:?}", rig.name);
            states.extend(rig.rows::<1>("SELECT state FROM post_search_segments_g1").await);
            let some = dice.below(NOTES_PER_BATCH as usize * (nth as usize + 1));
            for text in ["often", "all seldom", "often seldom", &format!("n{some}x7")] {
                let expected = model.search(&ask(text), HEAD);
                let found = rig.search(FIRST, &ask(text)).await;
                assert_eq!(found, expected, "{}: batch {nth}: {text}", rig.name);
            }
            let held = "SELECT (SELECT COUNT(*) FROM post_search_documents_g1),
                CAST(SUM(documents - removed) AS BIGINT) FROM post_search_segments_g1 WHERE state IN (1, 2)";
            let [[documents, in_segments]] = rig.rows::<2>(held).await[..] else { panic!() };
            assert_eq!(documents, in_segments, "{}: batch {nth}: counted exactly", rig.name);
        }
        assert!(states.contains(&[MADE]) && states.contains(&[SPENT]), "{}: {states:?}", rig.name);
        rig.create(SECOND).await;
        rig.apply(SECOND, model.effects()).await;
        let (one, other) =
            (rig.digest(FIRST, Sample::All).await, rig.digest(SECOND, Sample::All).await);
        assert_eq!(one, other, "{}: incremental = rebuilt", rig.name);
        // What is due is done in the end, and nothing is left behind.
        let open = format!("SELECT COUNT(*) FROM post_search_segments_g1 WHERE state <> {WHOLE}");
        let mut told = 0;
        while rig.rows::<1>(&open).await != [[0]] {
            told += 1;
            assert!(told < 100, "{}: merges end", rig.name);
            rig.apply(FIRST, arrive(&[post(1_000_000 + told, "one more")])).await;
        }
        let lost = "SELECT COUNT(*) FROM post_search_blocks_g1 WHERE segment NOT IN
            (SELECT segment FROM post_search_segments_g1)";
        assert_eq!(rig.rows(lost).await, [[0]], "{}", rig.name);
    }
}

/// A merge of several parts that keeps nothing used to stay open for ever, and no other one was begun.
#[tokio::test]
async fn a_merge_that_keeps_nothing_ends() {
    let seed = Seed::of_run("a_merge_that_keeps_nothing_ends");
    for rig in Rig::both().await {
        let mut dice = seed.dice();
        rig.create(FIRST).await;
        let notes: Vec<Post> = (0..3).flat_map(|nth| batch(&mut dice, nth)).collect();
        rig.apply(FIRST, arrive(&notes)).await;
        rig.apply(FIRST, leave(&notes)).await;
        let made = format!("SELECT COUNT(*) FROM post_search_segments_g1 WHERE state = {MADE}");
        assert_eq!(rig.rows(&made).await, [[1]], "{}: one part is not all", rig.name);
        let left = format!("SELECT COUNT(*) FROM post_search_segments_g1 WHERE state <> {WHOLE}");
        let mut told = 0;
        while rig.rows::<1>(&left).await != [[0]] {
            told += 1;
            assert!(told < 100, "{}: it ends", rig.name);
            rig.apply(FIRST, arrive(&[post(1_000_000 + told, "one more")])).await;
        }
        assert_eq!(rig.search(FIRST, &ask("all")).await.hits.len(), 0, "{}", rig.name);
    }
}

/// Blocks that a batch has written: of its own segment, and of one that is made of others.
#[derive(Debug)]
struct Written {
    own: i64,
    all: i64,
}

impl Written {
    fn allowed(&self) -> i64 {
        let more = BLOCKS_TAKEN_ALONG.max(self.own * (BLOCKS_PER_BLOCK_MAX - 1));
        self.own + more + BLOCKS_SLACK
    }
}

async fn written(rig: &Rig, effects: Effects) -> Written {
    let sql =
        "SELECT segment, COUNT(*) FROM post_search_blocks_g1 GROUP BY segment ORDER BY segment";
    let before = rig.rows::<2>(sql).await;
    let newest = "SELECT COALESCE(MAX(segment), 0) FROM post_search_segments_g1";
    let [[newest]] = rig.rows(newest).await[..] else { panic!("one row") };
    rig.apply(FIRST, effects).await;
    let of = |rows: &[[i64; 2]], segment: i64| {
        rows.iter().find(|[one, _]| *one == segment).map_or(0, |[_, blocks]| *blocks)
    };
    let after = rig.rows::<2>(sql).await;
    let grown = |[segment, blocks]: &[i64; 2]| (blocks - of(&before, *segment)).max(0);
    let own = of(&after, newest + 1);
    Written { own, all: after.iter().map(grown).sum() }
}

/// To count who endorses a note, all that they had said was read each time one of them spoke again.
#[tokio::test]
async fn a_voice_is_kept_once_however_often_it_speaks() {
    let reply = |id: u64, author: u64| Post {
        author,
        tags: vec![vec!["e".to_owned(), Post::id_of(1).to_hex()]],
        ..post(id, "reply")
    };
    let often: Vec<Post> = (0..300).map(|nth| reply(100 + nth, 7)).collect();
    let others: Vec<Post> = (0..5).map(|nth| reply(1000 + nth, 10 + nth)).collect();
    for rig in Rig::both().await {
        rig.create(FIRST).await;
        let mut model = Model::default();
        let target = [post(1, "target")];
        let steps: [(Effects, &[i64]); 7] = [
            (arrive(&often[..100]), &[100]),
            (arrive(&target), &[100]),
            (arrive(&often[100..]), &[300]),
            (arrive(&others), &[1, 1, 1, 1, 1, 300]),
            (arrive(&often[..50]), &[1, 1, 1, 1, 1, 300]),
            (leave(&often[1..]), &[1, 1, 1, 1, 1, 1]),
            (leave(&[&often[..1], &others[..2]].concat()), &[1, 1, 1]),
        ];
        for (nth, (effects, events)) in steps.into_iter().enumerate() {
            model.apply(effects.clone());
            rig.apply(FIRST, effects).await;
            let sql = "SELECT events FROM post_search_voices_g1 ORDER BY events";
            let heard: Vec<i64> = rig.rows::<1>(sql).await.concat();
            assert_eq!(heard, events, "{}: step {nth}", rig.name);
            let ask = ask("target");
            assert_eq!(rig.search(FIRST, &ask).await, model.search(&ask, HEAD), "{}", rig.name);
        }
    }
}
