//! Which texts are filters, and what they match.

use kukuri_event::{Event, Filter, Kind, TagLetter, matches, matches_any};
use proptest::prelude::*;

const ID: &str = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
const AUTHOR: &str = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";
const NOBODY: &str = "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c";

fn event() -> Event {
    let sig = "0d".repeat(64);
    let tags = r#"[["e","x"],["e","y","z"],["p","q"],["t","tagged"],["E","x"],["d"],["word","w"]]"#;
    let text = format!(
        r#"{{"id":"{ID}","pubkey":"{AUTHOR}","created_at":100,"kind":7,"tags":{tags},"content":"c","sig":"{sig}"}}"#
    );
    Event::parse(&text).expect("it is an event")
}

fn found(text: &str, links: &[&str]) -> bool {
    let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    matches(&filter, &event(), links)
}

#[test]
fn every_condition_holds_or_does_not() {
    let (id, author, nobody) = (ID, AUTHOR, NOBODY);
    for (text, expected) in [
        ("{}".to_owned(), true),
        (format!(r#"{{"ids":["{id}"]}}"#), true),
        (format!(r#"{{"ids":["{nobody}","{id}"]}}"#), true),
        (format!(r#"{{"ids":["{nobody}"]}}"#), false),
        (r#"{"ids":[]}"#.to_owned(), false),
        (format!(r#"{{"authors":["{author}"]}}"#), true),
        (format!(r#"{{"authors":["{id}"]}}"#), false),
        (r#"{"authors":[]}"#.to_owned(), false),
        (r#"{"kinds":[1,7]}"#.to_owned(), true),
        (r#"{"kinds":[1]}"#.to_owned(), false),
        (r#"{"kinds":[]}"#.to_owned(), false),
        (r#"{"since":100}"#.to_owned(), true),
        (r#"{"since":101}"#.to_owned(), false),
        (r#"{"until":100}"#.to_owned(), true),
        (r#"{"until":99}"#.to_owned(), false),
        (r#"{"since":100,"until":100}"#.to_owned(), true),
        (r#"{"limit":0}"#.to_owned(), true),
        (r##"{"#e":["x"]}"##.to_owned(), true),
        (r##"{"#e":["y","none"]}"##.to_owned(), true),
        (r##"{"#e":["z"]}"##.to_owned(), false),
        (r##"{"#e":[]}"##.to_owned(), false),
        (r##"{"#e":["x"],"#p":["q"]}"##.to_owned(), true),
        (r##"{"#e":["x"],"#p":["r"]}"##.to_owned(), false),
        (r##"{"#E":["x"]}"##.to_owned(), true),
        (r##"{"#E":["y"]}"##.to_owned(), false),
        (r##"{"#d":[""]}"##.to_owned(), false),
        (r##"{"#w":["w"]}"##.to_owned(), false),
        (format!(r##"{{"ids":["{id}"],"kinds":[1]}}"##), false),
    ] {
        assert_eq!(found(&text, &[]), expected, "{text}");
    }
}

/// `#t` asks for the topics an event is linked to, not for its tags.
#[test]
fn topics_are_links() {
    assert!(!found(r##"{"#t":["tagged"]}"##, &[]));
    assert!(!found(r##"{"#t":["tagged"]}"##, &["linked"]));
    assert!(found(r##"{"#t":["linked"]}"##, &["linked"]));
    assert!(found(r##"{"#t":["other","linked"]}"##, &["first", "linked"]));
    assert!(!found(r##"{"#t":["linked"],"kinds":[1]}"##, &["linked"]));
    let filter = Filter::parse(r##"{"#t":["a"],"#e":["x"]}"##).expect("it is a filter");
    assert_eq!(filter.topics().map(|topics| topics.len()), Some(1));
    let others: Vec<TagLetter> = filter.other_tags().map(|(letter, _)| letter).collect();
    assert_eq!(others, [TagLetter::parse("e").expect("a letter")]);
}

#[test]
fn any_filter_of_a_group_will_do() {
    let group = |texts: &[&str]| -> Vec<Filter> {
        texts.iter().map(|text| Filter::parse(text).expect("it is a filter")).collect()
    };
    let links: [&str; 0] = [];
    assert!(matches_any(&group(&[r#"{"kinds":[1]}"#, r#"{"kinds":[7]}"#]), &event(), &links));
    assert!(!matches_any(&group(&[r#"{"kinds":[1]}"#]), &event(), &links));
    assert!(!matches_any(&[], &event(), &links));
}

#[test]
fn texts_that_are_no_filter_are_refused() {
    let upper = AUTHOR.to_uppercase();
    for text in [
        "",
        "[]",
        "null",
        "1",
        "{",
        "{}{}",
        r#"{"search":"x"}"#,
        r#"{"unknown":[]}"#,
        r##"{"#":["x"]}"##,
        r##"{"#ee":["x"]}"##,
        r##"{"#1":["x"]}"##,
        r##"{"#é":["x"]}"##,
        r##"{"#e":"x"}"##,
        r##"{"#e":[1]}"##,
        r##"{"#e":["x"],"#e":["y"]}"##,
        r#"{"kinds":[1],"kinds":[2]}"#,
        r#"{"limit":1,"limit":2}"#,
        r#"{"ids":[],"ids":[]}"#,
        r#"{"ids":["00"]}"#,
        r#"{"ids":"x"}"#,
        &format!(r#"{{"authors":["{upper}"]}}"#),
        r#"{"kinds":[65536]}"#,
        r#"{"kinds":[-1]}"#,
        r#"{"kinds":[1.0]}"#,
        r#"{"kinds":["1"]}"#,
        r#"{"kinds":null}"#,
        r#"{"since":"1"}"#,
        r#"{"since":1.5}"#,
        r#"{"until":9223372036854775808}"#,
        r#"{"limit":-1}"#,
        r#"{"limit":1.5}"#,
    ] {
        assert!(Filter::parse(text).is_err(), "{text}");
    }
}

#[test]
fn repeated_values_are_one() {
    let filter = Filter::parse(r#"{"kinds":[1,1,2]}"#).expect("it is a filter");
    assert_eq!(filter.kinds, Some([Kind(1), Kind(2)].into()));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = Filter::parse(&text);
    }
}

/// What is written is read back as the same filter.
#[test]
fn a_filter_is_read_as_it_is_written() {
    let id = "ab".repeat(32);
    for text in [
        "{}".to_owned(),
        r##"{"ids":[],"authors":[],"kinds":[],"#t":[]}"##.to_owned(),
        format!(r#"{{"ids":["{id}"],"authors":["{id}"],"kinds":[0,65535]}}"#),
        r##"{"#e":["\u0000\"","b"],"#E":["c"],"since":-5,"until":9,"limit":0}"##.to_owned(),
    ] {
        let filter = Filter::parse(&text).unwrap();
        assert_eq!(Filter::parse(&filter.to_json()).unwrap(), filter, "{text}");
    }
}

/// Fields of an extension are for whoever asked for them; everyone else refuses them.
#[test]
fn fields_of_an_extension_are_handed_out() {
    let text = r#"{"kinds":[1],"after":"x"}"#;
    let mut after = None;
    let filter = Filter::parse_with(text, |key, value| {
        after = (key == "after").then(|| value.get().to_owned());
        after.is_some()
    });
    assert_eq!(filter.unwrap(), Filter::parse(r#"{"kinds":[1]}"#).unwrap());
    assert_eq!(after.as_deref(), Some("\"x\""));
    assert!(Filter::parse(text).is_err());
    assert!(Filter::parse_with("{} {}", |_, _| true).is_err());
}
