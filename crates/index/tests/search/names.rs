//! Topics are found by what people call them.

use kukuri_core::{Mapping, NetworkId, TopicId};
use kukuri_index::{CursorError, NameCursor, NameQuery, NamedTopic, Names, QueryError};
use kukuri_testkit::judged::HOSTILE;
use proptest::prelude::*;

use crate::scene::topic;

fn names(names: &[&str]) -> Names {
    Names::new(names.iter().map(|name| named(name)))
}

fn named(name: &str) -> NamedTopic {
    NamedTopic { topic_id: topic(name), name: name.to_owned() }
}

fn parse(text: &str) -> Result<NameQuery, QueryError> {
    NameQuery::parse(text, &NetworkId::default())
}

fn found(of: &Names, text: &str) -> Vec<String> {
    let page = of.find(Some(&parse(text).expect("can be asked")), None, 100);
    page.expect("no cursor").topics.into_iter().map(|topic| topic.name).collect()
}

#[test]
fn a_topic_is_found_by_the_words_of_its_name() {
    let all = names(&[
        "Rust in Kansai",
        "Rust",
        "Trust & Safety",
        "ビットコイン",
        "東京タワー",
        "東京",
        "Café",
        "🎉 party",
    ]);
    for (asked, expected) in [
        // The very name first, then names that begin with it.
        ("rust", vec!["Rust", "Rust in Kansai"]),
        ("ＲＵＳＴ", vec!["Rust", "Rust in Kansai"]),
        ("kans", vec!["Rust in Kansai"]),
        ("kansai rust", vec!["Rust in Kansai"]),
        ("safe tru", vec!["Trust & Safety"]),
        ("ﾋﾞｯﾄｺｲﾝ", vec!["ビットコイン"]),
        ("こいん", vec!["ビットコイン"]),
        ("東京", vec!["東京", "東京タワー"]),
        ("京東", vec![]),
        ("cafe", vec![]),
        ("CAFÉ", vec!["Café"]),
        ("🎉", vec!["🎉 party"]),
        ("osaka", vec![]),
    ] {
        assert_eq!(found(&all, asked), expected, "{asked}");
    }
}

/// A topic that was added by its id has no name; who knows its name finds it all the same.
#[test]
fn a_topic_without_a_name_is_found_by_what_its_id_is_the_hash_of() {
    let network = NetworkId::default();
    let id = TopicId::from_name("ＲＵＳＴ", &network, Mapping::V2).expect("a name");
    let all = Names::new([NamedTopic { topic_id: id.clone(), name: String::new() }, named("x")]);
    for asked in ["rust", "ＲＵＳＴ", id.as_str()] {
        let page = all.find(Some(&parse(asked).expect("can be asked")), None, 9).expect("a page");
        assert_eq!(page.topics.len(), 1, "{asked}");
        assert_eq!(page.topics[0].topic_id, id, "{asked}");
    }
    // Ids are no words: what all have in common finds none.
    assert!(found(&all, "kukuri").is_empty());
}

#[test]
fn questions_are_refused_when_they_are_empty_or_too_long() {
    assert_eq!(parse(" \u{3000}"), Err(QueryError::Empty));
    assert!(parse(&"x".repeat(256)).is_ok());
    assert_eq!(parse(&"x".repeat(257)), Err(QueryError::TooLong));
}

/// No question that says nothing finds everything.
#[test]
fn hostile_questions_find_what_they_name_or_nothing() {
    let all = names(&["alpha", "beta", "gamma 日本語", "100%"]);
    for text in HOSTILE {
        if let Ok(query) = parse(text) {
            let page = all.find(Some(&query), None, 100).expect("no cursor");
            assert!(page.topics.len() < 3, "{text:?}");
        }
    }
}

#[test]
fn a_cursor_belongs_to_its_question() {
    let all = names(&["rust a", "rust b", "rust c"]);
    let rust = parse("rust").expect("can be asked");
    let next = all.find(Some(&rust), None, 1).expect("a page").next.expect("there is more");
    assert!(all.find(Some(&rust), Some(&next), 1).is_ok());
    let other = parse("rust b").expect("can be asked");
    assert_eq!(all.find(Some(&other), Some(&next), 1), Err(CursorError::OtherQuestion));
    assert_eq!(all.find(None, Some(&next), 1), Err(CursorError::OtherQuestion));
}

proptest! {
    /// Pages of any size are the whole list, and nothing else; nameless topics come last.
    #[test]
    fn pages_are_the_whole_list(
        listed in prop::collection::btree_set("[a-zあ-お]{0,6}( [a-z]{1,3})?", 0..20),
        asked in prop::option::of("[a-zあ-お]"),
        size in 1_usize..7,
    ) {
        let nameless = |name: &str| NamedTopic { topic_id: topic(&format!("-{name}")), name: String::new() };
        let all = listed.iter().map(|name| if name.is_empty() { nameless(name) } else { named(name) });
        let all = Names::new(all);
        let query = asked.as_deref().map(|text| parse(text).expect("can be asked"));
        let whole = all.find(query.as_ref(), None, usize::MAX).expect("no cursor").topics;
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = all.find(query.as_ref(), after.as_ref(), size).expect("the same question");
            prop_assert!(page.topics.len() <= size);
            paged.extend(page.topics);
            let Some(next) = page.next else { break };
            after = Some(NameCursor::parse(&next.to_string()).expect("what was written is read"));
        }
        prop_assert_eq!(&paged, &whole);
        if query.is_none() {
            prop_assert_eq!(whole.len(), listed.len());
            prop_assert!(whole.iter().rev().skip(1).all(|topic| !topic.name.is_empty()));
        }
    }

    #[test]
    fn strange_cursors_are_refused(text in "[0-9a-f]{0,200}|.{0,40}") {
        if let Ok(cursor) = NameCursor::parse(&text) {
            prop_assert_eq!(cursor.to_string(), text.to_lowercase());
        }
    }
}
