//! Many documents in many topics: more than a question looks at, in segments that are merged and thinned
//! out meanwhile, and in another order than that of time.

use kukuri_core::TopicId;
use kukuri_event::UnixSeconds;
use kukuri_feed::{Generation, Sample};
use kukuri_index::{Ask, CANDIDATES_MAX, Cursor, Model, Start};
use kukuri_testkit::generate::{Dice, Seed};

use crate::rig::Rig;
use crate::scene::{HEAD, NOW, Post, Scene, post, topic};

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);
const TOPICS: usize = 20;
const BATCHES: i64 = 40;
const POSTS_PER_BATCH: i64 = 150;
const SECONDS_PER_POST: i64 = 20;

/// Each post has the first word, half of them the second, few the last.
fn content(dice: &mut Dice, nth: i64) -> String {
    let second = if dice.chance(50) { "half" } else { "other" };
    format!("all {second} {} 東京 w{nth}", "filler ".repeat(dice.below(4)))
}

fn asks(topics: &[TopicId], dice: &mut Dice) -> Vec<Ask> {
    let start = Start::First { now: UnixSeconds(NOW) };
    let words = ["all", "half all", "\"all half\"", "w17", "w5999", "東京 half", "nothing all"];
    let mut asks = Vec::new();
    for text in words {
        for count in [1, 3, TOPICS] {
            let from = dice.below(TOPICS - count + 1);
            let topics = topics[from..from + count].to_vec();
            asks.push(Ask::new(text, topics, start).expect("words can be asked for"));
        }
    }
    let hours = dice.range(1..30);
    asks.push(Ask { until: Some(UnixSeconds(NOW - hours * 3600)), ..asks[2].clone() });
    asks
}

#[tokio::test]
async fn both_find_the_newest_of_many_in_any_number_of_topics() {
    let seed = Seed::of_run("both_find_the_newest_of_many_in_any_number_of_topics");
    let mut dice = seed.dice();
    let topics: Vec<TopicId> = (0..TOPICS).map(|nth| topic(&nth.to_string())).collect();
    let rigs = Rig::both().await;
    for rig in &rigs {
        rig.create(FIRST).await;
    }
    let mut model = Model::default();
    let mut here: Vec<(TopicId, Post)> = Vec::new();
    for batch in 0..BATCHES {
        let mut scene = Scene::after(batch * POSTS_PER_BATCH);
        // Old news come last, now and then.
        let place = if batch % 7 == 3 { batch - 3 } else { batch };
        // A purge leaves little of what was there.
        while batch == BATCHES / 2 && here.len() > 500 {
            let (topic, post) = here.swap_remove(dice.below(here.len()));
            scene.leave(&topic, &post, 0);
        }
        for nth in 0..POSTS_PER_BATCH {
            let id = batch * POSTS_PER_BATCH + nth;
            let age =
                (BATCHES * POSTS_PER_BATCH - place * POSTS_PER_BATCH - nth) * SECONDS_PER_POST;
            let post = post(id as u64 + 1, &content(&mut dice, id));
            let post = Post { created_at: NOW - age, ..post };
            let topic = dice.pick(&topics).clone();
            scene.arrive(&topic, &post);
            here.push((topic, post));
        }
        let effects = scene.finish();
        model.apply(effects.clone());
        for rig in &rigs {
            rig.apply(FIRST, effects.clone()).await;
        }
    }
    let mut full = 0;
    for ask in asks(&topics, &mut dice) {
        let expected = model.search(&ask, HEAD);
        full += usize::from(model_hits(&model, &ask) >= CANDIDATES_MAX);
        for rig in &rigs {
            assert_eq!(rig.search(FIRST, &ask).await, expected, "{}: {ask:?}", rig.name);
        }
    }
    assert!(full > 0, "some questions match more than is ranked");
    for rig in &rigs {
        rig.create(SECOND).await;
        rig.apply(SECOND, model.effects()).await;
        let (one, other) =
            (rig.digest(FIRST, Sample::All).await, rig.digest(SECOND, Sample::All).await);
        assert_eq!(one, other, "{}: incremental = rebuilt", rig.name);
    }
}

/// How many results there are on all pages.
fn model_hits(model: &Model, ask: &Ask) -> usize {
    let mut ask = ask.clone();
    let mut hits = 0;
    loop {
        let page = model.search(&ask, HEAD);
        hits += page.hits.len();
        let Some(next) = page.next else { return hits };
        ask.start = Start::After(Cursor::parse(&next.to_string()).expect("our own cursor"));
    }
}
