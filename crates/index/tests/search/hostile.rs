//! What is typed is data: it is looked for or refused, and nothing in it is obeyed.

use kukuri_event::UnixSeconds;
use kukuri_index::{
    Ask, AskError, Cursor, LOOKUPS_MAX, Model, QUERY_CHARS_MAX, QUERY_TERMS_MAX, Query, QueryError,
    Start,
};
use kukuri_testkit::judged::HOSTILE;
use proptest::prelude::*;

use crate::scene::{HEAD, NOW, Scene, post, topic};

const FIRST: Start = Start::First { now: UnixSeconds(NOW) };

fn model() -> Model {
    let mut scene = Scene::default();
    let main = topic("main");
    for (id, text) in [(1, "alpha"), (2, "beta"), (3, "alpha beta"), (4, "gamma 日本語 100%")] {
        scene.arrive(&main, &post(id, text));
    }
    let mut model = Model::default();
    model.apply(scene.finish());
    model
}

#[test]
fn hostile_questions_are_answered_or_refused() {
    let model = model();
    for text in HOSTILE {
        match Ask::new(text, vec![topic("main")], FIRST) {
            // Of four documents that share no word, no question finds all.
            Ok(ask) => assert!(model.search(&ask, HEAD).hits.len() < 4, "{text:?}"),
            Err(error) => assert_eq!(error, AskError::Query(QueryError::Empty), "{text:?}"),
        }
    }
}

#[test]
fn questions_are_limited() {
    let word = |chars: usize| "x".repeat(chars);
    assert!(Query::parse(&word(QUERY_CHARS_MAX)).is_ok());
    assert_eq!(Query::parse(&word(QUERY_CHARS_MAX + 1)), Err(QueryError::TooLong));
    assert_eq!(Query::parse(&word(10_000)), Err(QueryError::TooLong));
    assert!(Query::parse(&"猫".repeat(QUERY_CHARS_MAX)).is_ok());
    let sentence: String = ('一'..).take(2 * QUERY_TERMS_MAX).collect();
    assert_eq!(Query::parse(&sentence).expect("a sentence").terms().len(), QUERY_TERMS_MAX);

    let words = |count: usize| {
        let letters = ('a'..='z').chain('а'..='я').chain('α'..='ω');
        letters.take(count).map(|letter| format!("{letter} ")).collect::<String>()
    };
    assert!(Query::parse(&words(QUERY_TERMS_MAX)).is_ok());
    assert_eq!(Query::parse(&words(QUERY_TERMS_MAX + 1)), Err(QueryError::TooManyTerms));
}

#[test]
fn a_question_is_within_topics() {
    let topics = |count: usize| (0..count).map(|n| topic(&n.to_string())).collect::<Vec<_>>();
    assert_eq!(Ask::new("a", topics(0), FIRST), Err(AskError::NoTopic));
    assert!(Ask::new("a", topics(LOOKUPS_MAX), FIRST).is_ok());
    assert_eq!(Ask::new("a", topics(LOOKUPS_MAX + 1), FIRST), Err(AskError::TooBroad));
    assert_eq!(Ask::new("a b", topics(LOOKUPS_MAX), FIRST), Err(AskError::TooBroad));
}

fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        prop::sample::select(HOSTILE).prop_map(str::to_owned),
        "[\"'*%_():^&|!<>#@-]{0,8}",
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Back ends put terms into the syntax of their own questions; nothing in a term can end or change
    /// it.
    #[test]
    fn terms_hold_nothing_that_a_back_end_could_obey(text in hostile_text()) {
        if let Ok(query) = Query::parse(&text) {
            for term in query.terms() {
                let body = term.strip_prefix(['#', '@']).unwrap_or(term);
                prop_assert!(!body.is_empty(), "{text:?}: {term:?}");
                let harmless = |char: char| {
                    char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_'
                        || (!char.is_ascii() && !char.is_whitespace() && !char.is_control())
                };
                prop_assert!(body.chars().all(harmless), "{text:?}: {term:?}");
            }
        }
    }

    #[test]
    fn cursors_of_strangers_are_refused(text in "[0-9a-f]{0,80}|.{0,40}") {
        if let Ok(cursor) = Cursor::parse(&text) {
            let ask = Ask::new("alpha", vec![topic("main")], Start::After(cursor));
            prop_assert!(ask.is_err());
            prop_assert_eq!(cursor.to_string(), text.to_lowercase());
        }
    }
}
