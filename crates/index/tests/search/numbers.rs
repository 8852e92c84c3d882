//! Two documents that want one number. An author can look for such events, which take some ten thousand
//! tries; whatever is done with them, the index holds what one holds that is built at once.

use std::collections::HashMap;

use kukuri_event::{EventId, Pubkey, UnixSeconds};
use kukuri_feed::{Generation, Sample};
use kukuri_index::{
    Ask, DocumentKey, Effects, Endorsement, EndorsementSort, Model, Number, Start, Target,
};
use kukuri_testkit::generate::{Dice, Seed};

use crate::rig::Rig;
use crate::scene::{HEAD, NOW, Post, Scene, post, topic};

const FIRST: Generation = Generation(1);

/// Events among which there are some thirty such pairs.
const TRIES: u64 = 200_000;
const PAIRS_MIN: usize = 10;
const BATCHES: usize = 120;
const STEPS_PER_BATCH: usize = 12;
/// Notes that stay, so that no segment is written again as soon as something leaves.
const BYSTANDERS: u64 = 8;

fn key(id: u64) -> DocumentKey {
    DocumentKey { event_id: Post::id_of(id), topic_id: topic("main") }
}

/// Notes of one second whose first numbers are the same, two by two, with no word in common.
fn pairs() -> Vec<[Post; 2]> {
    let topic_id = topic("main");
    let mut wanted: HashMap<Number, u64> = HashMap::new();
    let mut pairs = Vec::new();
    for id in 1..=TRIES {
        let key = DocumentKey { event_id: Post::id_of(id), topic_id: topic_id.clone() };
        let [number, ..] = Number::choices(UnixSeconds(NOW), &key);
        if let Some(other) = wanted.insert(number, id) {
            pairs.push([other, id].map(|id| post(id, &format!("note{id} word{id}"))));
        }
    }
    assert!(pairs.len() >= PAIRS_MIN, "{} pairs", pairs.len());
    pairs
}

fn bystanders() -> Vec<Post> {
    (1..=BYSTANDERS).map(|nth| post(TRIES + nth, &format!("bystander{nth}"))).collect()
}

/// An index and the model that is told the same.
struct Told<'a> {
    rig: &'a Rig,
    model: Model,
}

impl Told<'_> {
    async fn apply(&mut self, effects: Effects) {
        self.model.apply(effects.clone());
        self.rig.apply(FIRST, effects).await;
    }

    async fn tell(&mut self, gone: &[&Post], come: &[&Post]) {
        let mut scene = Scene::default();
        gone.iter().for_each(|post| scene.leave(&topic("main"), post, 0));
        for post in come {
            scene.arrive(&topic("main"), post);
        }
        self.apply(scene.finish()).await;
    }

    async fn assert_as_rebuilt(&self, step: &str) {
        let told = self.rig.digest(FIRST, Sample::All).await;
        let rebuilt = self.rig.fresh(self.model.effects()).await;
        assert_eq!(told, rebuilt, "{}: {step}: incremental = rebuilt", self.rig.name);
    }

    async fn assert_finds(&self, asked: &Post, found: bool) {
        let start = Start::First { now: UnixSeconds(NOW) };
        let ask = Ask::new(&asked.content, vec![topic("main")], start).expect("words");
        for hits in [self.rig.search(FIRST, &ask).await.hits, self.model.search(&ask, HEAD).hits] {
            let ids: Vec<_> = hits.iter().map(|hit| hit.event_id).collect();
            let expected = found.then(|| Post::id_of(asked.id));
            assert_eq!(ids, expected.as_slice(), "{}: {}", self.rig.name, asked.content);
        }
    }
}

/// What had left was found by the number of its successor, and a rebuild differed.
#[tokio::test]
async fn a_number_is_not_used_again_while_words_lead_to_it() {
    let [one, other] = pairs().swap_remove(0);
    assert_eq!(
        Number::choices(UnixSeconds(NOW), &key(one.id))[0],
        Number::choices(UnixSeconds(NOW), &key(other.id))[0]
    );
    let (bystanders, more) = (bystanders(), post(TRIES + 100, "more"));
    for rig in Rig::both().await {
        rig.create(FIRST).await;
        let mut told = Told { rig: &rig, model: Model::default() };
        let mut first: Vec<&Post> = bystanders.iter().collect();
        first.push(&one);
        told.tell(&[], &first).await;
        told.tell(&[&one], &[]).await;
        told.tell(&[], &[&other]).await;
        told.assert_as_rebuilt("after the other").await;
        told.assert_finds(&one, false).await;
        told.assert_finds(&other, true).await;
        // Both ways at once, and back again.
        told.tell(&[&other], &[&one]).await;
        told.assert_as_rebuilt("in one batch").await;
        told.assert_finds(&one, true).await;
        told.assert_finds(&other, false).await;
        told.tell(&[], &[&other, &more]).await;
        told.assert_as_rebuilt("both").await;
        told.tell(&[&one], &[]).await;
        told.assert_as_rebuilt("the other stays").await;
        told.assert_finds(&other, true).await;
    }
}

/// Comes and goes with all pairs.
fn steps(dice: &mut Dice, posts: &[Post], here: &mut [bool], seq: i64) -> Effects {
    let mut scene = Scene::after(seq);
    for _ in 0..STEPS_PER_BATCH {
        let place = dice.below(posts.len());
        match here[place] {
            true => scene.leave(&topic("main"), &posts[place], 0),
            false => {
                scene.arrive(&topic("main"), &posts[place]);
            }
        }
        here[place] = !here[place];
    }
    scene.finish()
}

#[tokio::test]
async fn documents_that_want_one_number_come_and_go_as_any_others() {
    let seed = Seed::of_run("documents_that_want_one_number_come_and_go_as_any_others");
    let posts: Vec<Post> = pairs().into_iter().take(PAIRS_MIN).flatten().collect();
    for rig in Rig::both().await {
        let (mut dice, mut here) = (seed.dice(), vec![false; posts.len()]);
        rig.create(FIRST).await;
        let mut told = Told { rig: &rig, model: Model::default() };
        told.tell(&[], &bystanders().iter().collect::<Vec<_>>()).await;
        for nth in 0..BATCHES {
            let seq = (nth * STEPS_PER_BATCH) as i64;
            told.apply(steps(&mut dice, &posts, &mut here, seq)).await;
            let (place, step) = (dice.below(posts.len()), format!("batch {nth}"));
            told.assert_finds(&posts[place], here[place]).await;
            if nth % 10 == 9 {
                told.assert_as_rebuilt(&step).await;
            }
        }
        // What is remembered of those that have left goes with the segments they were in.
        let remembered = "SELECT COUNT(*) FROM post_search_departed_g1 WHERE segment NOT IN
            (SELECT segment FROM post_search_segments_g1)";
        assert_eq!(rig.rows(remembered).await, [[0]], "{}", rig.name);
    }
}

/// Replies to some notes, by ids that begin with the same eight bytes.
fn replies(notes: &[Post]) -> Vec<Endorsement> {
    let reply = |(nth, note): (usize, &Post)| {
        let mut id = [7; 32];
        id[8] = nth as u8;
        Endorsement {
            target: Target::event(Post::id_of(note.id)),
            author: Pubkey::from_bytes([nth as u8 + 1; 32]),
            sort: EndorsementSort::Reply,
            event_id: EventId::from_bytes(id),
        }
    };
    notes.iter().enumerate().map(reply).collect()
}

/// Of two that begin alike, which take some billions of tries, one was taken for the other.
#[tokio::test]
async fn endorsements_whose_ids_begin_alike_count_each() {
    let notes = [post(1, "note one"), post(2, "note two"), post(3, "note three")];
    let replies = replies(&notes);
    let told_of = |nth: &[usize], here: bool| {
        let reply = |nth: &usize| (replies[*nth].event_id, here.then_some(replies[*nth]));
        Effects { endorsements: nth.iter().map(reply).collect(), ..Effects::default() }
    };
    let start = Start::First { now: UnixSeconds(NOW) };
    let ask = Ask::new("note", vec![topic("main")], start).expect("a word");
    for rig in Rig::both().await {
        rig.create(FIRST).await;
        let mut told = Told { rig: &rig, model: Model::default() };
        told.tell(&[], &notes.iter().collect::<Vec<_>>()).await;
        for (nth, here) in [(&[0][..], true), (&[1, 2], true), (&[0], false), (&[1, 2], false)] {
            told.apply(told_of(nth, here)).await;
            let step = format!("{nth:?} {here}");
            told.assert_as_rebuilt(&step).await;
            let found = rig.search(FIRST, &ask).await;
            assert_eq!(found, told.model.search(&ask, HEAD), "{}: {step}", rig.name);
        }
    }
}
