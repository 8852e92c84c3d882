//! Which events a filter finds. The matcher is the definition; these are its corners, spelt out.

use kukuri_core::Admitted;

use super::scene::{
    PURGE, Scene, alice, article, bob, draft, id, ids, note, second, set_topic, signed, topic,
    unlink,
};

/// Five events that differ in everything a filter can ask for, oldest first.
fn cast() -> [Admitted; 5] {
    [
        note(1, "a"),
        signed(&bob(), &draft(1, 2, "b").tag("e", "x").tag("p", "y")),
        signed(&alice(), &draft(7, 3, "ab").tag("e", "x").tag("p", "z")),
        article("d1", 4, "b"),
        signed(&bob(), &draft(7, 5, "a").tag("e", "w").tag("E", "x")),
    ]
}

async fn cast_on(scene: &Scene) -> [Admitted; 5] {
    scene.carry("ab").await;
    let cast = cast();
    scene.given(&cast.each_ref()).await;
    cast
}

/// Asserts that the filter finds exactly these of the cast, newest first.
async fn expect(scene: &Scene, cast: &[Admitted; 5], text: &str, found: &[usize]) {
    let found: Vec<_> = found.iter().map(|nth| id(&cast[*nth])).collect();
    assert_eq!(scene.found(text).await, found, "{text}");
}

pub async fn every_condition_narrows(scene: Scene) {
    let cast = &cast_on(&scene).await;
    let (alice, bob) = (alice().pubkey(), bob().pubkey());
    let (a, b) = (topic('a'), topic('b'));
    let e2 = id(&cast[2]);
    for (text, found) in [
        ("{}".to_owned(), &[4, 3, 2, 1, 0][..]),
        (r#"{"kinds":[7]}"#.to_owned(), &[4, 2]),
        (r#"{"kinds":[7,1]}"#.to_owned(), &[4, 2, 1, 0]),
        (format!(r#"{{"authors":["{alice}"]}}"#), &[3, 2, 0]),
        (format!(r#"{{"authors":["{alice}","{bob}"],"kinds":[1]}}"#), &[1, 0]),
        (format!(r##"{{"#t":["{a}"]}}"##), &[4, 2, 0]),
        (format!(r##"{{"#t":["{a}","{b}"]}}"##), &[4, 3, 2, 1, 0]),
        (format!(r##"{{"#t":["{b}"],"authors":["{alice}"]}}"##), &[3, 2]),
        (format!(r##"{{"#t":["{b}"],"kinds":[1]}}"##), &[1]),
        (format!(r##"{{"#t":["{b}"],"kinds":[7],"authors":["{alice}"]}}"##), &[2]),
        (format!(r##"{{"#t":["{b}"],"kinds":[7],"authors":["{bob}"]}}"##), &[]),
        (r##"{"#e":["x"]}"##.to_owned(), &[2, 1]),
        (format!(r##"{{"#t":["{b}"],"#e":["x"],"authors":["{bob}"]}}"##), &[1]),
        (format!(r#"{{"ids":["{e2}"]}}"#), &[2]),
        (format!(r#"{{"ids":["{e2}"],"authors":["{bob}"]}}"#), &[]),
        (format!(r##"{{"ids":["{e2}"],"#e":["x"],"kinds":[7]}}"##), &[2]),
        (format!(r##"{{"ids":["{e2}"],"#e":["w"]}}"##), &[]),
        (r##"{"#e":["nobody"]}"##.to_owned(), &[]),
    ] {
        expect(&scene, cast, &text, found).await;
    }
}

pub async fn conditions_on_different_tags_all_hold(scene: Scene) {
    let cast = &cast_on(&scene).await;
    expect(&scene, cast, r##"{"#e":["x"],"#p":["z"]}"##, &[2]).await;
    expect(&scene, cast, r##"{"#e":["w"],"#p":["z"]}"##, &[]).await;
    let b = topic('b');
    let three = format!(r##"{{"#e":["x"],"#p":["y","z"],"#t":["{b}"]}}"##);
    expect(&scene, cast, &three, &[2, 1]).await;
}

pub async fn values_of_one_condition_are_alternatives(scene: Scene) {
    let cast = &cast_on(&scene).await;
    expect(&scene, cast, r##"{"#e":["w","x"]}"##, &[4, 2, 1]).await;
    expect(&scene, cast, r##"{"#p":["y","z","none"]}"##, &[2, 1]).await;
}

pub async fn tag_names_are_letters_of_either_case(scene: Scene) {
    let cast = &cast_on(&scene).await;
    expect(&scene, cast, r##"{"#E":["x"]}"##, &[4]).await;
    expect(&scene, cast, r##"{"#D":["d1"]}"##, &[]).await;
    expect(&scene, cast, r##"{"#d":["d1"]}"##, &[3]).await;
}

pub async fn an_empty_list_matches_nothing(scene: Scene) {
    let cast = &cast_on(&scene).await;
    for text in [
        r#"{"ids":[]}"#,
        r#"{"authors":[]}"#,
        r#"{"kinds":[]}"#,
        r##"{"#t":[]}"##,
        r##"{"#e":[]}"##,
        r##"{"#e":["x"],"#p":[]}"##,
    ] {
        expect(&scene, cast, text, &[]).await;
    }
}

pub async fn bounds_of_time_are_inclusive(scene: Scene) {
    let cast = &cast_on(&scene).await;
    let (two, four) = (second(2), second(4));
    let (a, alice) = (topic('a'), alice().pubkey());
    for (text, found) in [
        (format!(r#"{{"since":{two}}}"#), &[4, 3, 2, 1][..]),
        (format!(r#"{{"until":{two}}}"#), &[1, 0]),
        (format!(r#"{{"since":{two},"until":{four}}}"#), &[3, 2, 1]),
        (format!(r#"{{"since":{four},"until":{two}}}"#), &[]),
        (format!(r##"{{"since":{two},"#t":["{a}"]}}"##), &[4, 2]),
        (format!(r##"{{"until":{two},"#e":["x"]}}"##), &[1]),
        (format!(r#"{{"since":{four},"authors":["{alice}"]}}"#), &[3]),
        (r#"{"since":-9223372036854775808}"#.to_owned(), &[4, 3, 2, 1, 0]),
        (r#"{"until":-1}"#.to_owned(), &[]),
        (r#"{"until":9223372036854775807}"#.to_owned(), &[4, 3, 2, 1, 0]),
    ] {
        expect(&scene, cast, &text, found).await;
    }
}

pub async fn topics_are_tested_against_links(scene: Scene) {
    scene.carry("a").await;
    let event = signed(&alice(), &draft(1, 1, "ab").tag("t", "hashtag"));
    scene.given(&[&event]).await;
    assert_eq!(scene.visible('a').await, ids(&[&event]));
    assert_eq!(scene.visible('b').await, [], "it carries the tag and not the link");
    assert_eq!(scene.found(r##"{"#t":["hashtag"]}"##).await, []);
    scene.carry("b").await;
    let _ = scene.publish(&event).await;
    assert_eq!(scene.visible('b').await, ids(&[&event]));
    let _ = scene.act(unlink('a', &[&event], PURGE)).await;
    let _ = scene.act(set_topic('b', false)).await;
    assert_eq!(scene.visible('a').await, []);
    assert_eq!(scene.visible('b').await, ids(&[&event]), "a disabled topic keeps its links");
}

pub async fn long_tag_values_are_found(scene: Scene) {
    scene.carry("a").await;
    let a = topic('a');
    // Around the length up to which values are indexed, and values that share so long a beginning.
    for (nth, bytes) in [254, 255, 256, 257, 1024].into_iter().enumerate() {
        let nth = i64::try_from(nth).expect("a handful");
        let value = "v".repeat(bytes);
        let event = signed(&alice(), &draft(1, nth, "a").tag("r", &value));
        scene.given(&[&event]).await;
        let alone = format!(r##"{{"#r":["{value}"]}}"##);
        assert_eq!(scene.found(&alone).await, ids(&[&event]), "{bytes} bytes");
        let short = format!(r##"{{"#t":["{a}"],"#r":["{value}","none"],"limit":1}}"##);
        assert_eq!(scene.found(&short).await, ids(&[&event]), "{bytes} bytes");
        let other = format!(r##"{{"#r":["{value}x"]}}"##);
        assert_eq!(scene.found(&other).await, [], "{bytes} bytes");
    }
}

pub async fn tag_values_are_bytes(scene: Scene) {
    scene.carry("a").await;
    // None of these may meet another one: not by case, by form, by NUL, or by blanks.
    let values = ["a", "A", "ä", "a\u{308}", "a\0", "a\0b", " a", "a ", "", "\0", "%", "_", "'"];
    let mut events = Vec::new();
    for (nth, value) in values.iter().enumerate() {
        let nth = i64::try_from(nth).expect("a handful");
        let event = signed(&alice(), &draft(1, nth, "a").tag("x", value));
        scene.given(&[&event]).await;
        events.push((value, event));
    }
    for (value, event) in events {
        let value = value.replace('\0', "\\u0000");
        let found = scene.found(&format!(r##"{{"#x":["{value}"]}}"##)).await;
        assert_eq!(found, ids(&[&event]), "{value:?}");
    }
}

pub async fn only_the_first_value_of_a_tag_counts(scene: Scene) {
    scene.carry("a").await;
    let mut draft = draft(1, 1, "a");
    let tag = |fields: &[&str]| fields.iter().map(ToString::to_string).collect();
    draft.tags.extend([
        tag(&["e", "first", "second"]),
        tag(&["p"]),
        tag(&["long", "value"]),
        tag(&["", "nameless"]),
        tag(&["1", "digit"]),
    ]);
    let event = signed(&alice(), &draft);
    scene.given(&[&event]).await;
    assert_eq!(scene.found(r##"{"#e":["first"]}"##).await, ids(&[&event]));
    assert_eq!(scene.found(r##"{"#e":["second"]}"##).await, []);
    assert_eq!(scene.found(r##"{"#p":[""]}"##).await, []);
}

pub async fn ids_are_found_with_and_without_a_topic(scene: Scene) {
    let cast = &cast_on(&scene).await;
    let unknown = "00".repeat(32);
    let [first, .., last] = cast.each_ref().map(id);
    let both = format!(r#"{{"ids":["{last}","{unknown}","{first}"]}}"#);
    expect(&scene, cast, &both, &[4, 0]).await;
    let b = topic('b');
    let in_b = format!(r##"{{"ids":["{last}","{}"],"#t":["{b}"]}}"##, id(&cast[1]));
    expect(&scene, cast, &in_b, &[1]).await;
    let limited = format!(r#"{{"ids":["{last}","{first}"],"limit":1}}"#);
    expect(&scene, cast, &limited, &[4]).await;
}

pub async fn a_value_given_twice_is_found_once(scene: Scene) {
    scene.carry("ab").await;
    let twice = draft(1, 1, "ab").tag("e", "x").tag("e", "x").tag("e", "y").tag("t", topic('a'));
    let event = signed(&alice(), &twice);
    scene.given(&[&event]).await;
    let (a, b) = (topic('a'), topic('b'));
    for text in [
        r##"{"#e":["x","y"]}"##.to_owned(),
        format!(r##"{{"#t":["{a}","{b}"]}}"##),
        format!(r##"{{"#t":["{a}","{b}"],"#e":["x","y"],"limit":5}}"##),
    ] {
        assert_eq!(scene.found(&text).await, ids(&[&event]), "{text}");
    }
    assert_eq!(scene.usage('a').await.events, 1);
}
