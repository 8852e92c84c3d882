//! What must hold for every text, history and page.

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;
use kukuri_index::{Ask, Cursor, Hit, Model, Page, Query, SNIPPET_CHARS_MAX, Start, snippet};
use proptest::prelude::*;

use crate::scene::{HEAD, NOW, Post, Scene, post, topic};

/// The best that can be: all weights together.
const SCORE_MAX: u32 = 1_000_000;

fn model(posts: &[Post]) -> Model {
    let mut scene = Scene::default();
    posts.iter().for_each(|post| {
        scene.arrive(&topic("main"), post);
    });
    let mut model = Model::default();
    model.apply(scene.finish());
    model
}

fn ask(text: &str) -> Ask {
    let start = Start::First { now: UnixSeconds(NOW) };
    Ask::new(text, vec![topic("main")], start).expect("the question can be asked")
}

/// Text without spaces: kanji, kana of both sorts and widths, hangul.
fn unspaced() -> impl Strategy<Value = String> {
    "[一二三日本語東京都猫犬あいうかがきゃアイウカガキャｱｲｳｶ가나다한국]{1,30}"
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-zA-ZäÖß0-9é]{1,8}", 1..12)
}

fn mixed() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![unspaced(), "[a-zA-Z]{1,6}", "[ ,.!。、#@🎉👍🏽❤️ｶﾞﾊﾟ]{1,3}", any::<String>()],
        0..12,
    )
    .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn text_without_spaces_is_found_by_every_part_of_it(
        text in unspaced(), from in 0_usize..30, count in 1_usize..30,
    ) {
        let chars: Vec<char> = text.chars().collect();
        let from = from % chars.len();
        let part: String = chars[from..].iter().take(count).collect();
        let found = model(&[post(1, &text)]).search(&ask(&part), HEAD);
        prop_assert_eq!(found.hits.len(), 1, "{} in {}", part, text);
    }

    #[test]
    fn text_with_spaces_is_found_by_its_words_in_any_case_and_order(
        words in words(), seed in any::<u64>(),
    ) {
        let text = words.join(" ");
        let mut some: Vec<String> = words.iter().enumerate()
            .filter(|(place, _)| seed >> place & 1 == 1)
            .map(|(_, word)| if seed & 64 == 0 { word.to_uppercase() } else { word.to_lowercase() })
            .collect();
        some.reverse();
        prop_assume!(!some.is_empty());
        let model = model(&[post(1, &text)]);
        prop_assert_eq!(model.search(&ask(&some.join(" ")), HEAD).hits.len(), 1);
        let phrase = format!("\"{}\"", words[words.len() / 2..].join(" "));
        prop_assert_eq!(model.search(&ask(&phrase), HEAD).hits.len(), 1);
        prop_assert_eq!(model.search(&ask(&format!("{text} zzzzzzzzz")), HEAD).hits.len(), 0);
    }

    #[test]
    fn scores_lie_between_nothing_and_all(
        text in mixed(), age in -900_i64..10_000_000, likes in 0_u64..130,
    ) {
        let mut scene = Scene::default();
        let main = topic("main");
        let content = format!("needle {text}");
        let post = Post { created_at: NOW - age, ..post(1, &content) };
        let id = scene.arrive(&main, &post);
        (0..likes).for_each(|liker| scene.like(id, liker, &main));
        let mut model = Model::default();
        model.apply(scene.finish());
        let found = model.search(&ask("needle"), HEAD);
        prop_assert_eq!(found.hits.len(), 1);
        prop_assert!(found.hits[0].score.0 <= SCORE_MAX);
    }

    #[test]
    fn pages_make_up_the_whole_answer_whatever_comes_meanwhile(
        ages in prop::collection::vec(0_i64..1_000_000, 1..40), hits_max in 1_usize..10,
    ) {
        let posts: Vec<Post> = ages.iter().zip(1..).map(|(age, id)| {
            let content = format!("needle {}", "hay ".repeat(id as usize % 7));
            Post { created_at: NOW - age, ..post(id, &content) }
        }).collect();
        let whole = model(&posts).search(&ask("needle"), HEAD);
        let mut scene = Scene::default();
        posts.iter().for_each(|post| { scene.arrive(&topic("main"), post); });
        let mut growing = Model::default();
        let mut found: Vec<Hit> = Vec::new();
        let mut start = ask("needle").start;
        for turn in 0.. {
            growing.apply(std::mem::take(&mut scene).finish());
            let question = Ask { start, hits_max, ..ask("needle") };
            let Page { mut hits, next } = growing.search(&question, Seq(posts.len() as i64 + turn));
            prop_assert!(hits.len() <= hits_max);
            found.append(&mut hits);
            let Some(cursor) = next else { break };
            start = Start::After(Cursor::parse(&cursor.to_string()).expect("our own cursor"));
            scene = Scene::after(posts.len() as i64 + turn);
            scene.arrive(&topic("main"), &post(1000 + turn as u64, "needle"));
        }
        prop_assert_eq!(found, whole.hits);
    }

    #[test]
    fn snippets_point_at_matches_inside_of_them(text in mixed(), word in "[a-z]{3,6}|[東京都猫]{1,3}") {
        let text = format!("{text} {word} {text}");
        let query = Query::parse(&word).expect("a word");
        let snippet = snippet(&query, &text);
        let chars: Vec<char> = snippet.text.chars().collect();
        prop_assert!(text.contains(&snippet.text) && chars.len() <= SNIPPET_CHARS_MAX);
        prop_assert!(!snippet.matches.is_empty(), "{:?} {:?}", word, snippet);
        let mut end = 0;
        for range in &snippet.matches {
            prop_assert!(end <= range.start && range.start < range.end && range.end <= chars.len());
            end = range.end;
            let shown: String = chars[range.clone()].iter().collect();
            let shown = Query::parse(&shown).expect("a match is a word");
            prop_assert!(query.terms().iter().all(|term| shown.terms().contains(term))
                || shown.terms().len() > query.terms().len(), "{:?}", snippet);
        }
    }

    /// A batch has the last word on each of its keys, so how a history is cut into batches does not
    /// matter, nor does telling a part of it twice.
    #[test]
    fn any_split_of_a_history_gives_the_same_documents(
        steps in prop::collection::vec((1_u64..6, 0_usize..3, 0_u8..4), 1..40),
        cut in 0_usize..40,
    ) {
        let topics = ["a", "b", "c"].map(topic);
        let play = |steps: &[(u64, usize, u8)], from: usize| {
            let mut scene = Scene::after(from as i64);
            for (id, place, what) in steps {
                let post = post(*id, &format!("text {id}"));
                match what {
                    0 => scene.leave(&topics[*place], &post, 0),
                    1 => scene.like(Post::id_of(*id), u64::from(*what), &topics[*place]),
                    _ => { scene.arrive(&topics[*place], &post); }
                }
            }
            scene.finish()
        };
        let cut = cut.min(steps.len());
        let mut whole = Model::default();
        whole.apply(play(&steps, 0));
        let seqs_before = steps[..cut].iter().filter(|(_, _, what)| *what != 0).count();
        let mut split = Model::default();
        for _ in 0..2 {
            split.apply(play(&steps[..cut], 0));
        }
        split.apply(play(&steps[cut..], seqs_before));
        prop_assert_eq!(whole, split);
    }
}
