//! Both databases answer as the model does, whatever has happened, and a generation that is built at
//! once holds what one holds that has followed every step.

use kukuri_core::TopicId;
use kukuri_event::UnixSeconds;
use kukuri_feed::{Generation, Sample};
use kukuri_index::{Ask, Effects, Model, Start};
use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::judged::HOSTILE;

use crate::corpus::Corpus;
use crate::rig::Rig;
use crate::scene::{HEAD, NOW, Post, Scene, topic};

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

const BATCHES: usize = 25;
const STEPS_PER_BATCH: usize = 30;
const POSTS: usize = 60;

/// Words of several scripts, some of which begin alike or stand in each other.
const WORDS: &[&str] = &[
    "猫",
    "東京",
    "東京都",
    "京都",
    "ラーメン",
    "サーバー",
    "rust",
    "rusty",
    "#rust",
    "Bitcoin",
    "🎉",
    "학습",
    "的",
    "the",
    "of",
    "北京大学",
];

/// Voices whose events are not those that there are.
const VOICES_AMISS: &str = "SELECT COUNT(*) FROM
    (SELECT target, author, sort, COUNT(*) AS events FROM post_search_endorsements_g1
        GROUP BY target, author, sort) AS told
    FULL JOIN post_search_voices_g1 AS kept ON kept.target = told.target
        AND kept.author = told.author AND kept.sort = told.sort AND kept.events = told.events
    WHERE told.target IS NULL OR kept.target IS NULL";

#[tokio::test]
async fn both_answer_judged_questions_as_people_expect() {
    let corpus = Corpus::read();
    let mut model = Model::default();
    model.apply(corpus.effects());
    for rig in Rig::both().await {
        rig.create(FIRST).await;
        rig.apply(FIRST, corpus.effects()).await;
        for query in &corpus.queries {
            let ask = corpus.ask(query);
            let page = rig.search(FIRST, &ask).await;
            let faults = corpus.faults(query, &page);
            assert!(faults.is_empty(), "{}: {}", rig.name, faults.join("\n"));
            assert_eq!(page, model.search(&ask, HEAD), "{}: {}", rig.name, query.ask);
        }
    }
}

#[tokio::test]
async fn both_answer_hostile_questions_as_the_model_does() {
    let corpus = Corpus::read();
    let mut model = Model::default();
    model.apply(corpus.effects());
    let rigs = Rig::both().await;
    for rig in &rigs {
        rig.create(FIRST).await;
        rig.apply(FIRST, corpus.effects()).await;
    }
    // What a query of its own would do to the tables, if it were one, the next questions would notice.
    for text in HOSTILE.iter().chain(["rust", "猫"].iter()) {
        let start = Start::First { now: UnixSeconds(NOW) };
        let Ok(ask) = Ask::new(text, vec![topic("main")], start) else { continue };
        for rig in &rigs {
            let page = rig.search(FIRST, &ask).await;
            assert_eq!(page, model.search(&ask, HEAD), "{}: {text:?}", rig.name);
        }
    }
}

#[tokio::test]
async fn both_follow_any_history_as_the_model_does() {
    let seed = Seed::of_run("both_follow_any_history_as_the_model_does");
    let rigs = Rig::both().await;
    for rig in &rigs {
        rig.create(FIRST).await;
    }
    let mut history = History::new(seed.dice());
    let mut model = Model::default();
    for _ in 0..BATCHES {
        let effects = history.batch();
        model.apply(effects.clone());
        // Some batches are told twice, as after a crash whose commit was in doubt.
        let times = if history.dice.chance(20) { 2 } else { 1 };
        let asks: Vec<Ask> = (0..10).map(|_| history.ask()).collect();
        for rig in &rigs {
            for _ in 0..times {
                rig.apply(FIRST, effects.clone()).await;
            }
            for ask in &asks {
                let page = rig.search(FIRST, ask).await;
                assert_eq!(page, model.search(ask, HEAD), "{}: {ask:?}", rig.name);
            }
        }
    }
    for rig in &rigs {
        rig.create(SECOND).await;
        rig.apply(SECOND, model.effects()).await;
        for sample in [Sample::All, Sample::FirstByte(history.dice.bytes()[0])] {
            let (one, other) = (rig.digest(FIRST, sample).await, rig.digest(SECOND, sample).await);
            assert_eq!(one, other, "{}: incremental = rebuilt", rig.name);
            assert!(one.rows > 0);
        }
        assert_eq!(rig.rows(VOICES_AMISS).await, [[0]], "{}: each voice is counted", rig.name);
        // And the digest would tell if anything were missing, words alone included.
        let missing = "DELETE FROM post_search_blocks_g2 WHERE segment IN
            (SELECT MIN(segment) FROM post_search_segments_g2)";
        let was = rig.digest(SECOND, Sample::All).await;
        let lost = rig.after(missing, SECOND).await;
        assert_ne!(lost, was, "{}: lost words", rig.name);
        assert_eq!(rig.digest(SECOND, Sample::All).await, was, "{}: put back", rig.name);
        rig.apply(SECOND, history.batch()).await;
        let (one, other) =
            (rig.digest(FIRST, Sample::All).await, rig.digest(SECOND, Sample::All).await);
        assert_ne!(one, other, "{}: another history", rig.name);
        rig.discard(SECOND).await;
        rig.create(SECOND).await;
        assert_eq!(rig.digest(SECOND, Sample::All).await.rows, 0, "{}", rig.name);
    }
}

/// What happens to some posts in some topics.
struct History {
    dice: Dice,
    topics: Vec<TopicId>,
    posts: Vec<Post>,
    /// Rows so far.
    rows: i64,
    /// In which topics each post is.
    places: Vec<Vec<TopicId>>,
}

impl History {
    fn new(mut dice: Dice) -> Self {
        let posts = (0..POSTS).map(|place| Self::post(&mut dice, place)).collect();
        let topics = ["one", "two", "three"].map(topic).into();
        Self { dice, topics, posts, rows: 0, places: vec![Vec::new(); POSTS] }
    }

    /// Notes, articles, reactions and replies to other posts, many in the same second.
    fn post(dice: &mut Dice, place: usize) -> Post {
        let kind = dice.weigh(&[(1, 6), (30023, 1), (7, 3), (4, 1), (6, 1)]);
        let mut tags = Vec::new();
        if place > 0 && (kind == 7 || kind == 6 || dice.chance(30)) {
            let target = Post::id_of(dice.below(place) as u64 + 1);
            tags.push(vec!["e".to_owned(), target.to_hex()]);
        }
        if kind == 30023 {
            tags.push(vec!["d".to_owned(), place.to_string()]);
        }
        let words: Vec<&str> = (0..dice.below(6) + 1).map(|_| *dice.pick(WORDS)).collect();
        Post {
            id: place as u64 + 1,
            author: dice.below(5) as u64 + 1,
            kind,
            created_at: NOW - dice.range(0..20) * 3600,
            tags,
            content: words.join(if dice.chance(50) { " " } else { "" }),
        }
    }

    fn batch(&mut self) -> Effects {
        let mut scene = Scene::after(self.rows);
        for _ in 0..STEPS_PER_BATCH {
            let place = self.dice.below(self.posts.len());
            let topic = self.dice.pick(&self.topics).clone();
            let (post, places) = (&self.posts[place], &mut self.places[place]);
            if places.contains(&topic) {
                places.retain(|other| *other != topic);
                scene.leave(&topic, post, places.len());
            } else {
                places.push(topic.clone());
                scene.arrive(&topic, post);
            }
            self.rows += 1;
        }
        scene.finish()
    }

    fn ask(&mut self) -> Ask {
        let words: Vec<&str> =
            (0..self.dice.below(2) + 1).map(|_| *self.dice.pick(WORDS)).collect();
        let text = match self.dice.below(3) {
            0 => format!("\"{}\"", words.join("")),
            1 => words.concat(),
            _ => words.join(" "),
        };
        let topics = self.dice.some(&self.topics, 3);
        let topics = if topics.is_empty() { self.topics.clone() } else { topics };
        let start = Start::First { now: UnixSeconds(NOW) };
        let mut ask = Ask::new(&text, topics, start).expect("words can be asked for");
        let time = |dice: &mut Dice| {
            let hours = dice.range(0..20);
            dice.chance(20).then_some(UnixSeconds(NOW - hours * 3600))
        };
        ask.since = time(&mut self.dice);
        ask.until = time(&mut self.dice);
        ask.hits_max = self.dice.below(20) + 1;
        ask
    }
}
