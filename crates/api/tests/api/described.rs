//! The document that is shipped says what the code does.

use kukuri_api::{SEARCH_ITEMS_DEFAULT, SEARCH_ITEMS_MAX, TOPICS_DEFAULT, TOPICS_MAX, document};
use kukuri_core::admission::Rate;
use kukuri_index::QUERY_CHARS_MAX;
use serde_json::{Value, json};

use crate::rig::Rig;

fn parsed() -> Value {
    serde_json::from_str(document()).unwrap()
}

#[test]
fn the_document_that_is_shipped_is_this_one() {
    let shipped = include_str!("../../../../docs/openapi.json");
    assert_eq!(
        shipped,
        document(),
        "run: cargo run -p kukuri-api --example openapi > docs/openapi.json"
    );
}

/// Every path that is described is there, and is answered with a status that is described; and it is this
/// very document that is served.
#[tokio::test]
async fn what_is_described_is_there() {
    let rig = Rig::start().await;
    rig.note("a").await;
    rig.index().await;
    let document = parsed();
    let paths = document["paths"].as_object().unwrap();
    for (path, item) in paths {
        let described = item["get"]["responses"].as_object().unwrap();
        for question in ["", "?topic=kukuri:global&q=a", "?q=a", "?limit=0"] {
            let answer = rig.get(&format!("{path}{question}")).await;
            assert_ne!(answer.code().1, "NOT_FOUND", "{path}");
            let status = answer.status.as_u16().to_string();
            assert!(described.contains_key(&status), "{path}{question}: {status}");
        }
    }
    assert_eq!(paths.len(), 3);
    *rig.house.rate.lock().unwrap() = Rate::Exceeded;
    for (path, item) in paths {
        assert_eq!(rig.get(path).await.code(), (429, "RATE_LIMITED"), "{path}");
        assert!(item["get"]["responses"].get("429").is_some(), "{path}");
    }
    *rig.house.rate.lock().unwrap() = Rate::Within;
    assert_eq!(rig.get("/v1/openapi.json").await.json, document);
    assert_eq!(rig.get("/v1/undescribed").await.code(), (404, "NOT_FOUND"));
}

#[test]
fn limits_are_described_as_they_are() {
    let document = parsed();
    let schema = |path: &str, name: &str| {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        parameters.iter().find(|one| one["name"] == name).unwrap()["schema"].clone()
    };
    for (path, default, max) in [
        ("/v1/search", SEARCH_ITEMS_DEFAULT, SEARCH_ITEMS_MAX),
        ("/v1/topics", TOPICS_DEFAULT, TOPICS_MAX),
    ] {
        let limit = schema(path, "limit");
        assert_eq!((&limit["default"], &limit["maximum"]), (&json!(default), &json!(max)));
        assert_eq!(limit["minimum"], 1);
        assert_eq!(schema(path, "q")["maxLength"], QUERY_CHARS_MAX);
    }
}
