//! Which texts are events: every rule of the parser, from both sides.

use kukuri_event::{Event, EventId, Kind, ParseError, UnixSeconds};
use proptest::prelude::*;

const NAMES: [&str; 7] = ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"];

/// The JSON values of an event, by field.
fn values() -> [String; 7] {
    let hex = |digits: &str, times| format!("\"{}\"", digits.repeat(times));
    let plain = |text: &str| text.to_owned();
    let (id, pubkey, sig) = (hex("0a", 32), hex("0b", 32), hex("0c", 64));
    [id, pubkey, plain("1700000000"), plain("1"), plain("[]"), plain("\"hi\""), sig]
}

fn object(values: &[String; 7]) -> String {
    let fields = NAMES.iter().zip(values).map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// An event in which one field has another value.
fn with(name: &str, value: &str) -> String {
    let mut values = values();
    let nth = NAMES.iter().position(|known| *known == name).expect("it is a field");
    values[nth] = value.to_owned();
    object(&values)
}

/// An event with more fields than it needs.
fn with_more(fields: &str) -> String {
    object(&values()).replacen('{', &format!("{{{fields},"), 1)
}

fn parse(text: &str) -> Event {
    Event::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> ParseError {
    match Event::parse(text) {
        Ok(event) => panic!("{text} was read as {event:?}"),
        Err(error) => error,
    }
}

#[test]
fn the_seven_fields_make_an_event() {
    let event = parse(&object(&values()));
    assert_eq!(event.id(), EventId::from_bytes([0x0a; 32]));
    assert_eq!(event.pubkey().as_bytes(), &[0x0b; 32]);
    assert_eq!(event.sig().as_bytes(), &[0x0c; 64]);
    assert_eq!((event.created_at(), event.kind()), (UnixSeconds(1_700_000_000), Kind(1)));
    assert_eq!((event.content(), event.tags().len()), ("hi", 0));
}

#[test]
fn order_and_blanks_do_not_matter() {
    let mut fields: Vec<String> = NAMES
        .iter()
        .zip(values())
        .map(|(name, value)| format!("\n\t\"{name}\" : {value} "))
        .collect();
    fields.reverse();
    let text = format!(" \r\n{{{}}} \n", fields.join(","));
    assert_eq!(parse(&text), parse(&object(&values())));
}

#[test]
fn every_field_must_be_there() {
    for missing in NAMES {
        let fields = NAMES.iter().zip(values()).filter(|(name, _)| **name != missing);
        let fields: Vec<String> =
            fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        refused(&format!("{{{}}}", fields.join(",")));
    }
}

/// Two values of one field are two events in one text, and only one of them was signed.
#[test]
fn no_field_comes_twice() {
    for (name, value) in NAMES.iter().zip(values()) {
        refused(&with_more(&format!("\"{name}\":{value}")));
    }
    // An escape in a name spells the same field.
    refused(&with_more(r#""\u006bind":1"#));
}

#[test]
fn names_are_compared_after_their_escapes() {
    let text = object(&values()).replace("\"kind\"", r#""\u006bind""#);
    assert_eq!(parse(&text), parse(&object(&values())));
}

#[test]
fn unknown_fields_are_dropped() {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for more in [
        r#""seen_on":["wss://x"],"ots":null"#,
        r#""x":1,"x":2"#,
        r#""x":123456789012345678901234567890.5e-400"#,
        r#""x":"\ud800""#,
        r#""Kind":"a field in another case is another field""#,
        &format!("\"x\":{deep}"),
    ] {
        let event = parse(&with_more(more));
        assert_eq!(event, parse(&object(&values())));
        assert!(!event.to_json().contains("\"x\""));
    }
}

#[test]
fn only_an_object_is_an_event() {
    // A list of the seven values has the fields too, but not their names.
    let list = format!("[{}]", values().join(","));
    let event = object(&values());
    for text in [
        list.as_str(),
        &format!(" {list}"),
        "",
        " ",
        "null",
        "{}",
        "[]",
        "\"event\"",
        "{",
        &format!("{event}{event}"),
        &format!("{event},"),
        &format!("\u{feff}{event}"),
        &format!("[\"EVENT\",{event}]"),
    ] {
        refused(text);
    }
}

#[test]
fn numbers_are_plain_integers_in_range() {
    for (text, created_at) in [("0", 0), ("1", 1), ("9223372036854775807", i64::MAX)] {
        assert_eq!(parse(&with("created_at", text)).created_at(), UnixSeconds(created_at));
    }
    for (text, kind) in [("0", 0), ("65535", 65_535)] {
        assert_eq!(parse(&with("kind", text)).kind(), Kind(kind));
    }
    let out_of_range = |field| ParseError::Range { field };
    assert_eq!(refused(&with("created_at", "9223372036854775808")), out_of_range("created_at"));
    assert_eq!(refused(&with("created_at", "18446744073709551615")), out_of_range("created_at"));
    assert_eq!(refused(&with("kind", "65536")), out_of_range("kind"));
    let huge = "9".repeat(400);
    for text in [
        "-1",
        "-0",
        "1.0",
        "0.0",
        "1e3",
        "1E3",
        "1e-1",
        "01",
        "+1",
        " ",
        "\"1\"",
        "null",
        "true",
        "[1]",
        "{}",
        "18446744073709551616",
        "NaN",
        "Infinity",
        "0x1",
        &huge,
    ] {
        refused(&with("created_at", text));
        refused(&with("kind", text));
    }
}

#[test]
fn hex_is_lower_case_and_of_its_length() {
    for (field, digits) in [("id", 64), ("pubkey", 64), ("sig", 128)] {
        let wrong = ParseError::Hex { field, digits };
        let quoted = |text: &str| format!("\"{text}\"");
        for text in [
            quoted(&"0A".repeat(digits / 2)),
            quoted(&format!("{}F", "0".repeat(digits - 1))),
            quoted(&"0".repeat(digits - 1)),
            quoted(&"0".repeat(digits + 1)),
            quoted(&"0".repeat(digits - 2)),
            quoted(&"0".repeat(digits + 2)),
            quoted(&"0g".repeat(digits / 2)),
            quoted(&format!("0x{}", "0".repeat(digits - 2))),
            quoted(&format!(" {}", "0".repeat(digits - 1))),
            quoted(&"é".repeat(digits / 2)),
            quoted(""),
        ] {
            assert_eq!(refused(&with(field, &text)), wrong, "{text}");
        }
        refused(&with(field, "null"));
        refused(&with(field, "0"));
        // An escaped digit is the digit.
        let escaped = quoted(&format!(r"\u0061{}", "0".repeat(digits - 1)));
        parse(&with(field, &escaped));
    }
}

#[test]
fn tags_are_lists_of_strings_with_a_name() {
    for (text, count) in
        [("[]", 0), (r#"[["e"]]"#, 1), (r#"[[""]]"#, 1), (r#"[["e","x","y","",""],["e","x"]]"#, 2)]
    {
        assert_eq!(parse(&with("tags", text)).tags().len(), count, "{text}");
    }
    assert_eq!(refused(&with("tags", "[[]]")), ParseError::EmptyTag);
    assert_eq!(refused(&with("tags", r#"[["e","x"],[]]"#)), ParseError::EmptyTag);
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for text in [
        "null",
        "{}",
        "\"e\"",
        "[null]",
        "[\"e\"]",
        "[{}]",
        "[[1]]",
        "[[null]]",
        "[[[\"e\"]]]",
        r#"[["e",1]]"#,
        r#"[["e",null]]"#,
        r#"[["e"],"#,
        &deep,
    ] {
        refused(&with("tags", text));
    }
}

#[test]
fn strings_are_any_text_but_lone_surrogates() {
    for (text, content) in [
        (r#""""#, ""),
        (r#""\u0000""#, "\0"),
        (r#""a\u0000b""#, "a\0b"),
        (r#""\b\f\n\r\t\"\\\/""#, "\u{8}\u{c}\n\r\t\"\\/"),
        (r#""\u001f\u007f\u0080""#, "\u{1f}\u{7f}\u{80}"),
        (r#""\ud83e\udd8a 🦊""#, "🦊 🦊"),
        (r#""\u2028\uffff\ufeff""#, "\u{2028}\u{ffff}\u{feff}"),
        ("\"\u{7f}\u{2028}\"", "\u{7f}\u{2028}"),
    ] {
        assert_eq!(parse(&with("content", text)).content(), content, "{text}");
        let tags = with("tags", &format!("[[\"x\",{text}]]"));
        assert_eq!(parse(&tags).tags().iter().next().and_then(|tag| tag.value()), Some(content));
    }
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00\ud800""#,
        r#""\u12""#,
        r#""\x41""#,
        "\"\n\"",
        "\"\0\"",
        "\"\u{1f}\"",
        "\"unended",
        "null",
        "1",
        "[]",
    ] {
        refused(&with("content", text));
        refused(&with("tags", &format!("[[\"x\",{text}]]")));
    }
}

/// What a refusal says is sent back and logged, so it must not grow with what was sent.
#[test]
fn a_refusal_is_short() {
    let long = "x".repeat(100_000);
    for text in [
        with("kind", &format!("\"{long}\"")),
        with("id", &format!("\"{long}\"")),
        with("tags", &format!("\"{long}\"")),
        long.clone(),
    ] {
        assert!(refused(&text).to_string().chars().count() <= 200);
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = Event::parse(&text);
    }

    /// Near misses: an event with one character changed, lost or doubled.
    #[test]
    fn no_broken_event_makes_the_parser_panic(
        at in any::<prop::sample::Index>(),
        other in any::<char>(),
        sort in 0..3,
    ) {
        let mut chars: Vec<char> = with("tags", r#"[["e","\u0000é"]]"#).chars().collect();
        let at = at.index(chars.len());
        match sort {
            0 => chars[at] = other,
            1 => drop(chars.remove(at)),
            _ => chars.insert(at, other),
        }
        if let Ok(event) = Event::parse(&chars.into_iter().collect::<String>()) {
            prop_assert_eq!(Event::parse(&event.to_json()), Ok(event));
        }
    }
}
