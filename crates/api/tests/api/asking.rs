//! What is asked is answered: from the index, as the store has it now.

use kukuri_core::TopicId;
use kukuri_index::NamedTopic;
use kukuri_store::conformance::signing::Draft;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig, STALE_FROM, encode};

#[tokio::test]
async fn a_result_is_the_event_and_why_it_was_found() {
    let rig = Rig::start().await;
    let id = rig.note("今日は<b>東京</b>タワーに登った").await;
    let article = Draft::new(30_023, rig.now()).tag("d", "x").tag("title", "東京の歩き方");
    rig.publish(&article.content("まず歩く")).await;
    rig.index().await;
    let answer = rig.search("東京", "").await;
    assert_eq!(answer.contents().len(), 2);
    assert_eq!(
        (&answer.json["topic"], &answer.json["query"]),
        (&json!("kukuri:global"), &json!("東京"))
    );
    for absent in ["next_cursor", "index_lag_seconds"] {
        assert!(answer.json.get(absent).is_none(), "{absent}");
    }
    let items = answer.json["items"].as_array().unwrap();
    let of = |kind: u16| items.iter().find(|item| item["event"]["kind"] == kind).unwrap();
    let note = of(1);
    assert_eq!(note["event"]["id"], id.to_hex());
    assert_eq!(note["event"].as_object().unwrap().len(), 7);
    assert!((0.0..=1.0).contains(&note["score"].as_f64().unwrap()));
    assert_eq!(
        note["snippet"],
        json!({
            "field": "content", "text": "今日は<b>東京</b>タワーに登った", "matches": [[6, 8]],
            "cut_before": false, "cut_after": false,
        })
    );
    let snippet = &of(30_023)["snippet"];
    assert_eq!((&snippet["field"], &snippet["text"]), (&json!("title"), &json!("東京の歩き方")));
}

/// All pages of an answer, one after the other.
async fn pages(rig: &Rig, path: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let Answer { json, .. } = rig.get(&format!("{path}{cursor}")).await;
        pages.push(json["items"].as_array().unwrap().clone());
        let Some(next) = json["next_cursor"].as_str() else { return pages };
        cursor = format!("&cursor={next}");
        assert!(pages.len() < 100, "the pages end");
    }
}

#[tokio::test]
async fn pages_are_the_whole_answer() {
    let rig = Rig::start().await;
    for nth in 0..23 {
        rig.note(&format!("note {nth}")).await;
        rig.advance(7);
    }
    rig.index().await;
    let path = "/v1/search?topic=kukuri:global&q=note&limit=";
    let whole = pages(&rig, &format!("{path}50")).await.concat();
    assert_eq!(whole.len(), 23);
    for limit in [1, 7, 22, 23] {
        let paged = pages(&rig, &format!("{path}{limit}")).await;
        assert!(paged[..paged.len() - 1].iter().all(|page| page.len() == limit), "{limit}");
        let id = |item: &Value| item["event"]["id"].clone();
        assert!(paged.concat().iter().map(id).eq(whole.iter().map(id)), "{limit}");
    }
    // A cursor belongs to its topic as well.
    let other = TopicId::parse(&format!("kukuri:{}", "0f".repeat(32))).unwrap();
    rig.house.carried.lock().unwrap().insert(other.clone());
    let next = rig.search("note", "&limit=1").await.json["next_cursor"].clone();
    let path = format!("/v1/search?topic={other}&q=note&cursor={}", next.as_str().unwrap());
    assert_eq!(rig.get(&path).await.code(), (400, "INVALID_CURSOR"));
    // Later pages are as of the first: what came since has no place in them.
    let first = rig.search("note", "&limit=22").await.json;
    rig.note("note that is new").await;
    rig.index().await;
    let next = first["next_cursor"].as_str().unwrap();
    assert_eq!(rig.search("note", &format!("&cursor={next}")).await.contents().len(), 1);
    assert_eq!(
        rig.search("note 1", &format!("&cursor={next}")).await.code(),
        (400, "INVALID_CURSOR")
    );
}

/// An index that is behind shows nothing that is gone, says that it is behind, and its pages are full all
/// the same.
#[tokio::test]
async fn an_index_that_is_behind_shows_what_is_there() {
    let rig = Rig::start().await;
    let mut ids = Vec::new();
    for nth in 0..60 {
        ids.push(rig.note(&format!("note {nth}")).await);
        rig.advance(1);
    }
    rig.index().await;
    let stale = i64::try_from(STALE_FROM.as_secs()).unwrap();
    let draft = Draft::new(5, rig.now());
    let draft = ids[5..].iter().fold(draft, |draft, id| draft.tag("e", id.to_hex()));
    rig.publish(&draft).await;
    rig.advance(stale - 1);
    let answer = rig.search("note", "&limit=4").await;
    assert_eq!(answer.contents(), ["note 4", "note 3", "note 2", "note 1"]);
    assert!(answer.json.get("index_lag_seconds").is_none());
    rig.advance(1);
    let next = answer.json["next_cursor"].as_str().unwrap();
    let answer = rig.search("note", &format!("&limit=4&cursor={next}")).await;
    assert_eq!(answer.contents(), ["note 0"]);
    assert_eq!(answer.json["index_lag_seconds"], stale);
    rig.index().await;
    assert!(rig.search("note", "").await.json.get("index_lag_seconds").is_none());
}

#[tokio::test]
async fn topics_are_listed_and_found_by_their_names() {
    let rig = Rig::start().await;
    let topic = |nth: u8, name: &str| {
        let id = format!("kukuri:{}", format!("{nth:02x}").repeat(32));
        NamedTopic { topic_id: TopicId::parse(&id).unwrap(), name: name.to_owned() }
    };
    *rig.house.names.lock().unwrap() =
        vec![topic(1, "Rust in Kansai"), topic(2, ""), topic(3, "ビットコイン"), topic(4, "Rust")];
    let names = |items: &[Value]| -> Vec<String> {
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = pages(&rig, "/v1/topics?limit=1").await;
    assert_eq!(names(&all.concat()), ["Rust", "Rust in Kansai", "ビットコイン", ""]);
    assert_eq!(all.concat()[3]["topic_id"], topic(2, "").topic_id.as_str());
    for (asked, found) in [
        ("rust", vec!["Rust", "Rust in Kansai"]),
        ("ﾋﾞｯﾄ", vec!["ビットコイン"]),
        ("' OR 1=1 --", vec![]),
        ("%_", vec![]),
    ] {
        let answer = rig.get(&format!("/v1/topics?q={}", encode(asked))).await;
        assert_eq!(names(answer.json["items"].as_array().unwrap()), found, "{asked}");
    }
}
