//! What relay-tester requires, told in our own words, of a relay that takes events without topics.
//! Replaceable and addressable events and deletions are in `versions.rs`.
//!
//! What it requires besides has tests elsewhere: OK for an event, refusals of bad ids and
//! signatures, deletions by id and the resubmission of what was deleted in `events.rs`; what is
//! stored, then EOSE, then live, and CLOSED for what may not be asked in `subscriptions.rs`; AUTH
//! in `auth.rs`; NIP-11 in `nip11.rs`.

use serde_json::{Value, json};

use crate::rig::{Client, Rig, ago, author, draft, id, note, signed, signed_by, topic, until};

/// What OK false and CLOSED begin with, for programs to read.
const PREFIXES: [&str; 7] =
    ["auth-required", "blocked", "duplicate", "error", "invalid", "rate-limited", "restricted"];

fn contents(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["content"].as_str().unwrap()).collect()
}

fn pubkey(number: u32) -> String {
    author(number).pubkey().to_hex()
}

/// A few events, the older the earlier in the list. Their contents are their names.
async fn publish_few(client: &mut Client) -> Vec<Value> {
    let few = [
        signed(&ago(60, draft(1, "plain", &[]))),
        signed(&ago(50, draft(1, "red", &[&["c", "red"]]))),
        signed(&ago(40, draft(1, "red round", &[&["c", "red"], &["s", "round"]]))),
        signed_by(2, &ago(30, draft(1, "blue", &[&["c", "blue"]]))),
        signed_by(2, &ago(20, draft(7, "both", &[&["c", "red"], &["c", "blue"], &["s", "cube"]]))),
        signed(&ago(10, draft(10_003, "list", &[]))),
    ];
    for event in &few {
        client.publish_ok(event).await;
    }
    few.to_vec()
}

/// Each condition alone and together with others, newest first, and counted as well.
#[tokio::test]
async fn events_are_found_by_every_condition() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    let few = publish_few(&mut client).await;
    let (plain, blue) = (id(&few[0]), id(&few[3]));
    let (one, two) = (pubkey(1), pubkey(2));
    let time = |nth: usize| few[nth]["created_at"].as_i64().unwrap();
    let all: &[&str] = &["list", "both", "blue", "red round", "red", "plain"];
    for (filter, found) in [
        (json!({}), all),
        (json!({"ids": [plain, blue]}), &["blue", "plain"]),
        (json!({"ids": ["ab".repeat(32)]}), &[]),
        (json!({"authors": [two]}), &["both", "blue"]),
        (json!({"authors": [one, two]}), all),
        (json!({"kinds": [7, 10_003]}), &["list", "both"]),
        (json!({"kinds": []}), &[]),
        (json!({"#c": ["red"]}), &["both", "red round", "red"]),
        (json!({"#c": ["red", "blue"]}), &["both", "blue", "red round", "red"]),
        (json!({"#c": ["red", "blue"], "limit": 2}), &["both", "blue"]),
        (json!({"#c": ["red"], "#s": ["round", "cube"]}), &["both", "red round"]),
        (json!({"#c": ["re"]}), &[]),
        (json!({"#C": ["red"]}), &[]),
        (json!({"authors": [one], "kinds": [1]}), &["red round", "red", "plain"]),
        (json!({"authors": [two], "#c": ["red"]}), &["both"]),
        (json!({"kinds": [1], "#c": ["red"]}), &["red round", "red"]),
        (json!({"ids": [plain, blue], "authors": [one]}), &["plain"]),
        (json!({"ids": [plain], "kinds": [7]}), &[]),
        (json!({"since": time(3)}), &["list", "both", "blue"]),
        (json!({"until": time(1)}), &["red", "plain"]),
        (json!({"since": time(2), "until": time(3)}), &["blue", "red round"]),
        (json!({"since": time(2), "until": time(2)}), &["red round"]),
        (json!({"since": time(3), "until": time(2)}), &[]),
        (json!({"since": time(1) + 1, "until": time(3) - 1}), &["red round"]),
        (json!({"limit": 3}), &["list", "both", "blue"]),
        (json!({"limit": 0}), &[]),
    ] {
        assert_eq!(contents(&client.request("s", filter.clone()).await), found, "{filter}");
        client.send(json!(["COUNT", "c", filter])).await;
        let count = json!(["COUNT", "c", {"count": found.len()}]);
        assert_eq!(client.expect().await, count, "{filter}");
    }
}

/// Several filters find what any of them finds, once; each has a limit of its own.
#[tokio::test]
async fn several_filters_are_one_question() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    publish_few(&mut client).await;
    let filters = [json!({"#c": ["red"]}), json!({"kinds": [7]}), json!({"authors": [pubkey(2)]})];
    client.send(json!(["REQ", "s", filters[0], filters[1], filters[2]])).await;
    let found = client.until_eose("s").await;
    assert_eq!(contents(&found), ["both", "blue", "red round", "red"]);
    client.send(json!(["COUNT", "c", filters[0], filters[1], filters[2]])).await;
    assert_eq!(client.expect().await, json!(["COUNT", "c", {"count": 4}]));
    let newest = json!({"#c": ["red"], "limit": 1});
    client.send(json!(["REQ", "s", newest, {"kinds": [1], "limit": 1}])).await;
    assert_eq!(contents(&client.until_eose("s").await), ["both", "blue"]);
    // Live, an event that several filters match comes once, too.
    client
        .send(json!(["REQ", "s", {"kinds": [1], "limit": 0}, {"authors": [pubkey(1)], "limit": 0}]))
        .await;
    assert!(client.until_eose("s").await.is_empty());
    let event = signed(&draft(1, "new", &[]));
    rig.client().await.publish_ok(&event).await;
    assert_eq!(client.expect().await, json!(["EVENT", "s", event]));
    client.nothing_more().await;
}

/// Of events of one second the smallest id comes first, and a limit takes the first ones.
#[tokio::test]
async fn ties_are_ordered_by_id() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    let mut ids = Vec::new();
    for nth in 0..20 {
        let event = signed(&draft(1, &nth.to_string(), &[]));
        client.publish_ok(&event).await;
        ids.push(id(&event));
    }
    let older = signed(&ago(1, draft(1, "older", &[])));
    client.publish_ok(&older).await;
    ids.sort_unstable();
    ids.push(id(&older));
    for limit in [1, 7, 20, 21] {
        let found = client.request("s", json!({"limit": limit})).await;
        assert_eq!(found.iter().map(id).collect::<Vec<_>>(), ids[..limit]);
    }
}

/// A subscription stays open after its EOSE, even if nothing more can come of it or it wanted
/// nothing of what is stored. Old ephemeral events are passed on and not kept, like new ones.
#[tokio::test]
async fn subscriptions_stay_open() {
    let rig = Rig::general().await;
    let (mut writer, mut reader) = (rig.client().await, rig.client().await);
    let known = signed(&draft(1, "known", &[]));
    let awaited = signed(&draft(1, "awaited", &[]));
    writer.publish_ok(&known).await;
    let ids = json!({"ids": [id(&known), id(&awaited)]});
    assert_eq!(reader.request("ids", ids).await.len(), 1);
    assert!(reader.request("live", json!({"kinds": [20_001], "limit": 0})).await.is_empty());
    until("attaching", || rig.fanout.stats().subscriptions == 2).await;
    writer.publish_ok(&awaited).await;
    assert_eq!(reader.expect().await, json!(["EVENT", "ids", awaited]));
    let ephemeral = signed(&ago(600, draft(20_001, "", &[])));
    writer.publish_ok(&ephemeral).await;
    assert_eq!(reader.expect().await, json!(["EVENT", "live", ephemeral]));
    assert!(writer.request("s", json!({"kinds": [20_001]})).await.is_empty());
    assert!(writer.request("s", json!({"ids": [id(&ephemeral)]})).await.is_empty());
}

/// Texts come back as they were, however JSON spelled them.
#[tokio::test]
async fn any_text_is_kept() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for content in [
        "\n \" \\ \r \t \u{8} \u{c}",
        "\u{fdd1} \u{10fff2} \u{ffff} \u{feff}",
        "\u{0} \u{1} \u{1f} \u{7f} \u{2028}",
        "",
        "🦀 é e\u{301} \u{202e}",
    ] {
        let event = signed(&draft(1, content, &[&["x", content], &["test"], &[""]]));
        client.publish_ok(&event).await;
        assert_eq!(client.stored(json!({"ids": [id(&event)]})).await, [event]);
        let by_tag = client.stored(json!({"#x": [content]})).await;
        assert_eq!(by_tag.len(), 1, "{content:?}");
    }
    // The same values spelled in another way are the same event.
    let text = author(1).sign(&draft(1, "a/b\u{e9}\n", &[]));
    let spelled = text.replace("a/b\u{e9}\\n", "\\u0061\\/b\\u00E9\\u000a");
    assert_ne!(spelled, text);
    client.send_text(format!(" [ \"EVENT\" ,\n{spelled} ]")).await;
    assert_eq!(client.expect().await[2], true);
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(client.stored(json!({"ids": [id(&event)]})).await, [event]);
}

/// Times of any kind are taken or refused with a reason, and what is no time is no event.
#[tokio::test]
async fn times_of_every_kind_are_answered() {
    const DAY_SECONDS: i64 = 24 * 60 * 60;
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for days in [7, 30, 100] {
        client.publish_ok(&signed(&ago(days * DAY_SECONDS, draft(1, "old", &[])))).await;
    }
    let now = note("").created_at.0;
    let year = 365 * DAY_SECONDS;
    for (created_at, why) in [
        (0, "invalid: created_at too old"),
        (now - year, "invalid: created_at too old"),
        (now + year, "invalid: created_at too far in the future"),
        ((1 << 31) + 1, "invalid: created_at too far in the future"),
        ((1 << 32) + 1, "invalid: created_at too far in the future"),
        (i64::MAX, "invalid: created_at too far in the future"),
    ] {
        client.refused(&signed(&ago(now - created_at, draft(1, "", &[]))), why).await;
    }
    let text = author(1).sign(&draft(1, "", &[]));
    let event: Value = serde_json::from_str(&text).unwrap();
    for time in ["-200", "1e+10", "1700000000.0", "\"1700000000\"", "18446744073709551615", "null"]
    {
        let text = text.replace(&format!(":{now},"), &format!(":{time},"));
        client.send_text(format!(r#"["EVENT",{text}]"#)).await;
        let answer = client.expect().await;
        assert_eq!((&answer[1], &answer[2]), (&event["id"], &json!(false)), "{time}");
        assert!(answer[3].as_str().unwrap().starts_with("invalid: malformed event: "), "{answer}");
    }
}

/// Whatever is refused is refused with a word that a program can read.
#[tokio::test]
async fn refusals_begin_with_a_known_word() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    let good = signed(&draft(1, "", &[]));
    let broken = |field: &str, value: Value| {
        let mut event = good.clone();
        event[field] = value;
        event
    };
    let elsewhere = topic(2);
    let mut answers = Vec::new();
    for event in [
        broken("id", json!("00".repeat(32))),
        broken("sig", json!("00".repeat(64))),
        broken("kind", json!(1 << 16)),
        broken("pubkey", json!("AB".repeat(32))),
        broken("tags", json!([[]])),
        signed(&draft(1, "", &[&["t", &elsewhere]])),
        signed(&draft(39_020, "", &[])),
        signed(&draft(22_242, "", &[])),
        signed(&draft(30_000, "", &[])),
    ] {
        let (accepted, why) = client.publish(&event).await;
        assert!(!accepted, "{event}");
        answers.push(why);
    }
    for filter in [
        json!({"#t": [elsewhere]}),
        json!({"ids": ["abc"]}),
        json!({"kinds": [-1]}),
        json!({"search": "x"}),
        json!({"since": -1.5}),
        json!([]),
        json!({"after": "?"}),
    ] {
        answers.push(client.refused_request("s", filter).await);
    }
    for why in answers {
        let word = why.split_once(": ").map(|(word, _)| word);
        assert!(word.is_some_and(|word| PREFIXES.contains(&word)), "{why}");
    }
    client.publish_ok(&good).await;
}
