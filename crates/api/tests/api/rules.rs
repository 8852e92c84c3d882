//! The rules of the house hold here too, and every refusal has the one shape.

use axum::http::Method;
use kukuri_api::{SEARCH_ITEMS_MAX, TOPICS_MAX, document};
use kukuri_core::admission::{Rate, Verdict};
use serde_json::{Value, json};

use crate::rig::{Rig, TOPIC};

const QUESTIONS: [&str; 2] = ["/v1/search?topic=kukuri:global&q=a", "/v1/topics"];

/// A path that comes later is asked here as well, unless it is for everybody.
#[test]
fn every_path_that_tells_something_is_asked() {
    let document: Value = serde_json::from_str(document()).unwrap();
    let paths = document["paths"].as_object().unwrap().keys().map(String::as_str);
    let telling: Vec<&str> = paths.filter(|path| *path != "/v1/openapi.json").collect();
    assert_eq!(QUESTIONS.map(|path| path.split('?').next().unwrap()), telling[..]);
}

#[tokio::test]
async fn who_may_not_read_is_told_nothing() {
    let rig = Rig::start().await;
    rig.note("a").await;
    rig.index().await;
    for (verdict, code) in [
        (Verdict::AuthRequired, (401, "AUTH_REQUIRED")),
        (Verdict::Restricted, (403, "ACCESS_DENIED")),
        (Verdict::Blocked, (403, "ACCESS_DENIED")),
    ] {
        *rig.house.verdict.lock().unwrap() = verdict;
        for path in QUESTIONS {
            let answer = rig.get(path).await;
            assert_eq!(answer.code(), code, "{path}");
            assert_eq!(answer.headers.contains_key("www-authenticate"), code.0 == 401);
            assert!(answer.json.get("items").is_none());
        }
        // Not even whether a topic is carried.
        let other = format!("/v1/search?topic=kukuri:{}&q=a", "0f".repeat(32));
        assert_eq!(rig.get(&other).await.code(), code);
    }
    *rig.house.verdict.lock().unwrap() = Verdict::Admit;
    for path in QUESTIONS {
        assert_eq!(rig.get(path).await.code().0, 200, "{path}");
    }
}

#[tokio::test]
async fn every_request_costs() {
    let rig = Rig::start().await;
    *rig.house.rate.lock().unwrap() = Rate::Exceeded;
    for path in QUESTIONS.into_iter().chain(["/v1/openapi.json", "/v1/nothing", "/v1/search?x"]) {
        let answer = rig.get(path).await;
        assert_eq!(answer.code(), (429, "RATE_LIMITED"), "{path}");
        assert_eq!(answer.headers["retry-after"], "60");
        assert_eq!(answer.json["details"]["retry_after_seconds"], 60);
    }
    let stats = rig.api.stats();
    assert_eq!((stats.requests, stats.refused, stats.unavailable), (5, 5, 0));
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let rig = Rig::start().await;
    rig.note("a").await;
    rig.index().await;
    let elsewhere = format!("/v1/search?topic=kukuri:{}&q=a", "0f".repeat(32));
    let topic = |more: &str| format!("/v1/search?topic={TOPIC}{more}");
    for (path, code, parameter) in [
        ("/v1/search".to_owned(), (400, "INVALID_REQUEST"), "topic"),
        (topic(""), (400, "INVALID_REQUEST"), "q"),
        (topic("&q=a&q=b"), (400, "INVALID_REQUEST"), "q"),
        (topic("&q=%ff"), (400, "INVALID_REQUEST"), "q"),
        (topic("&q=a&limit=x"), (400, "INVALID_REQUEST"), "limit"),
        (topic("&q="), (400, "INVALID_QUERY"), "q"),
        (topic("&q=%22%22"), (400, "INVALID_QUERY"), "q"),
        (topic(&format!("&q={}", "x".repeat(10_000))), (400, "INVALID_QUERY"), "q"),
        (topic("&q=a&cursor="), (400, "INVALID_CURSOR"), "cursor"),
        (topic("&q=a&cursor=00"), (400, "INVALID_CURSOR"), "cursor"),
        ("/v1/search?topic=rust&q=a".to_owned(), (400, "INVALID_TOPIC"), "topic"),
        ("/v1/search?topic=%00&q=a".to_owned(), (400, "INVALID_TOPIC"), "topic"),
        (elsewhere, (404, "TOPIC_NOT_HANDLED"), "topic"),
        ("/v1/topics?q=".to_owned(), (400, "INVALID_QUERY"), "q"),
        ("/v1/topics?cursor=zz".to_owned(), (400, "INVALID_CURSOR"), "cursor"),
    ] {
        let answer = rig.get(&path).await;
        assert_eq!(answer.code(), code, "{path}");
        assert_eq!(answer.json["details"]["parameter"], parameter, "{path}");
        assert!(answer.json["message"].as_str().unwrap().len() < 200, "{path}");
        assert_eq!(answer.json.as_object().unwrap().len(), 3, "code, message, details");
    }
    for (path, code) in [
        ("/v1/topics?topics=a", (400, "INVALID_REQUEST")),
        ("/v1/nothing", (404, "NOT_FOUND")),
        ("/v1/", (404, "NOT_FOUND")),
        ("/v1", (404, "NOT_FOUND")),
        ("/favicon.ico", (404, "NOT_FOUND")),
        ("/v1/search/", (404, "NOT_FOUND")),
    ] {
        let answer = rig.get(path).await;
        assert_eq!(answer.code(), code, "{path}");
        assert_eq!(answer.json["details"], json!({}), "{path}");
    }
}

#[tokio::test]
async fn pages_are_limited() {
    let rig = Rig::start().await;
    rig.note("a").await;
    rig.index().await;
    for (path, max) in
        [("/v1/search?topic=kukuri:global&q=a&", SEARCH_ITEMS_MAX), ("/v1/topics?", TOPICS_MAX)]
    {
        assert_eq!(rig.get(&format!("{path}limit={max}")).await.code().0, 200);
        let answer = rig.get(&format!("{path}limit={}", max + 1)).await;
        assert_eq!(answer.code(), (400, "INVALID_REQUEST"));
    }
}

/// Pages of other people may ask, and may show what they hear.
#[tokio::test]
async fn browsers_may_ask_from_anywhere() {
    let rig = Rig::start().await;
    for path in ["/v1/topics", "/v1/search", "/v1/nothing"] {
        let answer = rig.get(path).await;
        assert_eq!(answer.headers["access-control-allow-origin"], "*", "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(answer.headers["content-type"], "application/json", "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
    let preflight = rig.ask(Method::OPTIONS, "/v1/search").await;
    assert_eq!(preflight.status.as_u16(), 204);
    assert_eq!(preflight.headers["access-control-allow-methods"], "GET, HEAD, OPTIONS");
    assert_eq!(rig.ask(Method::HEAD, "/v1/topics").await.status.as_u16(), 200);
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        let answer = rig.ask(method, "/v1/topics").await;
        assert_eq!(answer.code(), (405, "METHOD_NOT_ALLOWED"));
        assert_eq!(answer.headers["allow"], "GET, HEAD, OPTIONS");
    }
}

#[tokio::test]
async fn a_search_that_is_not_there_is_told_from_one_that_is_not_ready() {
    let off = Rig::with(false).await;
    assert_eq!(off.search("a", "").await.code(), (404, "SEARCH_OFF"));
    assert_eq!(off.get("/v1/topics").await.code().0, 200);

    let rig = Rig::start().await;
    let answer = rig.search("a", "").await;
    assert_eq!(answer.code(), (503, "UNAVAILABLE"));
    assert_eq!(answer.headers["retry-after"], "5");
    assert_eq!(answer.json["message"], "the search is being set up, try again later");
    assert_eq!(rig.api.stats().unavailable, 1);
    rig.note("a").await;
    rig.index().await;
    assert_eq!(rig.search("a", "").await.contents(), ["a"]);
    // Nor is one that another version of the program has made.
    rig.script("UPDATE consumer_offsets SET version = 1").await;
    let answer = rig.search("a", "").await;
    assert_eq!(answer.code(), (503, "UNAVAILABLE"));
    assert_eq!(answer.json["message"], "the search is being set up, try again later");
    rig.script("DROP TABLE consumer_offsets").await;
    let answer = rig.search("a", "").await;
    assert_eq!(answer.code(), (503, "UNAVAILABLE"));
    assert_eq!(answer.json["message"], "the search is unavailable, try again later");
}
